//! The recorder's decisions: what a batch of a session's events changes, and what the session is told.
//!
//! In one transaction: load what [`needs`] names, call [`process`] for each batch in the order in which they came, and
//! write the changes. Commit. Then send the replies, then ack the deliveries. A recorder that dies in between has its
//! batches delivered again, which changes nothing; one that was frozen and goes on late changes nothing either, since
//! the processed numbers are read in the transaction that it commits.

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, SessionId},
    outcome::{CapturedStream, Cause, Evidence, StreamCount, Trouble, TroubleKind},
    run::RunReport,
    self_test::SelfTest,
    state::JobState,
};

use crate::{
    ledger::{Context, Ledger},
    message::{
        AbandonReason, Answer, DenyReason, EventBatch, Heartbeat, Held, Inbound, Opened, Phase, Reply,
        SessionEvent, Stop, StopReason, Tick, VERSION, Verdict,
    },
    record::{AttemptEnd, AttemptState, Change, SessionEnd, SessionRecord, SessionState},
    rules::Rule,
    scheduler::next_of_job,
    token::ResultToken,
};

#[cfg(test)]
mod tests;

/// What a store has to load before something is processed, under a lock that lasts to the end of the transaction:
/// these sessions, the live sessions of these executors with what they hold, and whether they are cordoned, these attempts
/// and uploads, what these holders hold, the jobs of all loaded attempts, and the queue. What a session holds: every attempt
/// that it has started and that is not over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Sessions.
    pub sessions: Vec<SessionId>,
    /// Sessions of which all is needed that they hold. Most batches speak of some of it alone, which is among the attempts.
    pub holders: Vec<SessionId>,
    /// Executors whose live sessions are needed, with what they hold.
    pub executors: Vec<ExecutorId>,
    /// Attempts. There may be none of that id.
    pub attempts: Vec<AttemptId>,
    /// Of these attempts, what was left on the server of their output.
    pub uploads: Vec<AttemptId>,
    /// Of these attempts, what was left there of their files.
    pub files: Vec<AttemptId>,
    /// Every live session as well, without what it holds.
    pub all_live_sessions: bool,
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processed {
    /// To be sent to the session once the changes are committed.
    pub reply: Reply,
    /// To be written, in this order.
    pub changes: Vec<Change>,
}

/// What has to be loaded for something from the queue.
#[must_use]
pub fn needs(inbound: &Inbound) -> Needs {
    match inbound {
        Inbound::Batch(batch) => {
            let named = batch
                .heartbeat
                .iter()
                .flat_map(|beat| beat.held.iter().map(|held| held.attempt));
            let closes = batch
                .events
                .iter()
                .any(|event| matches!(event, SessionEvent::Closed));
            let opens = matches!(batch.events.first(), Some(SessionEvent::Opened(_)));
            Needs {
                sessions: vec![batch.session],
                // A heartbeat is compared with all that its session holds, and an end is the end of all of it.
                holders: Vec::from_iter((closes || batch.heartbeat.is_some()).then_some(batch.session)),
                // A session that begins ends the one before it.
                executors: Vec::from_iter(opens.then_some(batch.executor)),
                attempts: batch
                    .events
                    .iter()
                    .filter_map(SessionEvent::attempt)
                    .chain(named)
                    .collect(),
                uploads: batch.events.iter().filter_map(names_upload).collect(),
                files: batch.events.iter().filter_map(names_files).collect(),
                all_live_sessions: false,
            }
        }
        // Which leases a tick concerns depends on whether it stands behind a gap. It ends none but those that it judges.
        Inbound::Tick(Tick { judged, .. }) => Needs {
            holders: judged.iter().map(|judged| judged.session).collect(),
            all_live_sessions: true,
            ..Needs::default()
        },
    }
}

/// The attempt whose report names output that was left on the server.
fn names_upload(event: &SessionEvent) -> Option<AttemptId> {
    match event {
        SessionEvent::Finished { attempt, report } if report.uploaded.is_some() => Some(*attempt),
        _ => None,
    }
}

/// The attempt whose report names files that were left there.
fn names_files(event: &SessionEvent) -> Option<AttemptId> {
    match event {
        SessionEvent::Finished { attempt, report } => report
            .artifacts
            .as_ref()
            .is_some_and(|artifacts| !artifacts.files.is_empty())
            .then_some(*attempt),
        _ => None,
    }
}

/// A report whose output, or a file, is not where it says: trouble of ours, with all that was observed of the run.
fn without_content(report: &RunReport, what: &str) -> RunReport {
    let bare = |stream: &CapturedStream| CapturedStream {
        count: StreamCount {
            truncated: stream.count.bytes > 0,
            ..stream.count
        },
        ..stream.without_bytes()
    };
    let trouble = Trouble {
        kind: TroubleKind::Content,
        message: format!("{what} that the executor has left on the server is not there"),
    };
    let evidence = Evidence {
        trouble: Some(trouble),
        ..report.outcome.evidence.clone()
    };
    RunReport {
        outcome: evidence.judge(),
        stdout: bare(&report.stdout),
        stderr: bare(&report.stderr),
        uploaded: None,
        artifacts: None,
        egress: None,
        ..report.clone()
    }
}

/// Processes one batch. The caller has made sure that the sender is the executor that the batch names (by the broker's
/// `user_id`).
#[must_use]
pub fn process(batch: &EventBatch, ledger: &mut Ledger, context: &Context) -> Processed {
    let mut work = Work {
        batch,
        ledger,
        context,
        changes: Vec::new(),
        answers: Vec::new(),
        stops: Vec::new(),
    };
    let (processed, gap, dead) = work.all();
    let session = work.ledger.session(batch.session);
    let cordoned = session.is_some_and(|session| session.cordoned && session.reads >= 2);
    Processed {
        reply: Reply {
            v: if cordoned { 2 } else { VERSION },
            session: batch.session,
            processed,
            gap,
            answers: work.answers,
            stops: work.stops,
            dead,
            cordoned,
        },
        changes: work.changes,
    }
}

/// Takes note of a batch whose changes can't be written, whatever is tried: its events count as processed and have no
/// effect. The batch itself belongs among the dead letters.
#[must_use]
pub fn quarantine(batch: &EventBatch, ledger: &mut Ledger) -> Vec<Change> {
    let mut changes = Vec::new();
    let before = ledger.session(batch.session).map(|record| record.processed);
    if before.is_some_and(|processed| batch.first <= processed + 1 && batch.last() > processed) {
        let change = Change::EventsProcessed {
            session: batch.session,
            processed: batch.last(),
        };
        ledger.decide(change, &mut changes);
    }
    changes
}

/// Ends a session and all that it holds.
pub(crate) fn end_session(
    session: SessionId,
    end: SessionEnd,
    ledger: &mut Ledger,
    context: &Context,
    changes: &mut Vec<Change>,
) {
    let Some(executor) = ledger.session(session).map(|record| record.executor) else {
        return;
    };
    let held: Vec<AttemptId> = ledger.held_by(session).map(|attempt| attempt.attempt).collect();
    for attempt in held {
        let how = AttemptEnd::Lost {
            session,
            cause: Cause::ExecutorLost,
            ran: true,
        };
        end_attempt(attempt, how, ledger, context, changes);
    }
    ledger.decide(
        Change::SessionEnded {
            session,
            executor,
            end,
        },
        changes,
    );
}

/// Ends an attempt, and decides what becomes of its job.
pub(crate) fn end_attempt(
    attempt: AttemptId,
    how: AttemptEnd,
    ledger: &mut Ledger,
    context: &Context,
    changes: &mut Vec<Change>,
) {
    let Some(job) = ledger.attempt(attempt).and_then(|record| ledger.job(record.job)) else {
        return;
    };
    let then = next_of_job(job, attempt, &how, context);
    let job = job.job;
    ledger.decide(
        Change::AttemptEnded {
            attempt,
            job,
            how,
            then,
        },
        changes,
    );
}

/// One batch being processed.
struct Work<'a> {
    batch: &'a EventBatch,
    ledger: &'a mut Ledger,
    context: &'a Context,
    changes: Vec<Change>,
    answers: Vec<Answer>,
    stops: Vec<Stop>,
}

impl Work<'_> {
    /// What the reply says: processed up to, behind a gap, dead.
    fn all(&mut self) -> (u64, bool, bool) {
        let batch = self.batch;
        if self.ledger.session(batch.session).is_none() {
            match batch.events.first() {
                Some(SessionEvent::Opened(opened)) if batch.first == 1 => self.open(opened),
                // Its beginning is missing: it is asked to send that again.
                _ => return (0, true, false),
            }
        }
        let Some(session) = self.ledger.session(batch.session).cloned() else {
            return (0, true, false);
        };
        if session.executor != batch.executor {
            return (0, false, true);
        }
        let before = session.processed;
        let gap = batch.first > before + 1;
        if !gap {
            self.events(before);
        }
        if let Some(heartbeat) = &batch.heartbeat {
            self.heartbeat(heartbeat, before, gap);
        }
        let Some(session) = self.ledger.session(batch.session) else {
            return (0, true, false);
        };
        let dead = matches!(
            session.state,
            SessionState::Ended(SessionEnd::LeaseEnded | SessionEnd::SucceededByAnother)
        );
        (session.processed, gap, dead)
    }

    /// A session begins. One executor has one session: the one before it is over.
    fn open(&mut self, opened: &Opened) {
        let (session, executor) = (self.batch.session, self.batch.executor);
        let before: Vec<SessionId> = self
            .ledger
            .live_sessions_of(executor)
            .map(|record| record.session)
            .collect();
        for session in before {
            let end = SessionEnd::SucceededByAnother;
            end_session(session, end, self.ledger, self.context, &mut self.changes);
        }
        let record = SessionRecord {
            session,
            executor,
            state: SessionState::Live,
            processed: 0,
            lease_end: self.context.now.after(self.context.timing.lease),
            pool: opened.pool.clone(),
            slots: opened.slots,
            free_slots: opened.slots,
            reads: opened.facts.reads,
            cordoned: self.ledger.is_cordoned(executor),
        };
        let change = Change::SessionOpened {
            record,
            opened: opened.clone(),
        };
        self.ledger.decide(change, &mut self.changes);
    }

    /// Events that are not processed yet, in the order of their numbers. There is no gap before them.
    fn events(&mut self, before: u64) {
        for (number, event) in (self.batch.first..).zip(&self.batch.events) {
            if number > before || !self.context.hold(Rule::ProcessedNumbers) {
                self.event(number, event);
            }
        }
        let session = self.batch.session;
        if self.batch.last() > before {
            let change = Change::EventsProcessed {
                session,
                processed: self.batch.last(),
            };
            self.ledger.decide(change, &mut self.changes);
        }
    }

    fn event(&mut self, number: u64, event: &SessionEvent) {
        match event {
            // It began the session, as its first event. Elsewhere it says nothing.
            SessionEvent::Opened(_) => {}
            SessionEvent::Starting {
                attempt,
                publication,
                token,
            } => {
                if let Some(verdict) = self.ask(*attempt, *publication, token) {
                    self.answers.push(Answer {
                        attempt: *attempt,
                        ask: number,
                        verdict,
                    });
                }
            }
            SessionEvent::Finished { attempt, report } => self.finished(*attempt, report),
            SessionEvent::Contradicted {
                attempt,
                contradictions,
            } => self.contradicted(*attempt, contradictions),
            SessionEvent::Images { images } => self.images(images),
            SessionEvent::SelfTested(test) => self.self_tested(test),
            SessionEvent::Abandoned { attempt, why, ran } => self.abandoned(*attempt, *why, *ran),
            SessionEvent::Closed => {
                if self.is_live() {
                    let (session, end) = (self.batch.session, SessionEnd::Closed);
                    end_session(session, end, self.ledger, self.context, &mut self.changes);
                }
            }
        }
    }

    fn images(&mut self, images: &[Digest]) {
        if self.is_live() {
            let change = Change::Images {
                session: self.batch.session,
                images: images.to_vec(),
            };
            self.ledger.decide(change, &mut self.changes);
        }
    }

    fn self_tested(&mut self, test: &SelfTest) {
        if self.is_live() {
            let change = Change::SelfTested {
                session: self.batch.session,
                executor: self.batch.executor,
                test: Box::new(test.clone()),
            };
            self.ledger.decide(change, &mut self.changes);
        }
    }

    fn is_live(&self) -> bool {
        self.ledger
            .session(self.batch.session)
            .is_some_and(SessionRecord::is_live)
    }

    /// The answer to an ask; none for a session that is over, which is told that instead.
    fn ask(&mut self, attempt: AttemptId, publication: u32, token: &ResultToken) -> Option<Verdict> {
        if !self.is_live() {
            return None;
        }
        // Whoever has no right to ask doesn't learn either whether there is such an attempt.
        if !self.context.key.verify(attempt, token) {
            return Some(Verdict::Deny(DenyReason::Token));
        }
        let Some(record) = self.ledger.attempt(attempt) else {
            return Some(Verdict::Deny(DenyReason::Unknown));
        };
        let (job, session) = (record.job, self.batch.session);
        let canceled = self
            .ledger
            .job(job)
            .is_some_and(|job| job.state == JobState::CancelRequested);
        let grant_canceled = !self.context.hold(Rule::NoGrantAfterCancel);
        Some(match record.state {
            AttemptState::Dispatched => {
                let executor = self.batch.executor;
                let change = Change::Started {
                    attempt,
                    job,
                    session,
                    executor,
                    publication,
                };
                self.ledger.decide(change, &mut self.changes);
                Verdict::Grant
            }
            AttemptState::Started { session: holder } if holder != session => {
                if self.context.hold(Rule::OneGrant) {
                    Verdict::Deny(DenyReason::Duplicate)
                } else {
                    Verdict::Grant
                }
            }
            // The grant is on its way, or was lost. It counts for an earlier ask, so that the session, which has asked
            // again, will not start by it: nothing has run and nothing will.
            AttemptState::Started { .. } if canceled && !grant_canceled => {
                let how = AttemptEnd::Lost {
                    session,
                    cause: Cause::CanceledByRequest,
                    ran: false,
                };
                end_attempt(attempt, how, self.ledger, self.context, &mut self.changes);
                Verdict::Deny(DenyReason::Canceled)
            }
            AttemptState::Started { .. } => Verdict::Grant,
            AttemptState::Over {
                cause: Cause::CanceledByRequest,
            } if grant_canceled => Verdict::Grant,
            AttemptState::Over {
                cause: Cause::CanceledByRequest,
            } => Verdict::Deny(DenyReason::Canceled),
            AttemptState::Over { .. } => Verdict::Deny(DenyReason::Superseded),
        })
    }

    /// A result counts only from the session that holds the attempt, which implies that neither of them is over.
    fn finished(&mut self, attempt: AttemptId, report: &RunReport) {
        let session = self.batch.session;
        let record = self.ledger.attempt(attempt);
        let holder = record.and_then(|record| record.state.holder());
        let counts = match holder {
            Some(holder) => holder == session || !self.context.hold(Rule::ResultFromHolder),
            None => false,
        };
        if let (true, Some(holder)) = (counts, holder) {
            let executor = self.batch.executor;
            let (output, files) = (report.uploaded.as_ref(), report.artifacts.as_ref());
            let report = if output.is_some_and(|named| !self.ledger.has_upload(attempt, named)) {
                without_content(report, "the output")
            } else if files.is_some_and(|named| !self.ledger.has_files(attempt, named)) {
                without_content(report, "a file")
            } else {
                report.clone()
            };
            let how = AttemptEnd::Reported {
                session: holder,
                executor,
                report: Box::new(report),
            };
            end_attempt(attempt, how, self.ledger, self.context, &mut self.changes);
            return;
        }
        let change = Change::Superseded {
            attempt,
            job: record.map(|record| record.job),
            session,
            state: report.outcome.state,
            cause: report.outcome.cause,
        };
        self.ledger.decide(change, &mut self.changes);
    }

    /// A fact beside the result, which stays what it is.
    fn contradicted(&mut self, attempt: AttemptId, contradictions: &[String]) {
        let change = Change::Contradicted {
            attempt,
            job: self.ledger.attempt(attempt).map(|record| record.job),
            session: self.batch.session,
            contradictions: contradictions.to_vec(),
        };
        self.ledger.decide(change, &mut self.changes);
    }

    /// A session also gives up what it has asked for and nobody has started for it: that goes on waiting.
    fn abandoned(&mut self, attempt: AttemptId, why: AbandonReason, ran: bool) {
        let session = self.batch.session;
        let record = self.ledger.attempt(attempt);
        if record.is_some_and(|record| record.state.holder() == Some(session)) {
            let cause = match why {
                AbandonReason::LeaseEnding | AbandonReason::Stopped => Cause::Abandoned,
            };
            let how = AttemptEnd::Lost { session, cause, ran };
            end_attempt(attempt, how, self.ledger, self.context, &mut self.changes);
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat, before: u64, gap: bool) {
        // Something behind it is processed already: it was delivered before, and says nothing of now.
        let stale = self.batch.last() < before && self.context.hold(Rule::ProcessedNumbers);
        if stale || !self.is_live() {
            return;
        }
        if !gap || self.context.hold(Rule::GappedHeartbeatRenews) {
            self.renew(heartbeat.free_slots);
        }
        if !gap || !self.context.hold(Rule::NamingNeedsNoGap) {
            self.compare(&heartbeat.held);
        }
    }

    fn renew(&mut self, free_slots: u32) {
        let session = self.batch.session;
        let lease_end = moved_lease(self.ledger.session(session), self.context);
        let change = Change::LeaseMoved {
            session,
            lease_end,
            free_slots: Some(free_slots),
        };
        self.ledger.decide(change, &mut self.changes);
    }

    /// Compares what the session names with what it holds, both at the same point of its events.
    fn compare(&mut self, named: &[Held]) {
        let session = self.batch.session;
        let unnamed: Vec<AttemptId> = self
            .ledger
            .held_by(session)
            .map(|record| record.attempt)
            .filter(|attempt| !named.iter().any(|held| held.attempt == *attempt))
            .collect();
        for attempt in unnamed {
            let how = AttemptEnd::Lost {
                session,
                cause: Cause::ExecutorLost,
                ran: true,
            };
            end_attempt(attempt, how, self.ledger, self.context, &mut self.changes);
        }
        for held in named.iter().filter(|held| held.phase != Phase::Finished) {
            if let Some(why) = self.stop(held) {
                self.stops.push(Stop {
                    attempt: held.attempt,
                    why,
                });
            }
        }
    }

    fn stop(&self, held: &Held) -> Option<StopReason> {
        let record = self.ledger.attempt(held.attempt);
        match (held.phase, record.map(|record| record.state)) {
            (_, Some(AttemptState::Started { session })) if session == self.batch.session => {
                let job = record.and_then(|record| self.ledger.job(record.job));
                job.is_some_and(|job| job.state == JobState::CancelRequested)
                    .then_some(StopReason::Canceled)
            }
            // The ask has its own answer.
            (Phase::Asked, _) => None,
            (Phase::Granted | Phase::Running | Phase::Finished, _) => Some(StopReason::NotYours),
        }
    }
}

/// Where a lease ends that is renewed now. It always moves, so that a judgement of the old end is recognised as void;
/// and never back, whatever the database's clock does.
pub(crate) fn moved_lease(session: Option<&SessionRecord>, context: &Context) -> crate::time::ServerTime {
    let fresh = context.now.after(context.timing.lease);
    let moved = session.map(|record| record.lease_end.after(std::time::Duration::from_micros(1)));
    moved.map_or(fresh, |moved| moved.max(fresh))
}
