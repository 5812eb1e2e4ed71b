//! What comes of what a job writes, however it writes it.

use mayfly_core::{
    digest::Digest,
    outcome::{CapturedStream, Cause, EndState},
    policy::OnOutputLimit,
    run::RunReport,
    units::ByteSize,
};

use crate::support::{Bench, limits, text};

fn end(report: &RunReport) -> (EndState, Cause) {
    (report.outcome.state, report.outcome.cause)
}

macro_rules! bench {
    () => {
        match Bench::set_up().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

/// Whether a stream is these bytes, all of them, by content, count and digest.
fn is_whole(stream: &CapturedStream, bytes: &[u8]) -> bool {
    let count = &stream.count;
    stream.head == bytes
        && (count.bytes, count.digest, count.truncated) == (bytes.len() as u64, Digest::of(bytes), false)
}

#[tokio::test]
async fn a_policy_can_kill_on_too_much_of_either_output() {
    let bench = bench!();
    for (descriptor, other) in [(1, 2), (2, 1)] {
        let mut job = bench.python(&format!(
            "import os\nos.write({other}, b'kept')\nwhile True: os.write({descriptor}, b'x' * 1000)"
        ));
        job.limits = limits(|limits| {
            let (few, many) = (ByteSize::kib(4), ByteSize::mib(1));
            (limits.stdout, limits.stderr) = if descriptor == 1 { (few, many) } else { (many, few) };
        });
        job.on_output_limit = OnOutputLimit::Kill;
        let report = bench.run(job).await;
        assert_eq!(
            end(&report),
            (EndState::LimitExceeded, Cause::OutputLimit),
            "{descriptor}: {report:#?}"
        );
        let (over, within) = match descriptor {
            1 => (&report.stdout, &report.stderr),
            _ => (&report.stderr, &report.stdout),
        };
        assert!(
            over.count.truncated && over.count.bytes > 4096,
            "{descriptor}: {over:?}"
        );
        assert_eq!(over.head.len() + over.tail.len(), 4096, "what is kept is kept");
        assert!(is_whole(within, b"kept"), "{descriptor}: {within:?}");
    }
}

#[tokio::test]
async fn bytes_that_go_to_one_output_and_the_other_in_turn_are_all_there() {
    let bench = bench!();
    let mut job = bench.python(
        "import os\nbytes = [bytes([n]) for n in range(251)]\nfor n in range(100_000):\n    \
         os.write(1, bytes[n % 251])\n    os.write(2, bytes[n % 241])",
    );
    job.limits = limits(|limits| (limits.stdout, limits.stderr) = (ByteSize::kib(128), ByteSize::kib(128)));
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::Succeeded, Cause::Exited),
        "{:#?}",
        report.outcome
    );
    let expected = |of: u8| -> Vec<u8> { (0..of).cycle().take(100_000).collect() };
    assert!(is_whole(&report.stdout, &expected(251)));
    assert!(is_whole(&report.stderr, &expected(241)));
}

#[tokio::test]
async fn large_vectored_unblocked_and_tiny_writes_come_as_they_were_written() {
    let bench = bench!();
    let mut job = bench.python(
        "import os, select
data = bytes((n * n >> 7) & 255 for n in range(1 << 16))
def all(fd, write, rest):
    while rest:
        try: rest = rest[write(fd, rest):]
        except BlockingIOError: select.select([], [fd], [])
def vectored(fd, rest):
    return os.writev(fd, [rest[at:at + 100] for at in range(0, min(len(rest), 100_000), 100)])
for fd in (1, 2):
    all(fd, os.write, data * 32)
    all(fd, vectored, data)
    os.set_blocking(fd, False)
    all(fd, os.write, data * 32)
    os.set_blocking(fd, True)
    for byte in data[:10_000]: os.write(fd, bytes([byte]))",
    );
    job.limits = limits(|limits| (limits.stdout, limits.stderr) = (ByteSize::mib(6), ByteSize::mib(6)));
    let report = bench.run(job).await;
    assert_eq!(
        end(&report),
        (EndState::Succeeded, Cause::Exited),
        "{:#?}",
        report.outcome
    );
    let data: Vec<u8> = (0..1u64 << 16).map(|n| ((n * n) >> 7).to_le_bytes()[0]).collect();
    let expected = [&data.repeat(65), &data[..10_000]].concat();
    assert!(is_whole(&report.stdout, &expected), "{:?}", report.stdout.count);
    assert!(is_whole(&report.stderr, &expected), "{:?}", report.stderr.count);
}

#[tokio::test]
async fn a_program_that_turns_its_output_elsewhere_ends_as_it_ends() {
    let bench = bench!();
    let to_a_file = "import os\nos.dup2(os.open('/tmp/out', os.O_CREAT | os.O_WRONLY), 1)\n\
                     print('in the file', flush=True)\nos._exit(7)";
    let report = bench.run(bench.python(to_a_file)).await;
    assert_eq!(end(&report), (EndState::Failed, Cause::Exited), "{report:#?}");
    assert_eq!(report.outcome.exit_code, Some(7));
    assert!(
        is_whole(&report.stdout, b"") && is_whole(&report.stderr, b""),
        "{report:#?}"
    );

    let to_nowhere = "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nos.write(1, b'lost')";
    let report = bench.run(bench.python(to_nowhere)).await;
    assert_eq!(end(&report), (EndState::Failed, Cause::Exited), "{report:#?}");
    assert_eq!(report.outcome.exit_code, Some(1));
    assert!(is_whole(&report.stdout, b""), "{report:#?}");
    assert!(
        text(&report.stderr).contains("No space left on device"),
        "{report:#?}"
    );
}

#[tokio::test]
async fn a_write_to_a_pipe_that_nobody_reads_kills_as_anywhere() {
    let bench = bench!();
    // A shell can't take back that a signal is ignored: it would live on if we had left it so.
    let report = bench
        .run(bench.job(&["sh", "-c", "kill -PIPE $$; echo ignored"], ""))
        .await;
    assert_eq!(end(&report), (EndState::Failed, Cause::Signaled), "{report:#?}");
    assert_eq!(report.outcome.signal, Some(13));
    let report = bench
        .run(bench.job(
            &["sh", "-c", "while echo y; do :; done | head -n 1; echo ended"],
            "",
        ))
        .await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    assert_eq!(
        (text(&report.stdout).as_str(), text(&report.stderr).as_str()),
        ("y\nended\n", "")
    );
}

#[tokio::test]
async fn what_is_no_utf_8_and_what_only_looks_like_text_is_kept_byte_for_byte() {
    let bench = bench!();
    let text = "\u{feff}a\u{e9}\u{1f600}\n";
    let utf_16: Vec<u16> = text.encode_utf16().collect();
    let written = [
        // Lone surrogates, and a pair of them, as WTF-8 and CESU-8 write them.
        &b"\xed\xa0\x80.\xed\xbf\xbf.\xed\xa0\xbd\xed\xb8\x80"[..],
        // More bytes than a character needs, and above the last one.
        b"\xc0\xaf.\xe0\x80\xaf.\xf0\x80\x80\x80.\xf4\x90\x80\x80",
        // A byte order mark is text; UTF-16 with one, either way round, is none.
        text.as_bytes(),
        &utf_16
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .collect::<Vec<_>>(),
        &utf_16
            .iter()
            .flat_map(|unit| unit.to_be_bytes())
            .collect::<Vec<_>>(),
        // Only NUL, and a character that is cut by the end.
        &[0; 5000],
        b"\xf0\x9f\x98",
    ];
    let all = written.concat();
    let mut job = bench.python(
        "import os, sys\ndata = sys.stdin.buffer.read()\nfor n in range(len(data)): os.write(1, data[n:n + 1])\nos.write(2, data)",
    );
    job.stdin = Some(all.clone().into());
    let report = bench.run(job).await;
    assert_eq!(end(&report), (EndState::Succeeded, Cause::Exited), "{report:#?}");
    assert!(is_whole(&report.stdout, &all), "{:x?}", report.stdout);
    assert!(is_whole(&report.stderr, &all), "{:x?}", report.stderr);
}
