//! The table, read from `programs/*.py`. A program begins with its id, `#: H-05a`, and what is said of it:
//!
//! ```text
//! #: tries …              what it does, in a sentence
//! #: always               it is part of every `make test`
//! #: limits {…}           of the job; `env {…}` and `files {…}` likewise
//! #: copies N             so many of it, side by side
//! #: ends END or END      how it has to end; `ends-on-runsc` where gVisor differs
//! #: says …               a line of its standard output; `says-on-runsc` where gVisor differs, which then are all lines
//! #: says-starts …        no lines: what standard output begins with
//! #: complains …          the same two of standard error
//! #: writes N N           how many bytes of each come, where too many to list
//! ```
//!
//! In lines, `\xNN` is a byte and `\\` a backslash.

use serde_json::{Map, Value};

/// In front of each program.
const PRELUDE: &str = include_str!("../programs/prelude.py");

const FILES: [&str; 7] = [
    include_str!("../programs/privilege.py"),
    include_str!("../programs/guest.py"),
    include_str!("../programs/syscalls.py"),
    include_str!("../programs/sockets.py"),
    include_str!("../programs/channels.py"),
    include_str!("../programs/resources.py"),
    include_str!("../programs/lifecycle.py"),
];

/// What a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Runc,
    Runsc,
}

impl Runtime {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }
}

/// How a job has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with the code that the programs choose.
    Exited,
    /// The same, after a child of it was killed for memory.
    ChildOutOfMemory,
    /// By a signal that is not a deadline's.
    Signal(i32),
    /// Killed at its deadline.
    TimedOut,
    /// Killed for memory by the kernel, which left the guest to report it.
    OutOfMemory,
    /// Killed for memory together with its guest: gVisor is one process of the host, and ends as a whole.
    OutOfMemoryWhole,
    /// The guest ended with its container and nobody killed it for anything: that is the job's doing.
    GuestLost,
}

/// What a stream has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// These bytes.
    Is(Vec<u8>),
    /// These at its beginning.
    Starts(Vec<u8>),
    /// So many, whichever.
    Counts(u64),
}

/// One program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Its number in the battery, with a letter.
    pub(crate) id: String,
    pub(crate) tries: String,
    /// Whether every `make test` runs it.
    pub(crate) always: bool,
    pub(crate) limits: Value,
    pub(crate) env: Map<String, Value>,
    pub(crate) files: Map<String, Value>,
    pub(crate) copies: usize,
    ends: [Vec<End>; 2],
    out: [Text; 2],
    err: Text,
    source: String,
}

impl Program {
    /// How it may end there.
    pub(crate) fn ends(&self, runtime: Runtime) -> &[End] {
        &self.ends[runtime as usize]
    }

    /// What its standard output has to hold there.
    pub(crate) const fn out(&self, runtime: Runtime) -> &Text {
        &self.out[runtime as usize]
    }

    /// What its standard error has to hold.
    pub(crate) const fn err(&self) -> &Text {
        &self.err
    }

    /// What the interpreter is given.
    pub(crate) fn text(&self) -> String {
        format!("{PRELUDE}{}", self.source)
    }

    fn parse(id: &str, lines: &[&str]) -> Self {
        let said = |name: &str| -> Vec<&str> {
            let lines = lines.iter().filter_map(|line| line.strip_prefix("#: "));
            let lines = lines.filter_map(|line| {
                let (found, rest) = line.split_once(' ').unwrap_or((line, ""));
                (found == name).then_some(rest)
            });
            lines.collect()
        };
        let one = |name: &str| said(name).first().copied();
        let object = |name: &str| -> Map<String, Value> {
            let text = one(name).unwrap_or("{}");
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{id}: {name}: {error}"))
        };
        let ends = |name: &str| one(name).map(|text| text.split(" or ").map(end).collect::<Vec<_>>());
        let on_runc = ends("ends").unwrap_or_else(|| vec![End::Exited]);
        let counts = one("writes").map(|text| {
            let counts: Vec<u64> = text
                .split(' ')
                .map(|count| count.parse().expect("a count"))
                .collect();
            [counts[0], counts[1]]
        });
        let text = |name: &str| {
            let found = said(name);
            (!found.is_empty())
                .then(|| Text::Is(found.iter().flat_map(|line| unescaped(line, true)).collect()))
        };
        let starts = |name: &str| one(name).map(|text| Text::Starts(unescaped(text, false)));
        let stream = |name: &str, at: usize| {
            let count = counts.map(|counts| Text::Counts(counts[at]));
            let starts = starts(&format!("{name}-starts"));
            text(name).or(starts).or(count).unwrap_or(Text::Is(Vec::new()))
        };
        let out = stream("says", 0);
        // A line without text says that there is none.
        let on_runsc = match text("says-on-runsc") {
            Some(Text::Is(bytes)) if bytes == b"\n" => Some(Text::Is(Vec::new())),
            other => other,
        };
        let source: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|line| !line.starts_with("#: "))
            .collect();
        Self {
            id: id.to_owned(),
            tries: one("tries")
                .unwrap_or_else(|| panic!("{id} tries nothing"))
                .to_owned(),
            always: one("always").is_some(),
            limits: Value::Object(object("limits")),
            env: object("env"),
            files: object("files"),
            copies: one("copies").map_or(1, |count| count.parse().expect("a count")),
            ends: [on_runc.clone(), ends("ends-on-runsc").unwrap_or(on_runc)],
            out: [out.clone(), on_runsc.unwrap_or(out)],
            err: stream("complains", 1),
            source: source.join("\n") + "\n",
        }
    }
}

fn end(text: &str) -> End {
    match text.split_once(' ') {
        Some(("signal", number)) => End::Signal(number.parse().expect("a signal")),
        _ => match text {
            "exited" => End::Exited,
            "child_out_of_memory" => End::ChildOutOfMemory,
            "timed_out" => End::TimedOut,
            "out_of_memory" => End::OutOfMemory,
            "out_of_memory_whole" => End::OutOfMemoryWhole,
            "guest_lost" => End::GuestLost,
            other => panic!("no such end: {other}"),
        },
    }
}

/// The bytes that a line of the table stands for.
fn unescaped(line: &str, ends: bool) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line);
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        if let Some(digits) = after.strip_prefix('x') {
            bytes.push(u8::from_str_radix(&digits[..2], 16).expect("two digits of a byte"));
            rest = &digits[2..];
        } else {
            bytes.push(b'\\');
            rest = after.strip_prefix('\\').expect("a backslash is written twice");
        }
    }
    bytes.extend(rest.as_bytes());
    if ends {
        bytes.push(b'\n');
    }
    bytes
}

/// All programs, in the order of the files.
pub(crate) fn all() -> Vec<Program> {
    FILES.iter().flat_map(|file| programs_of(file)).collect()
}

fn programs_of(file: &str) -> Vec<Program> {
    let lines: Vec<&str> = file.lines().collect();
    let begins: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("#: H-"))
        .collect();
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    let parts = begins.iter().zip(ends);
    parts
        .map(|(begin, end)| {
            let id = lines[*begin].trim_start_matches("#: ");
            Program::parse(id, &lines[begin + 1..end])
        })
        .collect()
}

#[test]
fn the_table_has_a_hundred_programs_and_each_id_once() {
    let mut ids: Vec<String> = all().into_iter().map(|program| program.id).collect();
    assert!(ids.len() >= 100, "{}", ids.len());
    ids.sort();
    let many = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), many);
}

#[test]
fn lines_are_bytes() {
    assert_eq!(unescaped("a\\x00\\\\b", true), b"a\0\\b\n");
    assert_eq!(unescaped("\\xff", false), b"\xff");
}
