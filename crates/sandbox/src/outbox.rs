//! What is still to be sent to the guest, in the order in which it may go.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use mayfly_core::{job::ResolvedJob, limits::Limits};
use mayfly_protocol::{
    FileHeader, GuestSession, Job, MAX_DATA, MAX_PAYLOAD, SessionState, StreamId, ToGuest, VERSION,
};

use crate::{
    baseline::WORK,
    fetched::{FetchError, Incoming},
    run::Start,
};

/// Credit of each output stream: what may be on its way while nobody takes it in.
pub(crate) const WINDOW: u32 = 256 * 1024;
/// Used credit is given back in portions of this, so that not each frame is answered by one.
const GRANT: u32 = WINDOW / 4;
/// The guest's own deadline lies this far behind the executor's, which is the authority.
const SECOND_LINE_MS: u64 = 1000;

/// The rest of what a guest is to be sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    job: Arc<ResolvedJob>,
    pub(crate) start: Start,
    stage: Stage,
    /// Where the content of files comes from that the job fetches.
    fetched: Option<Incoming>,
    /// What has come of it and is not sent yet.
    piece: Bytes,
    /// Goes before everything else.
    urgent: VecDeque<ToGuest>,
    owed_stdout: u32,
    owed_stderr: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Job,
    File { index: usize },
    Data { index: usize, sent: usize },
    Fetched { index: usize },
    FetchedData { index: usize, left: u64 },
    Credit(StreamId),
    Start,
    Stdin { sent: usize },
    Done,
}

impl Outbox {
    pub(crate) fn new(job: Arc<ResolvedJob>, start: Start, fetched: Option<Incoming>) -> Self {
        Self {
            job,
            start,
            stage: Stage::Job,
            fetched,
            piece: Bytes::new(),
            urgent: VecDeque::new(),
            owed_stdout: 0,
            owed_stderr: 0,
        }
    }

    /// From now on nothing but the end is asked for.
    pub(crate) fn kill(&mut self) {
        self.stage = Stage::Done;
        self.urgent.push_front(ToGuest::Kill);
    }

    /// Notes output that was taken in, whose credit is to be given back.
    pub(crate) fn owe(&mut self, stream: StreamId, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let owed = if stream == StreamId::STDOUT {
            &mut self.owed_stdout
        } else {
            &mut self.owed_stderr
        };
        *owed = owed.saturating_add(bytes);
    }

    /// Whether enough credit was used up that some should be given back.
    pub(crate) fn owes(&self) -> bool {
        self.owed_stdout.max(self.owed_stderr) >= GRANT
    }

    /// Gives back what is owed.
    pub(crate) fn grant(&mut self) {
        for (stream, owed) in [
            (StreamId::STDOUT, &mut self.owed_stdout),
            (StreamId::STDERR, &mut self.owed_stderr),
        ] {
            if *owed >= GRANT {
                let bytes = std::mem::take(owed);
                self.urgent.push_back(ToGuest::Credit { stream, bytes });
            }
        }
    }

    /// Whether nothing can be sent before a piece of a file has come.
    pub(crate) fn awaits_piece(&self) -> bool {
        matches!(self.stage, Stage::FetchedData { left: 1.., .. }) && self.piece.is_empty()
    }

    /// Takes the next piece in, where one is awaited.
    ///
    /// # Errors
    /// There is none, or more than the file has.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn fetch(&mut self) -> Result<(), FetchError> {
        let nobody = || FetchError("nobody fetches the job's files".to_owned());
        let piece = self.fetched.as_mut().ok_or_else(nobody)?.next().await?;
        let fits = match self.stage {
            Stage::FetchedData { left, .. } => piece.len() as u64 <= left,
            _ => false,
        };
        if piece.is_empty() || !fits {
            return Err(FetchError(
                "a piece of a file is not as long as it should be".to_owned(),
            ));
        }
        self.piece = piece;
        Ok(())
    }

    /// Whether [`Outbox::next`] has something now.
    pub(crate) fn has_next(&self, session: &GuestSession) -> bool {
        !self.urgent.is_empty()
            || match self.stage {
                Stage::Done => false,
                Stage::FetchedData { .. } => !self.awaits_piece(),
                Stage::Stdin { sent } => self.stdin().len() == sent || session.stdin_credit() > 0,
                Stage::Job
                | Stage::File { .. }
                | Stage::Data { .. }
                | Stage::Fetched { .. }
                | Stage::Credit(_)
                | Stage::Start => true,
            }
    }

    /// The next frame that may be sent.
    pub(crate) fn next(&mut self, session: &GuestSession) -> Option<ToGuest> {
        if matches!(session.state(), SessionState::Ended | SessionState::Exited) {
            return None;
        }
        if let Some(frame) = self.urgent.pop_front() {
            return Some(frame);
        }
        let (frame, stage) = match self.stage {
            Stage::Job => (ToGuest::Job(self.job_frame()), self.file(0)),
            Stage::File { index } => {
                let file = &self.job.files[index];
                let header = FileHeader {
                    path: file.path.clone(),
                    mode: file.file_mode().bits(),
                    size: file.content.as_bytes().len() as u64,
                };
                (ToGuest::File(header), Stage::Data { index, sent: 0 })
            }
            Stage::Data { index, sent } => {
                let rest = &self.job.files[index].content.as_bytes()[sent..];
                match &rest[..rest.len().min(MAX_PAYLOAD)] {
                    [] => (ToGuest::FileEnd, self.file(index + 1)),
                    data => (
                        ToGuest::FileData(data.to_vec()),
                        Stage::Data {
                            index,
                            sent: sent + data.len(),
                        },
                    ),
                }
            }
            Stage::Fetched { index } => {
                let file = &self.job.fetched[index];
                let header = FileHeader {
                    path: file.path.clone(),
                    mode: file.mode.bits(),
                    size: file.bytes,
                };
                let left = file.bytes;
                (ToGuest::File(header), Stage::FetchedData { index, left })
            }
            Stage::FetchedData { index, left: 0 } => (ToGuest::FileEnd, self.fetched_file(index + 1)),
            Stage::FetchedData { index, left } => {
                if self.piece.is_empty() {
                    return None;
                }
                let data = self.piece.split_to(self.piece.len().min(MAX_PAYLOAD));
                let left = left.saturating_sub(data.len() as u64);
                (
                    ToGuest::FileData(data.to_vec()),
                    Stage::FetchedData { index, left },
                )
            }
            Stage::Credit(stream) => {
                let credit = ToGuest::Credit {
                    stream,
                    bytes: WINDOW,
                };
                let next = if stream == StreamId::STDOUT {
                    Stage::Credit(StreamId::STDERR)
                } else {
                    Stage::Start
                };
                (credit, next)
            }
            Stage::Start => {
                let next = if self.job.stdin.is_some() {
                    Stage::Stdin { sent: 0 }
                } else {
                    Stage::Done
                };
                (ToGuest::Start, next)
            }
            Stage::Stdin { sent } => {
                let rest = &self.stdin()[sent..];
                let credit = usize::try_from(session.stdin_credit()).unwrap_or(0);
                match &rest[..rest.len().min(MAX_DATA).min(credit)] {
                    [] if rest.is_empty() => (ToGuest::StdinClose, Stage::Done),
                    [] => return None,
                    data => (
                        ToGuest::Stdin(data.to_vec()),
                        Stage::Stdin {
                            sent: sent + data.len(),
                        },
                    ),
                }
            }
            Stage::Done => return None,
        };
        self.stage = stage;
        Some(frame)
    }

    fn file(&self, index: usize) -> Stage {
        if index < self.job.files.len() {
            Stage::File { index }
        } else {
            self.fetched_file(0)
        }
    }

    fn fetched_file(&self, index: usize) -> Stage {
        if index < self.job.fetched.len() {
            Stage::Fetched { index }
        } else {
            Stage::Credit(StreamId::STDOUT)
        }
    }

    fn stdin(&self) -> &[u8] {
        self.job.stdin.as_ref().map_or(&[], |stdin| stdin.as_bytes())
    }

    fn job_frame(&self) -> Job {
        Job {
            version: VERSION,
            argv: self.job.argv.clone(),
            env: self.start.environment.clone(),
            cwd: WORK.to_owned(),
            deadline_ms: guest_deadline_ms(&self.job.limits),
            // The container's own are the job's.
            rlimits: Vec::new(),
            files: u32::try_from(self.job.files.len() + self.job.fetched.len()).unwrap_or(u32::MAX),
            stdin: self.job.stdin.is_some(),
            warm: self.start.warm,
            collects: self.start.collects,
            egress: self.start.egress,
        }
    }
}

fn guest_deadline_ms(limits: &Limits) -> u64 {
    limits.wall.as_millis().saturating_add(SECOND_LINE_MS)
}
