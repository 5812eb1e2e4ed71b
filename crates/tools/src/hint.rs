//! What may help a model to repair its program, by what has become of it. The words are ours alone: what a program has
//! written only decides which of them are said.

use mayfly_wire::job::State;

/// What may help; none where nothing is known that does.
pub(crate) fn of(state: State, stdout: &str, stderr: &str) -> Option<&'static str> {
    match state {
        State::Succeeded if stdout.is_empty() && stderr.is_empty() => {
            Some("Nothing was printed: print() what has to be seen, or end with an expression.")
        }
        State::Failed => of_failure(stderr),
        State::TimedOut => Some(
            "Do less, do it faster, or ask for more time with timeout_seconds. A program that waits for the network or \
             for input waits in vain.",
        ),
        State::OutOfMemory => Some(
            "Work on less at a time: read files in parts, use generators, drop what is not needed any more.",
        ),
        State::LimitExceeded => Some("Print less: a summary, or the first lines."),
        _ => None,
    }
}

/// Words that stand in what Python says at the end of a program, and what helps then.
const FAILURES: &[(&str, &str)] = &[
    (
        "ModuleNotFoundError",
        "The image does not have this module, and none can be installed: use the standard library, or another module \
         that is there.",
    ),
    (
        "NameError",
        "Nothing persists between calls: define and import in this call all that it uses.",
    ),
    (
        "FileNotFoundError",
        "Nothing persists between calls: pass the file with `files`, or make it in this call. The working directory is \
         /work.",
    ),
    ("Read-only file system", "Only /work and /tmp can be written to."),
    ("No space left on device", "/work and /tmp are small: write less."),
    (
        "EOFError",
        "There is no standard input: put the values into the program.",
    ),
    ("gaierror", NO_NETWORK),
    ("Network is unreachable", NO_NETWORK),
    ("Temporary failure in name resolution", NO_NETWORK),
    ("Connection refused", NO_NETWORK),
    ("URLError", NO_NETWORK),
    (
        "MemoryError",
        "Work on less at a time: the memory of a sandbox is bounded.",
    ),
];
const NO_NETWORK: &str = "There is no network but for the hosts that the tool names, if it names any: pass what is needed with `files`.";

/// Bytes at the end of a stream among which the last words of a program are.
const LAST_WORDS: usize = 2000;

fn of_failure(stderr: &str) -> Option<&'static str> {
    let begin =
        (stderr.len().saturating_sub(LAST_WORDS)..=stderr.len()).find(|at| stderr.is_char_boundary(*at))?;
    let words = &stderr[begin..];
    FAILURES
        .iter()
        .filter_map(|(word, hint)| Some((words.rfind(word)?, *hint)))
        // The last one is what the program has ended with; others it may have met on the way.
        .max_by_key(|(at, _)| *at)
        .map(|(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_program_decide() {
        let stderr = "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n\
                      NameError: name 'x' is not defined\n\
                      socket.gaierror: [Errno -3] Temporary failure in name resolution\n";
        assert_eq!(of(State::Failed, "", stderr), Some(NO_NETWORK));
        let far = format!("NameError{}é", "é".repeat(LAST_WORDS));
        assert_eq!(of(State::Failed, "", &far), None);
        assert_eq!(of(State::Succeeded, "1", "NameError"), None);
        assert!(of(State::Succeeded, "", "").is_some());
    }
}
