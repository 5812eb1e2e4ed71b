//! Files that leave when the job is over.

use mayfly_protocol::{
    CollectOrder, Collected, Ended, FromGuest, GuestExit, Job, LeftOut, LeftOutWhy, MAX_PATH_BYTES, StreamId,
    ToGuest,
};

use crate::guest;
use crate::harness::{Guest, Options, python, shell};
use crate::lifecycle::code;

/// What came of one collection.
struct Collection {
    files: Vec<(String, Vec<u8>)>,
    left_out: Vec<LeftOut>,
    end: Collected,
}

impl Collection {
    fn names(&self) -> Vec<&str> {
        self.files.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn why(&self) -> Vec<(String, LeftOutWhy)> {
        let shown = |file: &LeftOut| (shown(file.name.as_bytes()), file.why);
        self.left_out.iter().map(shown).collect()
    }
}

fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn collecting(job: Job) -> Job {
    Job {
        collects: true,
        ..job
    }
}

fn order(globs: &[&str]) -> CollectOrder {
    CollectOrder {
        globs: globs.iter().map(|&glob| glob.to_owned()).collect(),
        max_files: 100,
        max_file_bytes: 1 << 20,
        max_bytes: 4 << 20,
        max_entries: 10_000,
        max_named: 100,
    }
}

/// Asks for the files of a job that is over, and takes them with all the credit that they need.
fn collect(guest: &Guest, order: CollectOrder) -> Collection {
    guest.send(&ToGuest::Collect(order));
    guest.grant(StreamId::ARTIFACTS, 128 * 1024);
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    loop {
        match guest.next() {
            FromGuest::Artifact(file) => files.push((shown(file.name.as_bytes()), Vec::new())),
            FromGuest::ArtifactData(data) => {
                guest.grant(StreamId::ARTIFACTS, data.len().try_into().unwrap());
                files.last_mut().expect("of a file").1.extend(data);
            }
            FromGuest::ArtifactEnd(end) => assert_eq!(end.errno, None),
            FromGuest::LeftOut(file) => left_out.push(file),
            FromGuest::Collected(end) => return Collection { files, left_out, end },
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a script and collects what these globs match.
fn run_and_collect(guest: &Guest, script: &str, order: CollectOrder) -> Collection {
    let told = guest.run(collecting(shell(script)), &[]);
    assert_eq!(told.exit().how, Ended::Code(0), "{}", told.err());
    let collection = collect(guest, order);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
    collection
}

#[test]
fn what_the_globs_name_leaves_in_the_order_of_names_and_byte_for_byte() {
    let guest = guest!();
    let script = "mkdir -p out/deep/er other; printf b >out/b.txt; printf a >out/a.txt; printf '\\000\\377' >out/deep/er/c.bin
        : >out/empty; printf x >other/x.txt; printf m >main.log; printf h >out/.hidden";
    let collection = run_and_collect(&guest, script, order(&["out/**", "*.log"]));
    assert_eq!(
        collection.files,
        [
            ("main.log", &b"m"[..]),
            ("out/.hidden", b"h"),
            ("out/a.txt", b"a"),
            ("out/b.txt", b"b"),
            ("out/deep/er/c.bin", b"\0\xff"),
            ("out/empty", b""),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
    );
    assert_eq!(collection.why(), []);
    let whole = Collected {
        entries: 11,
        not_named: 0,
        incomplete: false,
    };
    assert_eq!(collection.end, whole);
}

#[test]
fn a_file_larger_than_every_window_comes_whole_after_any_end_of_its_job() {
    let guest = guest!();
    let program = "import os\nopen('large', 'wb').write(bytes(range(256)) * 3000)\nos.kill(os.getpid(), 9)";
    let told = guest.run(collecting(python(program)), &[]);
    assert_eq!(told.exit().how, Ended::Signal(9));
    let collection = collect(&guest, order(&["large"]));
    let expected: Vec<u8> = (0..=255).collect();
    assert_eq!(collection.files[0].1, expected.repeat(3000));
}

#[test]
fn what_is_no_file_stays_and_is_named() {
    let guest = guest!();
    let script = "mkdir real out; printf s >real/secret; ln -s real/secret link; ln -s /proc/self/mem proc; ln -s loop loop
        ln -s ../real out/folder; ln -s /etc/passwd out/passwd; mkfifo pipe; printf f >file; ln file hard
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'";
    let collection = run_and_collect(&guest, script, order(&["*", "out/**"]));
    assert_eq!(collection.names(), ["file", "hard"]);
    let expected = [
        ("link", LeftOutWhy::Link),
        ("loop", LeftOutWhy::Link),
        ("out/folder", LeftOutWhy::Link),
        ("out/passwd", LeftOutWhy::Link),
        ("pipe", LeftOutWhy::Pipe),
        ("proc", LeftOutWhy::Link),
        ("socket", LeftOutWhy::Socket),
    ];
    assert_eq!(
        collection.why(),
        expected.map(|(name, why)| (name.to_owned(), why))
    );
}

#[test]
fn what_the_job_itself_may_not_read_stays() {
    let guest = guest!();
    let script = "printf a >closed; chmod 000 closed; mkdir folder; printf b >folder/b; chmod 000 folder
        mkdir listed; printf c >listed/c; chmod 400 listed; printf d >open; chmod 4777 open";
    let collection = run_and_collect(&guest, script, order(&["**"]));
    assert_eq!(collection.names(), ["open"]);
    let left_out: Vec<_> = collection
        .left_out
        .iter()
        .map(|file| (shown(file.name.as_bytes()), file.why, file.errno))
        .collect();
    let denied = |name: &str| (name.to_owned(), LeftOutWhy::Unreadable, Some(13));
    assert_eq!(left_out, [denied("closed"), denied("folder"), denied("listed/c")]);
}

#[test]
fn bounds_hold_and_say_which_files_they_left_out() {
    let guest = guest!();
    let script = "for n in 1 2 3 4 5; do printf 1234567890 >f$n; done; printf 12345678901 >g";
    let bounds = CollectOrder {
        max_files: 3,
        max_file_bytes: 10,
        max_bytes: 25,
        max_named: 3,
        ..order(&["*"])
    };
    let collection = run_and_collect(&guest, script, bounds);
    assert_eq!(collection.names(), ["f1", "f2"]);
    let why: Vec<_> = collection.why().into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, [LeftOutWhy::TooManyBytes; 3]);
    assert_eq!(collection.left_out[0].size, Some(10));
    assert_eq!(collection.end.not_named, 1);

    let guest = guest!();
    let bounds = CollectOrder {
        max_files: 1,
        max_file_bytes: 10,
        ..order(&["*"])
    };
    let collection = run_and_collect(&guest, "printf 1 >a; printf 2 >b; printf 12345678901 >c", bounds);
    assert_eq!(collection.names(), ["a"]);
    let expected = [("b", LeftOutWhy::TooManyFiles), ("c", LeftOutWhy::TooLarge)];
    assert_eq!(
        collection.why(),
        expected.map(|(name, why)| (name.to_owned(), why))
    );
}

#[test]
fn no_more_names_are_looked_at_than_may_be() {
    let guest = guest!(Options {
        work_options: "size=64m,nr_inodes=20k",
        ..Options::plain()
    });
    let program = "for n in range(15000): open(f'{n:05}', 'w').close()";
    let told = guest.run(collecting(python(program)), &[]);
    assert_eq!(told.exit().how, Ended::Code(0), "{}", told.err());
    let collection = collect(&guest, order(&["none"]));
    let expected = Collected {
        entries: 10_000,
        not_named: 0,
        incomplete: true,
    };
    assert_eq!(collection.end, expected);
}

#[test]
fn names_of_any_bytes_and_any_length_do_no_harm() {
    let guest = guest!(Options {
        work_options: "size=8m,nr_inodes=2k",
        ..Options::plain()
    });
    let program = "import os
for name in [b'\\xff\\xfe', b'a\\nb', b'-rf', b'\\x1b[2J', '\\u202e.png'.encode(), b'x' * 255, b' ', b'...']:
    open(name, 'w').close()
for n in range(300):
    os.mkdir('d'); os.chdir('d'); open('f', 'w').close()
os.chdir('/mnt'); os.mkdir('long'); os.chdir('long')
for n in range(5):
    os.mkdir('y' * 250); os.chdir('y' * 250); open('f', 'w').close()";
    let told = guest.run(collecting(python(program)), &[]);
    assert_eq!(told.exit().how, Ended::Code(0), "{}", told.err());
    let collection = collect(&guest, order(&["**"]));
    let names = collection.names();
    for name in [r"\xff\xfe", r"a\nb", "-rf", r"\x1b[2J", " ", "..."] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let deep = names.iter().filter(|name| name.starts_with("d/")).count();
    let long = names.iter().filter(|name| name.starts_with("long/")).count();
    assert_eq!((deep, long), (63, 4));
    let why: Vec<_> = collection.left_out.iter().map(|file| file.why).collect();
    assert_eq!(why, [LeftOutWhy::TooDeep, LeftOutWhy::NameTooLong]);
    assert!(
        collection
            .left_out
            .iter()
            .all(|file| file.name.as_bytes().len() <= MAX_PATH_BYTES)
    );
}

#[test]
fn a_guest_waits_for_the_word_and_a_kill_ends_it() {
    let guest = guest!();
    let told = guest.run(collecting(shell("printf a >a")), &[]);
    assert_eq!(told.exit().how, Ended::Code(0));
    assert!(guest.is_silent());
    guest.send(&ToGuest::Kill);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));

    // Without credit nothing is sent, and the guest still hears.
    let guest = guest!();
    guest.run(collecting(shell("printf a >a")), &[]);
    guest.send(&ToGuest::Collect(order(&["*"])));
    assert!(matches!(guest.next(), FromGuest::Artifact(_)));
    assert!(guest.is_silent());
    guest.send(&ToGuest::Kill);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));

    // An executor that is gone is gone then as well.
    let guest = guest!();
    guest.run(collecting(shell("true")), &[]);
    guest.hang_up();
    assert_eq!(guest.exit_code(), code(GuestExit::StdinClosed));
}

#[test]
fn credit_that_comes_after_the_last_word_means_nothing() {
    let guest = guest!();
    let program = "open('large', 'wb').write(b'x' * 200000)";
    guest.run(collecting(python(program)), &[]);
    guest.send(&ToGuest::Collect(order(&["*"])));
    guest.grant(StreamId::ARTIFACTS, 256 * 1024);
    assert!(matches!(guest.next(), FromGuest::Artifact(_)));
    assert!(matches!(guest.next(), FromGuest::ArtifactData(_)));
    // With that credit all of it is said in one turn, and waits to be read.
    guest.grant(StreamId::ARTIFACTS, 1);
    while !matches!(guest.next(), FromGuest::Collected(_)) {}
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}

#[test]
fn a_job_without_files_to_collect_is_over_with_its_end() {
    let guest = guest!();
    guest.run(shell("true"), &[]);
    assert_eq!(guest.exit_code(), code(GuestExit::Done));
}
