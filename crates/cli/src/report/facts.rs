//! What people are shown of a job, whether it is read from the database or from a server.

use std::{collections::BTreeMap, fmt::Write as _};

use chrono::{DateTime, Utc};
use mayfly_core::{
    artifact::Artifacts,
    digest::Digest,
    egress::{EgressRecord, Reason},
    host::HostFacts,
    id::{AttemptId, BatchId, JobId, SessionId},
    limits::{Limits, LimitsAsked},
    outcome::{Cause, Outcome, Redacted, Usage},
    run::{Origin, SandboxFacts, UserNamespace, WarmFacts},
    units::{ByteSize, Span},
};
use serde_json::Value;

use super::{time, word};
use crate::{
    artifacts::{name, notes},
    terminal::shown,
};

/// A job.
pub(crate) struct Facts {
    pub(crate) job: JobId,
    pub(crate) state: String,
    /// Why it has not started.
    pub(crate) waiting: Option<String>,
    pub(crate) image: String,
    pub(crate) image_digest: Digest,
    pub(crate) policy_version: Digest,
    pub(crate) is_erased: bool,
    pub(crate) asked: Option<LimitsAsked>,
    pub(crate) exact: Option<Limits>,
    pub(crate) batch: Option<BatchId>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) sandbox: Option<SandboxFacts>,
    /// Stdout, then stderr.
    pub(crate) streams: Option<[StreamFacts; 2]>,
    pub(crate) usage: Option<Usage>,
    pub(crate) artifacts: Option<Artifacts>,
    pub(crate) egress: Option<EgressRecord>,
    pub(crate) attempts: Vec<AttemptFacts>,
    pub(crate) submitted_at: DateTime<Utc>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// An output stream.
pub(crate) struct StreamFacts {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// What was cut from its middle.
    pub(crate) omitted: Option<ByteSize>,
    /// What was taken out of it.
    pub(crate) redacted: Option<Redacted>,
}

/// A try at the job.
pub(crate) struct AttemptFacts {
    pub(crate) number: u32,
    pub(crate) id: AttemptId,
    pub(crate) session: Option<SessionId>,
    pub(crate) cause: Option<Cause>,
    pub(crate) started_at: Option<DateTime<Utc>>,
}

impl Facts {
    /// The one line after `mayfly run`.
    pub(crate) fn summary(&self, outcome: &Outcome) -> String {
        let mut line = format!("mayfly: {}", word(outcome.state));
        // What the exit code doesn't say.
        match (outcome.exit_code, outcome.signal) {
            (Some(code), _) => write!(line, " ({}, exit code {code})", word(outcome.cause)),
            (None, Some(signal)) => write!(line, " ({}, signal {signal})", word(outcome.cause)),
            (None, None) => write!(line, " ({})", word(outcome.cause)),
        }
        .unwrap_or_default();
        for part in explanation(outcome) {
            write!(line, " · {}", shown(&part)).unwrap_or_default();
        }
        write!(line, " · image {}", self.image_digest).unwrap_or_default();
        if let Some(streams) = &self.streams {
            for (name, stream) in ["stdout", "stderr"].into_iter().zip(streams) {
                let cut = if stream.omitted.is_some() {
                    " (record cut)"
                } else {
                    ""
                };
                let redacted = match stream.redacted.as_ref().map_or(0, Redacted::total) {
                    0 => String::new(),
                    count => format!(" ({count} redacted)"),
                };
                write!(line, " · {name} {} B{cut}{redacted}", stream.bytes).unwrap_or_default();
            }
        }
        if let Some(artifacts) = self
            .artifacts
            .as_ref()
            .filter(|artifacts| !artifacts.files.is_empty())
        {
            let (count, size) = (artifacts.files.len(), ByteSize::bytes(artifacts.bytes()));
            let files = if count == 1 { "file" } else { "files" };
            write!(line, " · {count} {files}, {size}").unwrap_or_default();
        }
        if let Some(usage) = self.usage {
            write!(line, " · {}", Span::millis(usage.wall_us.div_ceil(1000))).unwrap_or_default();
        }
        write!(line, " · job {}", self.job).unwrap_or_default();
        line
    }

    /// A job's record for a person: a line for each fact.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            ("job", self.job.to_string()),
            ("state", self.state.clone()),
            ("image", format!("{} = {}", shown(&self.image), self.image_digest)),
            ("policy version", self.policy_version.to_string()),
        ];
        lines.extend(self.waiting.as_ref().map(|why| ("waits", shown(why))));
        lines.extend(self.asked.map(|limits| ("limits asked", asked(&limits))));
        if self.is_erased {
            lines.push(("source", "erased when the job ended, as it had asked".to_owned()));
        }
        lines.extend(self.batch.map(|batch| ("batch", batch.to_string())));
        if let Some(outcome) = &self.outcome {
            lines.push(("cause", word(outcome.cause)));
            lines.extend(meaning(outcome.cause).map(|words| ("that is", words.to_owned())));
            lines.push((
                "exit code",
                outcome
                    .exit_code
                    .map_or_else(|| "none".to_owned(), |code| code.to_string()),
            ));
            lines.extend(outcome.signal.map(|signal| ("signal", signal.to_string())));
            lines.extend(
                explanation(outcome)
                    .into_iter()
                    .map(|part| ("evidence", shown(&part))),
            );
        }
        if let Some(sandbox) = &self.sandbox {
            lines.extend(sandbox_lines(sandbox, self.exact.as_ref()));
        }
        for (name, stream) in ["stdout", "stderr"]
            .into_iter()
            .zip(self.streams.iter().flatten())
        {
            let cut = stream
                .omitted
                .map_or_else(String::new, |omitted| format!(", {omitted} not kept"));
            lines.push((
                name,
                format!("{} bytes{cut}, sha256 {}", stream.bytes, stream.sha256),
            ));
            let redacted = stream.redacted.iter().flat_map(|redacted| &redacted.counts);
            lines.extend(
                redacted.map(|(rule, count)| ("redacted", format!("{count} of {} in {name}", shown(rule)))),
            );
        }
        if let Some(artifacts) = &self.artifacts {
            let files = artifacts.files.iter().map(|file| {
                let name = name(file.name.as_bytes());
                (
                    "file",
                    format!("{name}, {} bytes, sha256 {}", file.bytes, file.digest.to_hex()),
                )
            });
            lines.extend(files);
            lines.extend(notes(artifacts).into_iter().map(|note| ("file", note)));
        }
        if let Some(record) = &self.egress {
            lines.extend(egress_lines(record).into_iter().map(|line| ("egress", line)));
        }
        if let Some(usage) = &self.usage {
            let cpu = Span::millis((usage.user_us + usage.system_us) / 1000);
            let (wall, rss) = (Span::millis(usage.wall_us / 1000), usage.max_rss_bytes / 1024);
            lines.push((
                "used",
                format!("{wall} by the clock, {cpu} of CPU time, {rss} KiB at most"),
            ));
            if let Some(waited) = usage.cpu_throttled_us.filter(|waited| *waited >= 1000) {
                let waited = Span::millis(waited / 1000);
                lines.push((
                    "held back",
                    format!("{waited} by the CPU limit, added up over the CPUs"),
                ));
            }
        }
        for attempt in &self.attempts {
            let session = attempt.session.map_or_else(
                || "never started".to_owned(),
                |session| format!("session {session}"),
            );
            // Of the last one of a job that is over it is the job's own cause.
            let cause = attempt
                .cause
                .filter(|cause| {
                    self.outcome
                        .as_ref()
                        .is_none_or(|outcome| outcome.cause != *cause)
                })
                .map_or_else(String::new, |cause| format!(", {}", word(cause)));
            lines.push((
                "attempt",
                format!("{} {}, {session}{cause}", attempt.number, attempt.id),
            ));
        }
        lines.push(("submitted", time(self.submitted_at)));
        lines.extend(
            self.attempts
                .last()
                .and_then(|attempt| attempt.started_at)
                .map(|at| ("started", time(at))),
        );
        lines.extend(self.ended_at.map(|at| ("ended", time(at))));
        lines.extend(
            self.labels
                .iter()
                .map(|(name, value)| ("label", shown(&format!("{name}={value}")))),
        );
        lines
            .iter()
            .map(|(name, value)| format!("{name:<18}{}\n", shown(value)))
            .collect()
    }
}

/// What is said of a sandbox.
fn sandbox_lines(sandbox: &SandboxFacts, exact: Option<&Limits>) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    lines.push(("limits in force", limits(&sandbox.in_force)));
    let rounded = exact.and_then(|exact| rounded_up(exact, &sandbox.in_force));
    lines.extend(rounded.map(|what| ("rounded up", what)));
    lines.push((
        "sandbox",
        format!(
            "{} on {}, kernel {}",
            sandbox.runtime,
            sandbox.engine,
            shown(&sandbox.kernel)
        ),
    ));
    lines.push((
        "sandbox was",
        match sandbox.origin {
            Origin::Cold => "made for this job".to_owned(),
            Origin::Warm { idle_ms } => format!("warm: it had waited for {}", Span::millis(idle_ms)),
        },
    ));
    lines.extend(
        sandbox
            .user_namespace
            .map(|users| ("host's users", host_users(users))),
    );
    lines.push(("container", sandbox.container_id.clone()));
    lines.push(("settings in force", sandbox.enforced_digest.to_string()));
    lines.push(("syscall filter", sandbox.filter_digest.to_string()));
    lines.extend(sandbox.warm.as_ref().map(|warm| ("warm start", warm_start(warm))));
    lines.extend(sandbox.host.iter().flat_map(host_lines));
    let not_enforceable = sandbox.not_enforceable.iter();
    lines.extend(not_enforceable.map(|(what, why)| ("not enforceable", format!("{what}: {why}"))));
    lines
}

/// Who the users of a sandbox are outside of it.
fn host_users(users: UserNamespace) -> String {
    let UserNamespace {
        first_uid,
        first_gid,
        count,
        others,
    } = users;
    let others = others.map_or_else(String::new, |others| {
        format!(
            " (a rootless engine's own), its others begin with user {} and group {}",
            others.first_uid, others.first_gid
        )
    });
    format!(
        "its root is user {first_uid} and group {first_gid} of the host{others}, in a namespace of {count} ids"
    )
}

/// What is said of the host under a sandbox.
fn host_lines(host: &HostFacts) -> Vec<(&'static str, String)> {
    let part = |name: &str, version: &Option<String>| {
        version
            .as_ref()
            .map_or_else(String::new, |version| format!("{name} {version}, "))
    };
    let lsm = match host.lsm.as_slice() {
        [] => "no LSM".to_owned(),
        names => names.join(", "),
    };
    let mut lines = vec![(
        "host",
        format!(
            "{}{}kernel {}, control groups v{}, {lsm}; posture {}, looked at {}",
            part("runtime", &host.runtime_version),
            part("containerd", &host.containerd),
            host.kernel,
            host.cgroup_version,
            word(host.posture),
            time(host.checked_at),
        ),
    )];
    for (name, what) in [
        ("host misses", &host.missed),
        ("host not checked", &host.not_checked),
    ] {
        if !what.is_empty() {
            lines.push((name, what.join(", ")));
        }
    }
    lines
}

/// What a cause means that is neither the program's own end nor a limit.
const fn meaning(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::ExecutorLost => Some("its executor died with it; nobody knows how far it had come"),
        Cause::Abandoned => {
            Some("its executor gave it up, since it was stopped or had been out of touch for too long")
        }
        Cause::SubmitterGone => Some(
            "the process that had submitted it and waited for it died, and nobody else runs it; run it again if it is \
             still wanted",
        ),
        Cause::WaitedTooLong => Some("it had not started in the time that it may wait"),
        Cause::ContentUnavailable => Some("what it brings or wrote could not be had from the server"),
        Cause::Undeliverable => Some("its message came back undelivered again and again"),
        Cause::Exited
        | Cause::Signaled
        | Cause::ChildOutOfMemory
        | Cause::CommandNotStarted
        | Cause::FilesDidNotFit
        | Cause::GuestLost
        | Cause::WallClock
        | Cause::MemoryLimit
        | Cause::OutputLimit
        | Cause::CanceledByRequest
        | Cause::SandboxMismatch
        | Cause::ImageUnavailable
        | Cause::RuntimeUnavailable
        | Cause::PolicyRefused
        | Cause::EngineFailure => None,
    }
}

/// What a person needs to know about an end that is not the program's own.
fn explanation(outcome: &Outcome) -> Vec<String> {
    let evidence = &outcome.evidence;
    let mismatches = evidence.mismatches.iter().map(|mismatch| {
        format!(
            "{} by {}: asked for {}, found {}",
            mismatch.field,
            word(mismatch.source),
            mismatch.asked,
            mismatch.found
        )
    });
    let trouble = evidence.trouble.iter().map(|trouble| trouble.message.clone());
    let refused = evidence.refused.iter().map(|refusal| match &refusal.subject {
        Some(subject) => format!("{subject}: {}", refusal.reason),
        None => refusal.reason.clone(),
    });
    let killed = evidence
        .oom_kills
        .filter(|kills| *kills > 0)
        .map(|kills| format!("{kills} killed for memory"));
    let pids = evidence
        .pids_refused
        .filter(|n| *n > 0)
        .map(|n| format!("process limit reached {n} times"));
    mismatches
        .chain(trouble)
        .chain(refused)
        .chain(killed)
        .chain(pids)
        .collect()
}

fn asked(limits: &LimitsAsked) -> String {
    let asked = serde_json::to_value(limits).unwrap_or_default();
    let asked = asked.as_object().cloned().unwrap_or_default();
    if asked.is_empty() {
        return "nothing, so the policy's defaults".to_owned();
    }
    let parts: Vec<_> = asked
        .iter()
        .map(|(name, value)| format!("{name} {}", plain(value)))
        .collect();
    parts.join(", ")
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn warm_start(warm: &WarmFacts) -> String {
    let imports = if warm.imports.is_empty() {
        String::new()
    } else {
        format!(", with {}", shown(&warm.imports.join(", ")))
    };
    match &warm.why_cold {
        None if warm.used => format!("yes{imports}"),
        None => format!("no{imports}"),
        Some(why) => format!("no{imports}: {}", shown(why)),
    }
}

fn limits(limits: &Limits) -> String {
    let value = serde_json::to_value(limits).unwrap_or_default();
    let fields = value.as_object().cloned().unwrap_or_default();
    let parts: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name} {}", plain(value)))
        .collect();
    parts.join(", ")
}

/// The limits that a pool's classes have rounded up, where it has.
fn rounded_up(exact: &Limits, in_force: &Limits) -> Option<String> {
    let fields = |limits: &Limits| serde_json::to_value(limits).unwrap_or_default();
    let (exact, in_force) = (fields(exact), fields(in_force));
    let parts: Vec<_> = exact
        .as_object()?
        .iter()
        .filter(|(name, value)| in_force[name.as_str()] != **value)
        .map(|(name, value)| {
            format!(
                "{name} from {} to {}",
                plain(value),
                plain(&in_force[name.as_str()])
            )
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Each request on record to a host outside, and how many came to what.
fn egress_lines(record: &EgressRecord) -> Vec<String> {
    let mut lines: Vec<String> = record
        .decisions
        .iter()
        .map(|decision| {
            let port = decision.port.map_or_else(String::new, |port| format!(":{port}"));
            let address = decision
                .address
                .map_or_else(String::new, |address| format!(" ({address})"));
            let credential = decision
                .credential
                .as_ref()
                .map_or_else(String::new, |name| format!(" with credential {}", shown(name)));
            let why = match decision.reason {
                Reason::Allowed => String::new(),
                reason => format!(", {}", word(reason)),
            };
            format!(
                "{}{why}: {} {}{port}{address}{credential}, {} bytes out, {} in",
                word(decision.verdict),
                shown(&decision.method),
                shown(&decision.name),
                decision.sent_bytes,
                decision.received_bytes
            )
        })
        .collect();
    if record.not_listed > 0 {
        lines.push(format!("{} more are counted and not listed", record.not_listed));
    }
    if lines.is_empty() {
        lines.push("nothing was asked for".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_that_were_rounded_up_are_named() {
        let exact = mayfly_core::limits::LimitRules::default().defaults;
        assert_eq!(rounded_up(&exact, &exact), None);
        let mut class = exact;
        (class.memory, class.pids) = (ByteSize::mib(512), 256);
        assert_eq!(
            rounded_up(&exact, &class).unwrap(),
            "memory from 256MiB to 512MiB, pids from 128 to 256"
        );
    }
}
