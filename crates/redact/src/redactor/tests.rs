use super::*;
use crate::{Rules, Secrets};

/// Memory, and how much is under way at once, over a hundred megabytes of what is worst for each.
#[test]
fn memory_is_bounded_by_what_is_held_and_two_pieces() {
    let matcher = Matcher::new(
        &Rules::all(),
        &Secrets::new(["aaaaaaaaaaaaaaaaaaaaaaaab"]).unwrap(),
    );
    let bound = 2 * (2 * PIECE + LOOK_BEHIND + matcher.most_held_bytes());
    for unit in [
        "a",
        " eyJ",
        "\\neyJ",
        "sk-ant-",
        "sk-ant-api03-sk-ant-api03-",
        "%20eyJ%20",
        "://a:://",
        ":AA",
        " log line\n",
        "-----",
    ] {
        let (mut redactor, mut out) = (Redactor::new(&matcher), Vec::new());
        let text = unit.repeat(50_000 / unit.len());
        for chunk in [1, 777, 50_000] {
            for chunk in text.as_bytes().chunks(chunk) {
                out.clear();
                redactor.push(chunk, &mut out);
                assert!(
                    redactor.buffer.capacity() <= bound,
                    "{unit}: {}",
                    redactor.buffer.capacity()
                );
                assert!(
                    redactor.machines.len() <= 64,
                    "{unit}: {} under way",
                    redactor.machines.len()
                );
                assert!(
                    redactor.spans.len() <= matcher.most_held_bytes(),
                    "{unit}: {}",
                    redactor.spans.len()
                );
            }
        }
    }
}

#[test]
fn a_long_stream_is_kept_nowhere() {
    let matcher = Matcher::new(&Rules::all(), &Secrets::default());
    let (mut redactor, mut out, mut bytes) = (Redactor::new(&matcher), Vec::new(), 0);
    let chunk = b"an ordinary line of a log, and so on\n".repeat(3000);
    for _ in 0..100 {
        out.clear();
        redactor.push(&chunk, &mut out);
        bytes += out.len();
    }
    assert!(redactor.buffer.capacity() <= 4 * PIECE);
    assert_eq!(bytes + redactor.held_bytes(), chunk.len() * 100);
}
