//! The `lakemark` command; everything is in the library, so that the Python package carries the same program.

fn main() {
    std::process::exit(lakemark_cli::run(std::env::args_os()));
}
