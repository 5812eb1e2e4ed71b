//! A sandbox that was checked and waits for its job.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::{
    egress::EgressRecord,
    job::ResolvedJob,
    run::{RunReport, SandboxFacts},
};
use mayfly_redact::{Matcher, Rules, Secrets};

use crate::{
    baseline::job_environment,
    channel::Channel,
    collect::collect,
    container::Container,
    docker::Shared,
    engine::{ContainerEnd, Engine},
    error::{EngineError, chain},
    evidence::{self, Account, EngineWord},
    redaction::clean,
    run::{Ending, Start, converse},
    seam::{Destruction, Loopback, ReadySandbox, Run, RunEnd},
    warm::{self, Warmth},
};

/// How long the engine may take to notice that a container has ended, after its stream has.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A container whose guest waits for a job.
pub(crate) struct ReadyContainer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) container: Container,
    pub(crate) channel: Channel,
    pub(crate) facts: SandboxFacts,
    pub(crate) loopback: Loopback,
    /// What the image says of the environment.
    pub(crate) image_env: Vec<String>,
    /// The process that may wait for the job.
    pub(crate) warm: Option<Warmth>,
}

#[async_trait]
impl ReadySandbox for ReadyContainer {
    fn facts(&self) -> &SandboxFacts {
        &self.facts
    }

    fn is_alive(&mut self) -> bool {
        self.channel.is_open()
    }

    async fn run(self: Box<Self>, mut run: Run) -> RunEnd {
        let Self {
            shared,
            container,
            mut channel,
            mut facts,
            loopback,
            image_env,
            warm,
        } = *self;
        let clock = shared.clock.as_ref();
        let environment = job_environment(&facts.in_force, loopback, &image_env, run.job.variables());
        let admitted = warm.as_ref().map(|warm| warm.admits(&run.job, &environment));
        let start = Start {
            environment,
            warm: matches!(admitted, Some(Ok(()))),
            killed_before: warm.is_some_and(|warm| warm.killed_for_memory),
            collects: run.collect.is_some(),
            egress: run.egress.is_some(),
        };
        let (matcher, wanted, stop) = (run.matcher.clone(), run.collect.take(), run.stop.clone());
        let proxy = run.egress.clone().map(|proxy| (proxy, of_names(&run.job)));
        let conversation = converse(&mut channel, run, start, shared.kill_grace, clock).await;
        if let Some((facts, admitted)) = facts.warm.as_mut().zip(admitted) {
            warm::conclude(facts, admitted, conversation.warm);
            facts.why_cold.iter_mut().for_each(|why| clean(&matcher, why));
        }
        let ended_at = clock.now();
        let artifacts = match (wanted, &conversation.ending) {
            (Some(wanted), Ending::Exit(exit)) => {
                collect(&mut channel, wanted, exit, stop, &matcher, shared.kill_grace).await
            }
            _ => None,
        };
        let mut complaint = channel.complaint();
        clean(&matcher, &mut complaint);
        if !complaint.is_empty() {
            tracing::warn!(container = facts.container_id, complaint, "a guest complained");
        }
        channel.hang_up();
        let (mut evidence, destruction) = if evidence::is_conclusive(&conversation) {
            let evidence = evidence::weigh(&conversation, &EngineWord::NotHeard);
            let account = Account::of(&conversation);
            let destroying = destroy(Arc::clone(&shared), container, account);
            (evidence, Some(Destruction::new(shared.tasks.spawn(destroying))))
        } else {
            // A guest that gave its account ends by itself; any other is made to.
            let ends_by_itself = matches!(conversation.ending, Ending::Exit(_) | Ending::Refused(_));
            let unexplained = evidence::is_unexplained(&conversation);
            let word = engine_word(&shared, container, !ends_by_itself, unexplained).await;
            (evidence::weigh(&conversation, &word), None)
        };
        // What the job has called its file or program.
        if let Some(refusal) = &mut evidence.refused {
            refusal
                .subject
                .iter_mut()
                .for_each(|subject| clean(&matcher, subject));
            clean(&matcher, &mut refusal.reason);
        }
        let report = RunReport {
            outcome: evidence.judge(),
            usage: evidence::usage(&conversation),
            stdout: conversation.stdout,
            stderr: conversation.stderr,
            sandbox: Some(facts),
            started_at: conversation.started_at,
            ended_at,
            uploaded: None,
            artifacts,
            // Every connection has ended with the conversation: all that was decided is on it.
            egress: proxy.map(|(proxy, lower)| shown(proxy.record(), &[&matcher, &lower])),
        };
        RunEnd { report, destruction }
    }

    async fn discard(self: Box<Self>) {
        self.channel.hang_up();
        self.container.remove(&self.shared).await;
    }
}

/// What finds the job's secrets in names of hosts, which have no capital letters.
fn of_names(job: &ResolvedJob) -> Matcher {
    let lower = job.secret_values().map(str::to_ascii_lowercase);
    // Those that can be looked for at all can be in this form, too.
    let secrets = Secrets::new(lower).unwrap_or_default();
    Matcher::new(&Rules::none(), &secrets)
}

/// What was decided, without what the job may have put into a name.
fn shown(mut record: EgressRecord, matchers: &[&Matcher]) -> EgressRecord {
    for decision in &mut record.decisions {
        for matcher in matchers {
            clean(matcher, &mut decision.method);
            clean(matcher, &mut decision.name);
        }
    }
    record
}

/// Destroys a container whose guest has given its account and ends by itself; what the engine says against it.
async fn destroy(shared: Arc<Shared>, container: Container, account: Account) -> Vec<String> {
    let id = container.id.clone();
    let word = engine_word(&shared, container, false, false).await;
    let contradictions = evidence::said_late(&account, &word);
    for contradiction in &contradictions {
        tracing::warn!(container = id, contradiction, "the engine contradicts a guest");
    }
    contradictions
}

/// What the engine says of a container's end, and where that would be `unexplained` else, whatever it says a little
/// later of kills for memory; the container is removed then.
async fn engine_word(
    shared: &Arc<Shared>,
    container: Container,
    kill: bool,
    unexplained: bool,
) -> EngineWord {
    let id = container.id.clone();
    let mut end = container_end(&shared.engine, &id, kill).await;
    if let Ok(end) = &mut end
        && unexplained
        && !end.being_removed
        && end.oom_killed == Some(false)
    {
        // An engine that does not tell leaves its first word.
        end.oom_killed = Some(shared.engine.said_oom(&id).await.unwrap_or(false));
    }
    container.remove(shared).await;
    match end {
        Ok(end) => EngineWord::Ended(end),
        Err(error) => {
            tracing::warn!(
                container = id,
                error = chain(&error),
                "the engine did not tell how a container ended"
            );
            EngineWord::Failed(error)
        }
    }
}

/// What the engine says of the end, once there is one.
async fn container_end(engine: &Engine, container: &str, kill: bool) -> Result<ContainerEnd, EngineError> {
    let ended = tokio::time::timeout(END_LIMIT, engine.wait_until_ended(container)).await;
    if kill && ended.is_err() {
        engine.kill(container).await?;
        tokio::time::timeout(END_LIMIT, engine.wait_until_ended(container))
            .await
            .ok();
    }
    engine.container_end(container).await
}
