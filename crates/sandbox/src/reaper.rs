//! The reaper: removes what executors left behind, whichever of them it was.
//!
//! The labels say whose a container is and when nothing of ours waits for it any more; guests of dead executors end by
//! themselves. So a sweep needs no list of what is alive, and never touches a living neighbour's sandbox. Only of an
//! executor that is proven dead everything is removed at once.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State};
use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use mayfly_core::id::{ExecutorId, SandboxId};

use crate::{
    baseline::label,
    engine::Engine,
    error::{EngineError, chain},
};

/// How long a container that has ended stays for the executor that still reads its end.
const ENDED_S: i64 = 30;
/// How long a container may be created and not started.
const UNSTARTED_S: i64 = 60;
/// Removals at once: one that is stuck holds up its own place and no other.
const AT_ONCE: usize = 4;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Containers that were removed.
    pub removed: usize,
    /// Containers that could not be; the next sweep finds them again.
    pub failed: usize,
}

/// Sandboxes that this process has made and that are not gone yet.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashSet<SandboxId>>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldSandbox {
    id: SandboxId,
    of: Arc<Held>,
}

impl Held {
    /// Takes note of a sandbox that is about to be made.
    pub(crate) fn add(self: &Arc<Self>, id: SandboxId) -> HeldSandbox {
        self.all().insert(id);
        HeldSandbox {
            id,
            of: Arc::clone(self),
        }
    }

    fn has(&self, labels: Option<&HashMap<String, String>>) -> bool {
        let id = labels.and_then(|labels| labels.get(label::SANDBOX)?.parse().ok());
        id.is_some_and(|id| self.all().contains(&id))
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashSet<SandboxId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldSandbox {
    fn drop(&mut self) {
        self.of.all().remove(&self.id);
    }
}

/// What of a deployment is on its engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Containers, those of living executors included.
    pub containers: usize,
    /// Those of them that the next sweep removes.
    pub left_behind: usize,
}

/// The two clocks that ages are judged by: stamps of the engine's by its own, labels by ours.
#[derive(Debug, Clone, Copy)]
struct Now {
    engine: i64,
    ours: i64,
}

/// What a sweep would find, and remove.
pub(crate) async fn look(
    engine: &Engine,
    deployment: &str,
    now: DateTime<Utc>,
) -> Result<Leftovers, EngineError> {
    let found = engine.containers_labelled(label::DEPLOYMENT, deployment).await?;
    let now = Now {
        engine: engine.seconds_since_1970().await?.unwrap_or(now.timestamp()),
        ours: now.timestamp(),
    };
    let containers = found.len();
    let looks = stream::iter(found).map(|container| async move {
        let ended = ended_at(engine, &container).await;
        is_left_behind(&container, ended, now)
    });
    let looks: Vec<bool> = looks.buffer_unordered(AT_ONCE).collect().await;
    Ok(Leftovers {
        containers,
        left_behind: looks.into_iter().filter(|left| *left).count(),
    })
}

/// Removes the containers of a deployment that nobody waits for.
pub(crate) async fn sweep(
    engine: &Engine,
    deployment: &str,
    now: DateTime<Utc>,
) -> Result<Swept, EngineError> {
    let found = engine.containers_labelled(label::DEPLOYMENT, deployment).await?;
    let now = Now {
        engine: engine.seconds_since_1970().await?.unwrap_or(now.timestamp()),
        ours: now.timestamp(),
    };
    let removals = stream::iter(found).map(|container| remove_if_left_behind(engine, container, now));
    let done: Vec<_> = removals.buffer_unordered(AT_ONCE).collect().await;
    Ok(Swept {
        removed: done.iter().filter(|done| **done == Some(true)).count(),
        failed: done.iter().filter(|done| **done == Some(false)).count(),
    })
}

/// Removes the containers of one executor, whatever their age, except those that this process holds.
pub(crate) async fn remove_all_of(
    engine: &Engine,
    deployment: &str,
    executor: ExecutorId,
    held: &Held,
) -> Result<Swept, EngineError> {
    let mut found = engine
        .containers_labelled(label::EXECUTOR, &executor.to_string())
        .await?;
    found.retain(|container| is_of_a_predecessor(container.labels.as_ref(), deployment, held));
    let ids = found.into_iter().filter_map(|container| container.id);
    let removals = stream::iter(ids).map(|id| remove(engine, id));
    let done: Vec<_> = removals.buffer_unordered(AT_ONCE).collect().await;
    Ok(Swept {
        removed: done.iter().filter(|done| **done).count(),
        failed: done.iter().filter(|done| !**done).count(),
    })
}

fn is_of_a_predecessor(labels: Option<&HashMap<String, String>>, deployment: &str, held: &Held) -> bool {
    let ours = labels.and_then(|labels| labels.get(label::DEPLOYMENT)) == Some(&deployment.to_owned());
    ours && !held.has(labels)
}

/// `None` where the container is left alone.
async fn remove_if_left_behind(engine: &Engine, container: ContainerSummary, now: Now) -> Option<bool> {
    let ended = ended_at(engine, &container).await;
    let id = container.id.clone()?;
    if !is_left_behind(&container, ended, now) {
        return None;
    }
    Some(remove(engine, id).await)
}

/// When a container ended, where it has and the engine says so.
async fn ended_at(engine: &Engine, container: &ContainerSummary) -> Option<i64> {
    match container.state {
        Some(State::EXITED | State::DEAD) => engine.finished_at(container.id.as_ref()?).await.ok()?,
        _ => None,
    }
}

async fn remove(engine: &Engine, id: String) -> bool {
    match engine.remove(&id).await {
        Ok(()) => {
            tracing::info!(container = id, "a container that was left behind is removed");
            true
        }
        Err(error) => {
            tracing::warn!(
                container = id,
                error = chain(&error),
                "a container that was left behind could not be removed"
            );
            false
        }
    }
}

/// `ended`: when it did, in seconds since 1970 by the engine's clock, where it has and the engine says so.
fn is_left_behind(container: &ContainerSummary, ended: Option<i64>, now: Now) -> bool {
    if is_past_its_end(container.labels.as_ref(), now.ours) {
        return true;
    }
    match container.state {
        Some(State::EXITED | State::DEAD) => ended.is_some_and(|ended| now.engine > ended + ENDED_S),
        Some(State::CREATED) => container
            .created
            .is_some_and(|created| now.engine > created + UNSTARTED_S),
        _ => false,
    }
}

/// A label that is missing or unreadable proves nothing.
fn is_past_its_end(labels: Option<&HashMap<String, String>>, now: i64) -> bool {
    let expires = labels.and_then(|labels| labels.get(label::EXPIRES)?.parse::<i64>().ok());
    expires.is_some_and(|expires| now > expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        engine: 10_000,
        ours: 20_000,
    };

    fn container(state: State, created: i64, expires: &str) -> ContainerSummary {
        ContainerSummary {
            state: Some(state),
            created: Some(created),
            labels: Some(HashMap::from([(label::EXPIRES.to_owned(), expires.to_owned())])),
            ..Default::default()
        }
    }

    #[test]
    fn a_living_sandbox_is_left_alone_until_its_end_is_past() {
        for state in [State::RUNNING, State::PAUSED, State::CREATED, State::EXITED] {
            assert!(!is_left_behind(
                &container(state, 9_999, "20000"),
                Some(9_999),
                NOW
            ));
            assert!(is_left_behind(
                &container(state, 9_999, "19999"),
                Some(9_999),
                NOW
            ));
        }
    }

    #[test]
    fn what_has_ended_stays_a_while_for_whoever_reads_its_end() {
        let exited = container(State::EXITED, 1, "30000");
        assert!(!is_left_behind(&exited, Some(10_000 - ENDED_S), NOW));
        assert!(is_left_behind(&exited, Some(10_000 - ENDED_S - 1), NOW));
        assert!(!is_left_behind(&exited, None, NOW));
    }

    #[test]
    fn what_was_never_started_is_removed_after_a_minute() {
        let created = |at| container(State::CREATED, at, "30000");
        assert!(!is_left_behind(&created(10_000 - UNSTARTED_S), None, NOW));
        assert!(is_left_behind(&created(10_000 - UNSTARTED_S - 1), None, NOW));
    }

    #[test]
    fn of_an_executors_containers_those_that_are_held_here_and_other_deployments_stay() {
        let held = Arc::new(Held::default());
        let (ours, dead) = (SandboxId::new(), SandboxId::new());
        let labels = |deployment: &str, id: SandboxId| {
            HashMap::from([
                (label::DEPLOYMENT.to_owned(), deployment.to_owned()),
                (label::SANDBOX.to_owned(), id.to_string()),
            ])
        };
        let is = |labels: &HashMap<_, _>| is_of_a_predecessor(Some(labels), "a", &held);
        let living = held.add(ours);
        assert!(is(&labels("a", dead)));
        assert!(!is(&labels("b", dead)));
        assert!(!is(&labels("a", ours)));
        drop(living);
        assert!(is(&labels("a", ours)), "whoever held it is done with it");
        assert!(!is_of_a_predecessor(None, "a", &held));
    }

    #[test]
    fn a_label_that_can_not_be_read_proves_nothing() {
        assert!(!is_left_behind(&container(State::RUNNING, 1, "soon"), None, NOW));
        assert!(!is_past_its_end(None, i64::MAX));
    }
}
