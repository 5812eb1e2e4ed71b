//! A job's own secret, and what looks like a token, however they are written: they are taken out where output comes in.

use std::sync::{Arc, Mutex};

use mayfly_core::{
    digest::Digest,
    job::{InputFile, ResolvedJob, SecretText},
    outcome::{CapturedStream, Cause, EndState, KilledFor},
    policy::RuleSet,
    run::RunReport,
    units::Span,
};
use mayfly_sandbox::seam::{LiveOutput, OutputStream};
use tokio::sync::watch;

use crate::support::{Bench, blob, limits, text};

const SECRET: &str = "correct/horse \"battery\" staple";

/// The secret as itself, in base64 with something around it, in a URL, in JSON and in hex, by tools that are not ours.
const FORMS: [&str; 5] = [
    SECRET,
    "dXNlcjpjb3JyZWN0L2hvcnNlICJiYXR0ZXJ5IiBzdGFwbGU=",
    "correct%2Fhorse%20%22battery%22%20staple",
    r#"correct/horse \"battery\" staple"#,
    "636f72726563742f686f7273652022626174746572792220737461706c65",
];

/// An example of AWS's own documentation.
const TOKEN: &str = concat!("AKIA", "IOSFODNN7EXAMPLE");

/// What is left of a text of all of them. The characters of base64 that a secret shares with its neighbour stay.
const LEFT: &str = "[redacted:secret]\ndXNlcjp[redacted:secret]U=\n[redacted:secret]\n[redacted:secret]\n[redacted:secret]\n\
                    [redacted:aws_access_key_id]\n";

/// Writes a file to both streams, a byte at a time.
const BYTE_BY_BYTE: &str = "import os, sys\n\
text = open('text', 'rb').read()\n\
assert os.environ['TOKEN'].encode() in text\n\
for n in range(len(text)):\n    os.write(1, text[n:n + 1])\n    os.write(2, text[n:n + 1])\n";

macro_rules! bench {
    () => {
        match Bench::set_up().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

/// Everything that a listener heard, and a signal once it is this much.
struct Heard {
    streams: [Mutex<Vec<u8>>; 2],
    enough: usize,
    stop: watch::Sender<Option<KilledFor>>,
}

impl Heard {
    fn new(enough: usize) -> (Arc<Self>, watch::Receiver<Option<KilledFor>>) {
        let (stop, stopped) = watch::channel(None);
        let streams = Default::default();
        (
            Arc::new(Self {
                streams,
                enough,
                stop,
            }),
            stopped,
        )
    }

    fn text(&self, stream: OutputStream) -> String {
        let bytes = self.streams[stream as usize].lock().unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    }
}

#[async_trait::async_trait]
impl LiveOutput for Heard {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        let mut heard = self.streams[stream as usize].lock().unwrap();
        heard.extend_from_slice(bytes);
        if heard.len() >= self.enough {
            self.stop.send_replace(Some(KilledFor::Cancel));
        }
    }

    async fn ready(&self) {}
}

/// A job with the secret, and with this text in a file.
fn job(bench: &Bench, program: &str, text: &str) -> ResolvedJob {
    let mut job = bench.python(program);
    job.secrets
        .insert("TOKEN".to_owned(), SecretText::from(SECRET.to_owned()));
    job.files.push(InputFile {
        path: "text".to_owned(),
        content: blob(text.as_bytes()),
        executable: false,
        mode: None,
    });
    job
}

fn end(report: &RunReport) -> (EndState, Cause) {
    (report.outcome.state, report.outcome.cause)
}

fn count(stream: &CapturedStream, rule: &str) -> Option<u64> {
    let redacted = stream.redacted.as_ref().expect("somebody looked");
    redacted.counts.get(rule).copied()
}

/// No part of the report and nothing that was heard has it.
fn is_nowhere(report: &RunReport, heard: &Heard) {
    let record = format!("{report:?} {} {}", text(&report.stdout), text(&report.stderr));
    let live = [OutputStream::Stdout, OutputStream::Stderr].map(|stream| heard.text(stream));
    for part in [SECRET, "horse", "battery", TOKEN, FORMS[4]] {
        assert!(!record.contains(part), "{part}: {record}");
        assert!(!live.concat().contains(part), "{part}: {live:?}");
    }
}

#[tokio::test]
async fn a_secret_is_in_no_form_of_the_output_however_it_is_written() {
    let bench = bench!();
    let written = format!("{}\n{TOKEN}\n", FORMS.join("\n"));
    let job = job(&bench, BYTE_BY_BYTE, &written);
    let (heard, stop) = Heard::new(usize::MAX);
    let report = bench.run_with(job, heard.clone(), stop).await;
    assert_eq!(
        end(&report),
        (EndState::Succeeded, Cause::Exited),
        "{}",
        text(&report.stderr)
    );
    for (stream, live) in [
        (&report.stdout, OutputStream::Stdout),
        (&report.stderr, OutputStream::Stderr),
    ] {
        assert_eq!(text(stream), LEFT);
        assert_eq!(heard.text(live), LEFT);
        assert_eq!(count(stream, "secret"), Some(5));
        assert_eq!(count(stream, "aws_access_key_id"), Some(1));
        assert_eq!(stream.count.bytes, written.len() as u64);
        assert_eq!(stream.count.digest, Digest::of(written.as_bytes()));
        assert_eq!(stream.shown_bytes(), LEFT.len() as u64);
    }
    is_nowhere(&report, &heard);
}

/// Writes a part of the secret, and waits for the end.
const HALF: &str = "import os, time\n\
os.write(1, b'it is ' + open('text', 'rb').read()[:12])\n\
while True: time.sleep(1)\n";

/// What is left of it in the record and to a listener.
fn is_left_of_both(report: &RunReport, heard: &Heard) {
    let left = "it is [redacted:secret]";
    assert_eq!(text(&report.stdout), left);
    assert_eq!(heard.text(OutputStream::Stdout), left);
    is_nowhere(report, heard);
}

#[tokio::test]
async fn what_a_deadline_or_a_cancel_cuts_is_taken_out_too() {
    let bench = bench!();
    let mut timed = job(&bench, HALF, SECRET);
    timed.limits = limits(|limits| limits.wall = Span::seconds(2));
    let (heard, stop) = Heard::new(usize::MAX);
    let report = bench.run_with(timed, heard.clone(), stop).await;
    assert_eq!(
        end(&report),
        (EndState::TimedOut, Cause::WallClock),
        "{report:#?}"
    );
    is_left_of_both(&report, &heard);
    // It is asked to end as soon as all is heard that may be.
    let (heard, stop) = Heard::new("it is ".len());
    let report = bench
        .run_with(job(&bench, HALF, SECRET), heard.clone(), stop)
        .await;
    assert_eq!(
        end(&report),
        (EndState::Canceled, Cause::CanceledByRequest),
        "{report:#?}"
    );
    is_left_of_both(&report, &heard);
}

#[tokio::test]
async fn what_the_kernel_cuts_is_taken_out_too() {
    let bench = bench!();
    let killed = HALF.replace("while True: time.sleep(1)", "os.kill(os.getpid(), 9)");
    let eats = HALF.replace(
        "while True: time.sleep(1)",
        "all = []\nwhile True: all.append(b'x' * 2**20)",
    );
    for (program, expected) in [
        (killed, (EndState::Failed, Cause::Signaled)),
        (eats, (EndState::OutOfMemory, Cause::MemoryLimit)),
    ] {
        let (heard, stop) = Heard::new(usize::MAX);
        let report = bench
            .run_with(job(&bench, &program, SECRET), heard.clone(), stop)
            .await;
        assert_eq!(end(&report), expected, "{report:#?}");
        is_left_of_both(&report, &heard);
    }
}

#[tokio::test]
async fn the_name_of_a_program_that_is_not_there_is_shown_without_the_secret() {
    let bench = bench!();
    let mut job = job(&bench, "", SECRET);
    job.argv = vec![format!("/nowhere/{SECRET}")];
    let (heard, stop) = Heard::new(usize::MAX);
    let report = bench.run_with(job, heard.clone(), stop).await;
    assert_eq!(
        end(&report),
        (EndState::Failed, Cause::CommandNotStarted),
        "{report:#?}"
    );
    let subject = report
        .outcome
        .evidence
        .refused
        .as_ref()
        .unwrap()
        .subject
        .as_deref();
    assert_eq!(subject, Some("/nowhere/[redacted:secret]"));
    is_nowhere(&report, &heard);
}

/// The rules are a policy's, the job's own secrets are not.
#[tokio::test]
async fn a_policy_without_rules_leaves_tokens_and_takes_secrets() {
    let bench = bench!();
    let mut job = job(&bench, BYTE_BY_BYTE, &format!("{SECRET} {TOKEN}"));
    job.redaction.rules = RuleSet::None;
    let report = bench.run(job).await;
    assert_eq!(text(&report.stdout), format!("[redacted:secret] {TOKEN}"));
    assert_eq!(count(&report.stdout, "aws_access_key_id"), None);
}
