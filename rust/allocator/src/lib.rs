//! The memory allocator of whatever is run: the command, the Python package and the native library of the Spark connector.
//!
//! A query takes and gives back thousands of buffers of some pages each. The allocator of the C library returns such to the system, and
//! each comes again at the price of its page faults: the system clears every page before it gives it out. mimalloc keeps them for a while.
//!
//! Uses nothing of ours. Who makes an artefact that is loaded or run depends on this crate, and calls [`configure`] once.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay` of mimalloc 3, in milliseconds.
const PURGE_DELAY: mi_option_t = 15;

/// How long memory that was given back stays with the process. By itself mimalloc returns it after a second, which is less than what lies
/// between two queries of a person, and less than many a query takes: the count of a join with 1,000,000 keys, whose search reads 390 MB,
/// takes 0.52 s in place of 0.75 if its buffers are still there, and TPC-H Q18 takes 9% less CPU.
const PURGE_DELAY_MS: c_long = 10_000;

/// Keeps memory that was given back for ten seconds, unless the environment says otherwise (`MIMALLOC_PURGE_DELAY`, in milliseconds; 0
/// returns memory at once).
pub fn configure() {
    // SAFETY: the function sets a number in a table of the allocator, which has as many options and more. It takes no pointer. Another
    // thread that reads the number at that time has either value, and both are right.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn memory_stays_for_ten_seconds() {
        // SAFETY: the function reads a number in a table of the allocator.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        // What mimalloc sets by itself: the option is the one that is meant.
        assert_eq!(delay(), 1_000);
        configure();
        assert_eq!(delay(), 10_000);
    }
}
