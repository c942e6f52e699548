//! Options of `completions`.

use clap::{Args, ValueEnum};

/// `lakemark completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that you type in
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: ShellName,
}

/// A shell that completes command lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellName {
    /// source <(lakemark completions bash)
    Bash,
    /// Write it as _lakemark into a folder of $fpath
    Zsh,
    /// lakemark completions fish | source
    Fish,
}
