//! Options of `config`.

use clap::Args;

use super::Format;

/// `lakemark config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// How the rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}
