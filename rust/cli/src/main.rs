//! The `lakemark` command; everything is in the library, so that the Python package carries the same program.

fn main() {
    lakemark_allocator::configure();
    std::process::exit(lakemark_cli::run(std::env::args_os()));
}
