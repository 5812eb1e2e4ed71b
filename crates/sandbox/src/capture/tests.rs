use mayfly_redact::{Rules, Secrets};

use super::*;

const LIMIT: usize = 1000;
const SECRET: &str = "correct-horse-battery";

fn nothing() -> Matcher {
    Matcher::new(&Rules::none(), &Secrets::default())
}

fn one_secret() -> Matcher {
    Matcher::new(&Rules::all(), &Secrets::new([SECRET]).unwrap())
}

fn stream(length: usize) -> Vec<u8> {
    (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

/// The record of a stream, and what was shown of it while it came.
fn captured(matcher: &Matcher, stream: &[u8], portion: usize) -> (CapturedStream, Vec<u8>) {
    let mut capture = Capture::new(ByteSize::bytes(LIMIT as u64), matcher);
    let mut shown = Vec::new();
    for portion in stream.chunks(portion) {
        shown.extend_from_slice(capture.take(portion));
    }
    let (rest, captured) = capture.finish();
    shown.extend(rest);
    (captured, shown)
}

#[test]
fn the_mark_of_truncation_is_exact_at_the_limit() {
    for (length, truncated) in [(LIMIT - 1, false), (LIMIT, false), (LIMIT + 1, true)] {
        let stream = stream(length);
        let (captured, shown) = captured(&nothing(), &stream, 7);
        assert_eq!(captured.count.truncated, truncated, "{length}");
        assert_eq!(captured.omitted().as_bytes(), u64::from(truncated), "{length}");
        assert_eq!(shown, stream);
        if !truncated {
            assert_eq!(captured.head, stream);
            assert!(captured.tail.is_empty());
        }
    }
}

#[test]
fn head_and_tail_count_and_hash_are_those_of_the_stream_however_it_comes() {
    for length in [0, 1, 749, 750, 751, 1001, 1250, 100_000] {
        let stream = stream(length);
        for portion in [1, 3, 250, 999, 1000, 1001, 65_536] {
            let (captured, shown) = captured(&nothing(), &stream, portion);
            assert_eq!(captured.count.bytes, length as u64);
            assert_eq!(captured.count.digest, Digest::of(&stream));
            assert_eq!(captured.redacted, Some(Default::default()));
            assert_eq!(shown, stream);
            if captured.count.truncated {
                assert_eq!(captured.head, stream[..750], "{length} by {portion}");
                assert_eq!(captured.tail, stream[length - 250..], "{length} by {portion}");
            } else {
                assert_eq!(captured.head, stream, "{length} by {portion}");
            }
        }
    }
}

/// Wherever a secret stands, across the end of the head and the beginning of the tail too: both are cut of what is left.
#[test]
fn no_cut_leaves_a_part_of_a_secret() {
    let matcher = one_secret();
    for at in [0, 1, 700, 735, 749, 750, 760, 1200, 1729, 1740, 1979] {
        let mut written = vec![b'.'; at];
        written.extend_from_slice(SECRET.as_bytes());
        written.resize(2000, b'.');
        let mut expected = vec![b'.'; at];
        expected.extend_from_slice(b"[redacted:secret]");
        expected.resize(2000 - SECRET.len() + "[redacted:secret]".len(), b'.');
        for portion in [1, 8, 1000, 2000] {
            let (captured, shown) = captured(&matcher, &written, portion);
            assert_eq!(shown, expected, "at {at} by {portion}");
            assert_eq!(captured.head, expected[..750], "at {at} by {portion}");
            assert_eq!(
                captured.tail,
                expected[expected.len() - 250..],
                "at {at} by {portion}"
            );
            assert_eq!(captured.count.bytes, 2000);
            assert_eq!(captured.count.digest, Digest::of(&written));
            assert_eq!(captured.shown_bytes(), expected.len() as u64);
            assert_eq!(captured.omitted().as_bytes(), expected.len() as u64 - 1000);
            let redacted = captured.redacted.unwrap();
            assert_eq!(redacted.counts, [("secret".to_owned(), 1)].into());
            assert_eq!(redacted.bytes, SECRET.len() as u64);
        }
    }
}

/// The limit that ends a program is about what it wrote; the cut is about what is left.
#[test]
fn what_was_taken_out_counts_as_written_and_not_as_kept() {
    let written = SECRET.repeat(50);
    assert!(written.len() > LIMIT);
    let mut capture = Capture::new(ByteSize::bytes(LIMIT as u64), &one_secret());
    capture.take(written.as_bytes());
    assert!(capture.is_over());
    let (_, captured) = capture.finish();
    assert_eq!(captured.head, "[redacted:secret]".repeat(50).as_bytes());
    assert!(!captured.count.truncated && captured.tail.is_empty());
    assert_eq!(captured.omitted().as_bytes(), 0);
}

#[test]
fn what_is_held_back_comes_at_the_end_and_the_beginning_of_a_secret_does_not() {
    let (_, shown) = captured(&one_secret(), b"corr", 1);
    assert_eq!(shown, b"corr");
    let (record, shown) = captured(&one_secret(), b"it is correct-horse-b", 1);
    assert_eq!(shown, b"it is [redacted:secret]");
    assert_eq!(record.head, shown);
}
