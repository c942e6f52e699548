//! Logs: what is read of one that a writer left behind unfinished, and of one that was damaged.

use lakemark_format::*;

use crate::forge_updates::{frame, frame_header, log, log_header, payload};
use crate::samples_updates::{self as samples, FIRST, LOG, frames, numbered};
use crate::{forge, model_log};

#[test]
fn a_log_cut_anywhere_holds_the_commits_of_its_whole_frames() {
    let frames = frames();
    let (bytes, ends) = samples::log(&frames);
    let mut read = Vec::new();
    for length in log::LOG_START as usize..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= length).count();
        let end = if whole == 0 { 68 } else { ends[whole - 1] };
        let found = samples::read_log(&bytes[..length]).unwrap();
        assert_eq!((found.end, found.torn), (end as u64, length > end), "{length}");
        assert_eq!(found.commits, numbered(&frames[..whole]), "{length}");
        read.push(found.commits.len());
    }
    read.dedup();
    assert_eq!(read, [0, 2, 3]);
}

#[test]
fn a_flipped_bit_of_a_log_is_an_error_or_a_torn_tail() {
    let frames = frames();
    let (bytes, ends) = samples::log(&frames);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = samples::read_log(&flipped);
        if bit / 8 < ends[0] {
            assert!(matches!(read, Err(FormatError::DamagedUpdates { .. })), "bit {bit}: {read:?}");
            continue;
        }
        let read = read.unwrap();
        assert_eq!((read.end, read.torn), (ends[0] as u64, true), "bit {bit}");
        assert_eq!(read.commits, numbered(&frames[..1]), "bit {bit}");
    }
}

#[test]
fn a_log_of_no_frame_has_no_commit() {
    let empty = LogRead { last: log::LOG_START, end: log::LOG_START, ..LogRead::default() };
    assert_eq!(samples::read_log(&log::log_header(LOG)), Ok(empty));
}

#[test]
fn a_log_is_read_from_any_frame_on() {
    let frames = frames();
    let (bytes, ends) = samples::log(&frames);
    let read = log::read_log(&LOG, ends[0] as u64, FIRST + 2, &bytes[ends[0]..]).unwrap();
    assert_eq!((read.commits.as_slice(), read.torn), (&numbered(&frames)[2..], false));
    assert_eq!((read.last, read.end), (ends[ends.len() - 2] as u64, bytes.len() as u64));
}

/// A row may hold anything, also the bytes of a frame that would be good where they stand.
#[test]
fn rows_that_look_like_a_frame_are_no_frame() {
    let inner = payload(&frames()[1]);
    // Header, number of commits, empty tag, number of changes, operation and length come before the rows.
    let at = 68 + 20 + 5;
    let rows = frame(&LOG, at, FIRST + 1, &inner);
    let change = LogChange { operation: Operation::Insert, rows };
    let commits = vec![vec![LogCommit { tag: String::new(), changes: vec![change] }]];
    let (mut bytes, _) = samples::log(&commits);
    assert_eq!(bytes[at..], frame(&LOG, at, FIRST + 1, &inner));
    assert_eq!(samples::read_log(&bytes).unwrap().commits, numbered(&commits));
    bytes[at + 25] ^= 1;
    let torn = samples::read_log(&bytes).unwrap();
    assert_eq!((torn.commits, torn.end, torn.torn), (vec![], 68, true));
}

/// What follows the last good frame and is no header of a later one was never told to anybody.
#[test]
fn a_tail_of_anything_else_is_torn() {
    let (bytes, _) = samples::log(&frames());
    let (at, next) = (bytes.len(), FIRST + 3);
    let begun = |place: usize, sequence| frame_header(&LOG, place, 0, sequence, 0);
    let tails = [
        vec![0; 5000],
        vec![0xff; 19],
        [vec![0; 7], begun(at + 7, next - 1)].concat(),
        [vec![0; 7], begun(at + 7, next + 8)].concat(),
        [vec![0; 7], begun(at + 8, next + 1)].concat(),
        [vec![0; 7], frame_header(&LOG, at + 7, (1 << 30) + 1, next, 0)].concat(),
        [vec![0; 7], frame(b"log-of-updates-2", at + 7, next, &payload(&frames()[0]))].concat(),
    ];
    for (number, tail) in tails.into_iter().enumerate() {
        let torn = [bytes.clone(), tail].concat();
        let read = samples::read_log(&torn).unwrap();
        assert_eq!((read.commits, read.end, read.torn), (numbered(&frames()), at as u64, true), "{number}");
    }
    for sequence in [next, next + 7] {
        let damaged = [bytes.clone(), vec![0; 7], begun(at + 7, sequence)].concat();
        assert!(samples::read_log(&damaged).is_err(), "{sequence}");
    }
}

/// Headers that are good, one behind the other, each of which tells of many bytes: nobody checks them all.
#[test]
fn a_tail_of_begun_frames_takes_linear_time() {
    let mut bytes = log_header(&LOG, 1, 4, 0);
    bytes.push(0);
    while bytes.len() < 1 << 21 {
        bytes.extend(frame_header(&LOG, bytes.len(), 1 << 20, FIRST, 0));
    }
    assert!(samples::read_log(&bytes).is_err());
    // The same before the log begins, so that each is refused for its number alone.
    let torn = log::read_log(&LOG, 68, FIRST + 1, &bytes[68..]).unwrap();
    assert_eq!((torn.commits, torn.end, torn.torn), (vec![], 68, true));
}

#[test]
fn numbers_of_commits_end_below_the_largest() {
    let commits = frames()[0].clone();
    let bytes = log::log_frame(&LOG, 68, u64::MAX - 2, &commits).unwrap();
    let read = log::read_log(&LOG, 68, u64::MAX - 2, &bytes).unwrap();
    assert_eq!(read.commits.last().unwrap().sequence, u64::MAX - 1);
    assert!(matches!(log::log_frame(&LOG, 68, u64::MAX - 1, &commits), Err(FormatError::Invalid { .. })));
    let beyond = frame(&LOG, 68, u64::MAX - 1, &payload(&commits));
    assert!(matches!(log::read_log(&LOG, 68, u64::MAX - 1, &beyond), Err(FormatError::DamagedUpdates { .. })));
    assert!(log::read_log(&LOG, u64::MAX, u64::MAX, &beyond).unwrap().torn);
}

#[test]
fn what_does_not_fit_into_a_frame_is_refused() {
    let commit = LogCommit { tag: "x".repeat(limits::MAX_NAME_LENGTH + 1), changes: vec![] };
    let error = log::log_frame(&LOG, 68, 0, &[commit]).unwrap_err();
    assert_eq!(error, FormatError::TooLarge { what: "the tag of a commit", got: 16_385, limit: 16_384 });
    assert!(error.to_string().ends_with("commit it in smaller parts"));
    assert!(matches!(log::log_frame(&LOG, 68, 0, &[]), Err(FormatError::Invalid { .. })), "a frame of no commit");
}

#[test]
fn errors_say_where_the_damage_is_and_to_keep_the_file() {
    let (mut bytes, ends) = samples::log(&frames());
    bytes[70] ^= 1;
    let text = samples::read_log(&bytes).unwrap_err().to_string();
    let expected = format!(
        "the log of updates, from byte 68 on: a frame: got damaged bytes, expected a good one, as another begins at byte \
         {}; updates are data that no other file may hold: keep the file, upgrade lakemark if a later release wrote it, \
         or else restore it from a copy",
        ends[0]
    );
    assert_eq!(text, expected);
}

#[test]
fn two_readers_agree_on_the_golden_log_and_on_bad_ones() {
    let (bytes, _) = samples::log(&frames());
    assert_eq!(model_log::read(&bytes), Some((numbered(&frames()), false)));
    for bad in crate::bad_logs::logs() {
        assert_eq!(model_log::read(&bad.bytes), None, "{}", bad.name);
    }
    let jumping = log(&[(FIRST, payload(&frames()[0])), (FIRST + 2, vec![1, 0, 0])]);
    assert_eq!(model_log::read(&jumping).unwrap().0.len(), 3);
    assert_eq!(forge::crc(&LOG, 0, &bytes[..64]).to_le_bytes(), bytes[64..68]);
}
