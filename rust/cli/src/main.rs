//! The `lakemark` command; everything is in the library, so that the Python package carries the same program.

use mimalloc::MiMalloc;

/// A query takes and gives back thousands of buffers of some pages each. The allocator of the C library returns such to the system, and each
/// comes again at the price of its page faults.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    std::process::exit(lakemark_cli::run(std::env::args_os()));
}
