//! Bad logs: damage that is no torn tail.

use crate::bad::{Bad, bad};
use crate::forge_updates::{frame, frame_header, log, log_header, payload};
use crate::samples_updates::{FIRST, LOG, frames};
use crate::{forge, golden};

pub fn logs() -> Vec<Bad> {
    [headers(), places(), contents()].into_iter().flatten().collect()
}

fn log_bad(name: &str, wrong: &'static str, bytes: Vec<u8>) -> Bad {
    bad(&format!("log-{name}.lml"), "DamagedUpdates", wrong, bytes)
}

/// The golden log; its second frame begins here.
fn good() -> (Vec<u8>, usize) {
    let [first, second] = payloads();
    let at = 68 + 20 + first.len();
    (log(&[(FIRST, first), (FIRST + 2, second)]), at)
}

fn payloads() -> [Vec<u8>; 2] {
    let frames = frames();
    [payload(&frames[0]), payload(&frames[1])]
}

fn headers() -> Vec<Bad> {
    let header = |header: Vec<u8>| [header, good().0[68..].to_vec()].concat();
    let flipped = |at: usize| {
        let mut bytes = good().0;
        bytes[at] ^= 1;
        bytes
    };
    let other = *b"log-of-updates-2";
    let of_another = [log_header(&other, 6, 4, 0), frame(&other, 68, FIRST, &payloads()[0])].concat();
    // The checksum is that of the log that is asked for, so that only the id in the header is another.
    let mut renamed = forge::header(4, &other);
    renamed.extend(forge::crc(&LOG, 0, &renamed).to_le_bytes());
    vec![
        log_bad("empty", "there is no byte", vec![]),
        log_bad("header-cut", "the header's checksum is cut", good().0[..67].to_vec()),
        log_bad("magic", "the magic is another", flipped(0)),
        log_bad("version", "the version is 7", header(log_header(&LOG, 7, 4, 0))),
        log_bad("kind", "the content kind is that of an edit", header(log_header(&LOG, 6, 2, 0))),
        log_bad("reserved", "a reserved byte is 1", header(log_header(&LOG, 6, 4, 1))),
        log_bad("header-damaged", "a bit of the header's checksum is flipped", flipped(64)),
        log_bad("of-another-id", "it is the log of another id", of_another),
        log_bad("renamed", "the id in the header is another, its checksum that of this log", header(renamed)),
        log_bad("is-segment", "the file is a good segment", golden::numbers().write().0),
    ]
}

fn places() -> Vec<Bad> {
    let (bytes, second) = good();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        bytes
    };
    let [first, last] = payloads();
    // The first frame once more, where it does not belong, and a good one behind it.
    let moved = |sequence| {
        let copied = [&bytes[..second], &bytes[68..second]].concat();
        let behind = frame(&LOG, copied.len(), sequence, &last);
        [copied, behind].concat()
    };
    let of_another = frame(b"log-of-updates-2", 68, FIRST, &first);
    let begun = frame_header(&LOG, second, 1000, FIRST + 2, 0);
    vec![
        log_bad("payload-damaged", "a bit of the first frame's payload is flipped", changed(&|log| log[100] ^= 4)),
        log_bad("frame-header-damaged", "a bit of the first frame's length is flipped", changed(&|log| log[69] ^= 4)),
        log_bad("frame-of-zeros", "the first frame is zeros", changed(&|log| log[68..second].fill(0))),
        log_bad(
            "frame-of-another-log",
            "the first frame is one of another log",
            changed(&|log| log[68..second].copy_from_slice(&of_another)),
        ),
        log_bad("frame-moved", "a frame stands once more at another place, a good one behind it", moved(FIRST + 2)),
        log_bad(
            "frame-begun-behind-damage",
            "of the frame behind a damaged one only the header was written",
            [&changed(&|log| log[100] ^= 4)[..second], begun.as_slice()].concat(),
        ),
        log_bad(
            "sequence-jumps",
            "the second frame leaves a number out",
            log(&[(FIRST, first.clone()), (FIRST + 3, last.clone())]),
        ),
        log_bad(
            "sequence-repeats",
            "the second frame begins with a number again",
            log(&[(FIRST, first.clone()), (FIRST + 1, last)]),
        ),
        log_bad("sequence-low", "the first frame is older than the log", log(&[(FIRST - 1, first)])),
    ]
}

fn contents() -> Vec<Bad> {
    let one = |name: &str, wrong: &'static str, payload: Vec<u8>| log_bad(name, wrong, log(&[(FIRST, payload)]));
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let too_long = frame_header(&LOG, 68, (1 << 30) + 1, FIRST, 0);
    let tag = [&[1, 0x81, 0x80, 1], [b'x'; 16_385].as_slice(), &[0]].concat();
    vec![
        log_bad(
            "frame-of-over-1-gib",
            "a frame has 2^30 + 1 bytes according to its good header",
            [log_header(&LOG, 6, 4, 0), too_long].concat(),
        ),
        one("frame-empty", "a frame has no bytes", vec![]),
        one("no-commit", "a frame holds no commit", vec![0]),
        one("commits-huge", "a frame holds 2^63 - 1 commits", huge.to_vec()),
        one("commits-too-many", "a frame holds one commit more than it has bytes for", vec![2, 0, 0]),
        one("frame-longer", "a byte follows the last commit", vec![1, 0, 0, 0]),
        one("tag-too-long", "a tag has 16,385 bytes", tag),
        one("tag-no-text", "a tag is not UTF-8", vec![1, 1, 0xff, 0]),
        one("changes-huge", "a commit has 2^63 - 1 changes", [&[1, 0], huge.as_slice()].concat()),
        one("operation-0", "an operation is 0", vec![1, 0, 1, 0, 0]),
        one("operation-5", "an operation is 5", vec![1, 0, 1, 5, 0]),
        one("rows-cut", "the rows of a change are longer than the frame", vec![1, 0, 1, 1, 2, b'r']),
        one("rows-huge", "the rows of a change have more than 2^30 bytes", [&[1, 0, 1, 1], huge.as_slice()].concat()),
        one("length-padded", "the length of rows is a varint in two bytes that needs one", vec![1, 0, 1, 1, 0x80, 0]),
    ]
}
