//! From what was observed of a run's end to the evidence that its outcome is judged by. No I/O.
//!
//! Three accounts meet here: the guest's, the engine's, and our own of what we did. The guest's goes first, since it
//! alone saw the program end; the engine's decides where there is no other, and whether the trouble was ours. Where the
//! guest's decides by itself the engine's is heard later, and what it says against it goes on record beside the result.

use mayfly_core::outcome::{
    Evidence, KilledFor, ProcessEnd, Refusal, RefusalStage, Trouble, TroubleKind, Usage,
};
use mayfly_protocol::{Ended, Exit, GuestExit, Refused, Stage};

use crate::{
    channel::ChannelError,
    engine::ContainerEnd,
    error::{EngineError, chain},
    run::{Conversation, Ending},
};

/// What the engine says of a container's end.
#[derive(Debug)]
pub(crate) enum EngineWord {
    /// It was not waited for.
    NotHeard,
    /// This.
    Ended(ContainerEnd),
    /// It did not tell.
    Failed(EngineError),
}

/// What a guest said of the end, as far as the engine can contradict it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    /// Processes that the kernel killed for memory, where the guest could read that.
    oom_kills: Option<u64>,
    /// Whether there were such kills before there was a job. What the engine says of them is about the container's
    /// whole life, and then says nothing of the job.
    killed_before: bool,
}

impl Account {
    pub(crate) fn of(conversation: &Conversation) -> Self {
        let (oom_kills, counted_before) = match &conversation.ending {
            Ending::Exit(exit) => (exit.cgroup.oom_kills, exit.oom_kills_before),
            Ending::Refused(_)
            | Ending::Lost(_)
            | Ending::Forced
            | Ending::NotStarted
            | Ending::NotFetched(_) => (None, None),
        };
        Self {
            oom_kills,
            killed_before: conversation.killed_before || counted_before.is_some_and(|kills| kills > 0),
        }
    }

    /// What the engine says of kills for memory, where it says something of the job.
    fn oom_killed(&self, end: &ContainerEnd) -> Option<bool> {
        end.oom_killed.filter(|_| !self.killed_before)
    }
}

/// Whether the outcome is the same whatever the engine will say: the guest told how the program ended, or why it did
/// not start, and does not leave it to the engine whether a kill was one for memory.
pub(crate) const fn is_conclusive(conversation: &Conversation) -> bool {
    match &conversation.ending {
        Ending::Exit(exit) => matches!(exit.how, Ended::Code(_)) || exit.cgroup.oom_kills.is_some(),
        Ending::Refused(_) => true,
        Ending::Lost(_) | Ending::Forced | Ending::NotStarted | Ending::NotFetched(_) => false,
    }
}

/// Whether nobody has said yet why the program ended: it was killed, by whom is not known, and a kill for memory would
/// be the reason.
pub(crate) const fn is_unexplained(conversation: &Conversation) -> bool {
    conversation.start_sent
        && conversation.kill_asked.is_none()
        && match &conversation.ending {
            Ending::Exit(exit) => matches!(exit.how, Ended::Signal(_)),
            Ending::Lost(_) => true,
            Ending::Refused(_) | Ending::Forced | Ending::NotStarted | Ending::NotFetched(_) => false,
        }
}

/// The evidence of a run.
pub(crate) fn weigh(conversation: &Conversation, engine: &EngineWord) -> Evidence {
    let mut evidence = Evidence {
        started: conversation.started,
        ..Evidence::default()
    };
    if let EngineWord::Ended(end) = engine {
        evidence.engine_exit_code = end.exit_code.filter(|_| !end.running);
        evidence.engine_oom_killed = Account::of(conversation).oom_killed(end);
    }
    let asked = conversation.kill_asked;
    match &conversation.ending {
        Ending::Exit(exit) => {
            exited(&mut evidence, exit, asked);
            let against = contradictions(&Account::of(conversation), engine);
            evidence.contradictions.extend(against);
        }
        Ending::Refused(refused) => was_refused(&mut evidence, refused, asked),
        Ending::Lost(error) => lost(&mut evidence, conversation, error, engine),
        Ending::Forced => match engine {
            EngineWord::Ended(end) if !end.running => evidence.killed_for = asked,
            // Nobody knows what the program did meanwhile, so that its end can't be blamed on it.
            EngineWord::Ended(_) | EngineWord::NotHeard => set_trouble(
                &mut evidence,
                TroubleKind::Engine,
                "the container survived its kill".to_owned(),
            ),
            EngineWord::Failed(error) => set_trouble(&mut evidence, TroubleKind::Engine, chain(error)),
        },
        Ending::NotStarted => set_trouble(
            &mut evidence,
            TroubleKind::Guest,
            "the guest did not start the program in time".to_owned(),
        ),
        Ending::NotFetched(error) => set_trouble(&mut evidence, TroubleKind::Content, error.to_string()),
    }
    evidence
}

/// What the run used, by the guest's account.
pub(crate) fn usage(conversation: &Conversation) -> Option<Usage> {
    let Ending::Exit(exit) = &conversation.ending else {
        return None;
    };
    Some(Usage {
        user_us: exit.usage.utime_us,
        system_us: exit.usage.stime_us,
        max_rss_bytes: exit.usage.maxrss_bytes,
        peak_memory_bytes: exit.cgroup.memory_peak_bytes,
        cpu_throttled_us: exit.cgroup.cpu_throttled_us,
        wall_us: exit.wall_us,
    })
}

fn exited(evidence: &mut Evidence, exit: &Exit, asked: Option<KilledFor>) {
    evidence.end = Some(match exit.how {
        Ended::Code(code) => ProcessEnd::Code(code),
        Ended::Signal(signal) => ProcessEnd::Signal(signal),
    });
    evidence.oom_kills = exit.cgroup.oom_kills;
    evidence.pids_refused = exit.cgroup.pids_max_events;
    evidence.killed_for = match asked {
        // Too much was written, whether or not the program ended by itself before the kill came.
        Some(KilledFor::OutputLimit) => Some(KilledFor::OutputLimit),
        Some(reason) if exit.killed_by_request => Some(reason),
        _ if exit.deadline_fired => Some(KilledFor::GuestDeadline),
        _ => None,
    };
    if exit.killed_by_request && asked.is_none() {
        evidence
            .contradictions
            .push("the guest says that it was asked to kill the program, and nobody asked".to_owned());
    }
}

/// What the engine says against a guest that gave its account and was done.
fn contradictions(account: &Account, engine: &EngineWord) -> Vec<String> {
    let EngineWord::Ended(end) = engine else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(code) = end.exit_code.filter(|code| *code != 0 && !end.running) {
        let said = GuestExit::from_code(code).map_or_else(String::new, |exit| format!(" ({exit:?})"));
        found.push(format!(
            "the guest gave its account and was done, and the engine says that it ended with {code}{said}"
        ));
    }
    // The other way round it says nothing: the engine hears of such a kill by a notice of the control group, which is
    // gone with the group where the container ends at once.
    if (account.oom_killed(end), account.oom_kills) == (Some(true), Some(0)) {
        found.push(
            "the kernel counted no kills for memory, and the engine says that there were some".to_owned(),
        );
    }
    found
}

/// What the engine says against an account that stands already. A kill for memory that the guest could not see is not
/// against it, and would be on record nowhere else.
pub(crate) fn said_late(account: &Account, engine: &EngineWord) -> Vec<String> {
    let mut found = contradictions(account, engine);
    if let EngineWord::Ended(end) = engine
        && (account.oom_killed(end), account.oom_kills) == (Some(true), None)
    {
        found.push("the engine says that the kernel killed for memory, which the guest can't see".to_owned());
    }
    found
}

fn was_refused(evidence: &mut Evidence, refused: &Refused, asked: Option<KilledFor>) {
    let stage = match refused.stage {
        Stage::Job | Stage::Exec => RefusalStage::Exec,
        Stage::File => RefusalStage::Files,
        Stage::Resources | Stage::Identity | Stage::Rlimit | Stage::Cwd => RefusalStage::Setup,
        Stage::Canceled if asked.is_some() => {
            evidence.killed_for = asked;
            return;
        }
        Stage::Canceled => RefusalStage::Setup,
    };
    // Where the kernel gave a reason, the detail is what the job has called the thing; else it is a rule of the guest's.
    let (reason, subject) = match refused.errno {
        Some(errno) => (
            errno_text(errno),
            Some(refused.detail.clone()).filter(|detail| !detail.is_empty()),
        ),
        None => (refused.detail.clone(), None),
    };
    evidence.refused = Some(Refusal {
        stage,
        reason,
        subject,
    });
}

/// The stream ended without an account.
fn lost(evidence: &mut Evidence, conversation: &Conversation, error: &ChannelError, engine: &EngineWord) {
    let said = chain(error);
    match error {
        // The first frame of all is the only one that can be too large, so that nothing was sent.
        ChannelError::Encode(_) => {
            evidence.refused = Some(Refusal {
                stage: RefusalStage::Exec,
                reason: "the arguments and the environment are longer than a guest takes".to_owned(),
                subject: None,
            });
            return;
        }
        ChannelError::Misused(_) => return set_trouble(evidence, TroubleKind::Guest, said),
        ChannelError::Protocol(_) if !conversation.start_sent => {
            return set_trouble(evidence, TroubleKind::Guest, said);
        }
        // After the start only the job can have brought the guest to that.
        ChannelError::Protocol(_) => evidence.contradictions.push(said.clone()),
        ChannelError::Closed | ChannelError::Broken(_) => {}
    }
    let end = match engine {
        EngineWord::Failed(error) => return set_trouble(evidence, TroubleKind::Engine, chain(error)),
        EngineWord::NotHeard => return set_trouble(evidence, TroubleKind::Engine, said),
        EngineWord::Ended(end) => end,
    };
    if conversation.kill_asked.is_some() {
        evidence.killed_for = conversation.kill_asked;
        return;
    }
    let broke_off = matches!(error, ChannelError::Closed | ChannelError::Broken(_));
    let guest_exit = end
        .exit_code
        .filter(|_| !end.running)
        .and_then(GuestExit::from_code);
    let ours = match guest_exit {
        _ if !conversation.start_sent => Some("before it could start the program"),
        // No job can bring that about.
        _ if end.being_removed => Some("while somebody else removed the container"),
        _ if broke_off && end.running => Some("and the container runs on"),
        Some(GuestExit::Done) if broke_off => Some("and the guest's account of the end with it"),
        Some(GuestExit::StdinClosed) if broke_off => Some("and the guest's stdin with it"),
        Some(GuestExit::AliveMissing) => Some("after the guest had heard nothing for too long"),
        Some(GuestExit::ProtocolError | GuestExit::SetUpFailed | GuestExit::Usage) => {
            Some("and the guest blames what it was sent")
        }
        _ => None,
    };
    if let Some(why) = ours {
        set_trouble(evidence, TroubleKind::Engine, format!("{said}, {why}"));
    }
}

fn set_trouble(evidence: &mut Evidence, kind: TroubleKind, message: String) {
    evidence.trouble = Some(Trouble { kind, message });
}

/// The words of errno(3) for what a guest's refusal can carry, by Linux's numbers: the executor may run elsewhere.
fn errno_text(errno: i32) -> String {
    match errno {
        1 => "operation not permitted",
        2 => "no such file or directory",
        7 => "argument list too long",
        8 => "not a program that the kernel can execute",
        11 => "no more processes or memory",
        12 => "not enough memory",
        13 => "permission denied",
        17 => "a file of that name exists",
        20 => "not a directory",
        21 => "is a directory",
        28 => "no space left",
        36 => "file name too long",
        40 => "too many symbolic links",
        122 => "quota exceeded",
        other => return format!("error {other}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests;
