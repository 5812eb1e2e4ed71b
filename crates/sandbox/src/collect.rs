//! Files that leave a sandbox when its job is over: asked for, looked through for secrets, hashed, and handed on piece by
//! piece. No file is ever held as a whole, and no name of a job's is ever a name on the host.

use std::time::Duration;

use async_trait::async_trait;
use mayfly_core::{
    artifact::{Artifact, Artifacts, KeepAfter, LeftOut, LeftOutWhy},
    digest::Digest,
    job::Blob,
    outcome::KilledFor,
};
use mayfly_protocol::{
    ArtifactHeader, CollectOrder, Collected, Ended, Exit, FileName, FromGuest, LeftOutWhy as GuestWhy,
    SessionState, StreamId, ToGuest,
};
use mayfly_redact::{Matcher, Redactor};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    channel::{Channel, ChannelError},
    outbox::WINDOW,
    redaction::redacted,
    run::stopped,
};

/// Used credit is given back in portions of this.
const GRANT: u32 = WINDOW / 4;

/// The name under which a job's own secrets are counted.
const OWN_SECRET: &str = "secret";

/// What is to be collected of a job, and who takes it.
pub struct Collect {
    /// A file is wanted when any of these matches its name below `/work`; `*` stays in one folder, `**` does not.
    pub globs: Vec<String>,
    /// After which ends.
    pub after: KeepAfter,
    /// How much at most.
    pub bounds: CollectBounds,
    /// Takes the files.
    pub sink: Box<dyn ArtifactSink>,
}

/// Bounds of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectBounds {
    /// Files, at most [`mayfly_protocol::MAX_ARTIFACTS`].
    pub files: u32,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries of folders that are looked at.
    pub entries: u32,
    /// Files that are named as left out, at most [`mayfly_protocol::MAX_ARTIFACTS`].
    pub named: u32,
    /// Time for all of it, the sink's included.
    pub time: Duration,
}

/// Takes files one after the other. What it is given is clean: what is taken out of output is taken out of texts too.
#[async_trait]
pub trait ArtifactSink: Send {
    /// A file begins; under which number it is taken.
    async fn begin(&mut self) -> Result<u32, SinkError>;

    /// Its next bytes.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError>;

    /// It is whole, and is this.
    async fn keep(&mut self, file: &Artifact) -> Result<(), SinkError>;

    /// What came of it since it began is nothing.
    async fn drop_it(&mut self);
}

/// A sink can take no more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// Collects a job's files, where its end is one after which that is wanted. The guest ends with it, or is told to.
pub(crate) async fn collect(
    channel: &mut Channel,
    collect: Collect,
    exit: &Exit,
    mut stop: watch::Receiver<Option<KilledFor>>,
    matcher: &Matcher,
    grace: Duration,
) -> Option<Artifacts> {
    let is_wanted = collect.after == KeepAfter::AnyEnd || exit.how == Ended::Code(0);
    let mut collection = None;
    // Whatever the run was stopped for, nobody waits for its files.
    if is_wanted && stop.borrow().is_none() && channel.session().state() == SessionState::Exited {
        let deadline = Instant::now() + collect.bounds.time;
        let collection = collection.insert(Artifacts::default());
        let ended = tokio::select! {
            ended = take_all(channel, collect, matcher, collection) => ended,
            _ = stopped(&mut stop) => Err(Trouble::Stopped),
            () = sleep_until(deadline) => Err(Trouble::Late),
        };
        collection.incomplete = match ended {
            Ok(Collected {
                incomplete: false, ..
            }) => None,
            Ok(_) => Some("there is more than is looked at, or than the job's user may look at".to_owned()),
            Err(trouble) => Some(trouble.to_string()),
        };
    }
    dismiss(channel, grace).await;
    collection
}

/// Ends a guest that may still be asked for files, and waits until it has: one that loses its executor says so by its exit
/// code, which would contradict what it said of the job.
async fn dismiss(channel: &mut Channel, grace: Duration) {
    let ending = async {
        if channel.session().state() != SessionState::Ended && send(channel, &ToGuest::Kill).await.is_err() {
            return;
        }
        // What it had sent before it heard of that means nothing any more.
        while channel.receive().await.is_ok() {}
    };
    timeout(grace, ending).await.ok();
}

/// Why a collection ended before its end.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the sandbox ended first: {0}")]
    Channel(#[from] ChannelError),
    #[error("they could not be kept: {0}")]
    Sink(#[from] SinkError),
    #[error("the run was stopped")]
    Stopped,
    #[error("the time for it was over")]
    Late,
}

async fn take_all(
    channel: &mut Channel,
    collect: Collect,
    matcher: &Matcher,
    collection: &mut Artifacts,
) -> Result<Collected, Trouble> {
    let Collect {
        globs,
        bounds,
        mut sink,
        ..
    } = collect;
    let order = CollectOrder {
        globs,
        max_files: bounds.files,
        max_file_bytes: bounds.file_bytes,
        max_bytes: bounds.bytes,
        max_entries: bounds.entries,
        max_named: bounds.named,
    };
    send(channel, &ToGuest::Collect(order)).await?;
    let mut owed = WINDOW;
    let mut content: Option<Content> = None;
    loop {
        if owed >= GRANT {
            let stream = StreamId::ARTIFACTS;
            let bytes = std::mem::take(&mut owed);
            send(channel, &ToGuest::Credit { stream, bytes }).await?;
        }
        match channel.receive().await? {
            FromGuest::Artifact(header) => {
                let number = sink.begin().await?;
                content = Some(Content::new(header, number, matcher));
            }
            FromGuest::ArtifactData(data) => {
                if let Some(content) = &mut content {
                    sink.write(content.take(&data)).await?;
                }
                owed = owed.saturating_add(u32::try_from(data.len()).unwrap_or(u32::MAX));
            }
            FromGuest::ArtifactEnd(end) => {
                let Some(content) = content.take() else { continue };
                let (rest, ended) = content.finish(matcher, end.errno.is_none());
                match ended {
                    Ok(file) => {
                        sink.write(&rest).await?;
                        sink.keep(&file).await?;
                        collection.files.push(file);
                    }
                    Err(left_out) => {
                        sink.drop_it().await;
                        collection.left_out.push(left_out);
                    }
                }
            }
            FromGuest::LeftOut(left_out) => collection.left_out.push(LeftOut {
                name: clean_name(matcher, &left_out.name),
                why: why(left_out.why),
                bytes: left_out.size,
            }),
            FromGuest::Collected(end) => {
                collection.not_named = end.not_named;
                return Ok(end);
            }
            // The session refuses everything else here.
            _ => {}
        }
    }
}

async fn send(channel: &mut Channel, frame: &ToGuest) -> Result<(), ChannelError> {
    channel.writer().writable().await;
    channel.send(frame)
}

fn clean_name(matcher: &Matcher, name: &FileName) -> Blob {
    matcher.redact(name.as_bytes()).0.into()
}

const fn why(word: GuestWhy) -> LeftOutWhy {
    match word {
        GuestWhy::Link => LeftOutWhy::Link,
        GuestWhy::Pipe => LeftOutWhy::Pipe,
        GuestWhy::Socket => LeftOutWhy::Socket,
        GuestWhy::Device => LeftOutWhy::Device,
        GuestWhy::Unreadable => LeftOutWhy::Unreadable,
        GuestWhy::TooLarge => LeftOutWhy::TooLarge,
        GuestWhy::TooManyFiles => LeftOutWhy::TooManyFiles,
        GuestWhy::TooManyBytes => LeftOutWhy::TooManyBytes,
        GuestWhy::NameTooLong => LeftOutWhy::NameTooLong,
        GuestWhy::TooDeep => LeftOutWhy::TooDeep,
    }
}

/// A file on its way.
struct Content {
    header: ArtifactHeader,
    number: u32,
    hash: Sha256,
    bytes: u64,
    redactor: Redactor,
    clean: Vec<u8>,
    /// Decided by the first piece.
    is_text: Option<bool>,
}

impl Content {
    fn new(header: ArtifactHeader, number: u32, matcher: &Matcher) -> Self {
        Self {
            header,
            number,
            hash: Sha256::new(),
            bytes: 0,
            redactor: Redactor::new(matcher),
            clean: Vec::new(),
            is_text: None,
        }
    }

    /// Takes the next piece, and returns what is to be handed on.
    fn take<'a>(&'a mut self, piece: &'a [u8]) -> &'a [u8] {
        let is_text = *self.is_text.get_or_insert_with(|| looks_like_text(piece));
        self.clean.clear();
        self.redactor.push(piece, &mut self.clean);
        // A picture with a mark in it is no picture.
        let given = if is_text { &self.clean } else { piece };
        self.hash.update(given);
        self.bytes += given.len() as u64;
        given
    }

    /// What is left to be handed on, and what the file is; or why it is none.
    fn finish(mut self, matcher: &Matcher, whole: bool) -> (Vec<u8>, Result<Artifact, LeftOut>) {
        self.clean.clear();
        let counts = self.redactor.finish(&mut self.clean);
        let is_text = self.is_text.unwrap_or(true);
        let name = clean_name(matcher, &self.header.name);
        let left_out = |why| LeftOut {
            name: name.clone(),
            why,
            bytes: Some(self.header.size),
        };
        if !whole {
            return (Vec::new(), Err(left_out(LeftOutWhy::Unreadable)));
        }
        if !is_text && counts.iter().any(|(rule, _)| rule == OWN_SECRET) {
            return (Vec::new(), Err(left_out(LeftOutWhy::HoldsSecret)));
        }
        let rest = if is_text { self.clean } else { Vec::new() };
        self.hash.update(&rest);
        let file = Artifact {
            name,
            bytes: self.bytes + rest.len() as u64,
            digest: Digest::from_bytes(self.hash.finalize().into()),
            redacted: redacted(&counts),
            is_text,
            number: self.number,
        };
        (rest, Ok(file))
    }
}

/// Whether a file that begins like this is a text: UTF-8, but for a character that the piece cuts, without a NUL.
fn looks_like_text(piece: &[u8]) -> bool {
    let whole = match std::str::from_utf8(piece) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    whole && !piece.contains(&0)
}
