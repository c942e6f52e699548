//! Reads a log from arbitrary bytes: as they are, and as the payloads of frames whose checksums are good.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::log::{LOG_START, check_log_header, log_frame, log_header, read_log};
use lakemark_format::{FormatError, LogRead};

#[path = "../repair.rs"]
mod repair;

const ID: [u8; 16] = *b"log-of-updates-1";
const FIRST: u64 = 41;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    read(&repair::repair_log(&ID, FIRST, bytes));
});

/// Commits that can be read are read again once they are written, in one frame for all.
fn read(bytes: &[u8]) {
    let Some(log) = whole(bytes) else { return };
    assert!(log.end <= bytes.len() as u64 && log.torn == (log.end < bytes.len() as u64));
    let logged = log.commits.into_iter();
    let (numbers, commits): (Vec<_>, Vec<_>) = logged.map(|logged| (logged.sequence, logged.commit)).unzip();
    assert!(numbers.into_iter().eq((FIRST..).take(commits.len())));
    let mut again = log_header(ID);
    if !commits.is_empty() {
        again.extend(log_frame(&ID, LOG_START, FIRST, &commits).expect("commits that fit before"));
    }
    let read = whole(&again).expect("a log that was just written");
    assert_eq!((read.end, read.torn), (again.len() as u64, false));
    assert!(read.commits.into_iter().map(|logged| logged.commit).eq(commits));
}

/// The log, or nothing after an error that says that it is data.
fn whole(bytes: &[u8]) -> Option<LogRead> {
    let read = check_log_header(&ID, bytes)
        .and_then(|()| read_log(&ID, LOG_START, FIRST, bytes.get(LOG_START as usize..).unwrap_or_default()));
    if let Err(error) = &read {
        assert!(matches!(error, FormatError::DamagedUpdates { .. }), "{error}");
    }
    read.ok()
}
