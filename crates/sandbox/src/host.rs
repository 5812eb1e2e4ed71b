//! The host behind the engine, as it is now: what the engine says of it, and what the composition root's check makes of
//! that. Both are asked for again when the engine is back after it was away, or has read its configuration, so that no
//! record names an engine that was there before.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, SubsecRound as _, Utc};
use futures_util::StreamExt as _;
use mayfly_core::{
    chain::Chain,
    clock::Clock,
    host::{HostFacts, Posture},
};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    engine::{CgroupVersion, Engine, EngineFacts, EngineWord},
    error::EngineError,
};

/// The wait between two looks at an engine that is away, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often an engine is asked that does not tell when it has to be.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long a sandbox waits for an engine that is back to be looked at.
const FRESH_LIMIT: Duration = Duration::from_secs(1);

/// What a check makes of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// What is demanded of it.
    pub posture: Posture,
    /// Names of what it misses, accepted or not.
    pub missed: Vec<String>,
    /// Names of what could not be looked at.
    pub not_checked: Vec<String>,
    /// Those of the missed for which no sandbox may be made on it.
    pub refused: Vec<Refused>,
}

/// Something that a host misses and that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// What was found, what that means, and how to mend it.
    pub why: String,
}

/// How a host is judged: a function of what its engine says, which may read files of this host, and briefly.
#[derive(Clone)]
pub struct HostCheck(Arc<dyn Fn(&EngineFacts) -> Preflight + Send + Sync>);

impl HostCheck {
    /// A check.
    pub fn new(check: impl Fn(&EngineFacts) -> Preflight + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for HostCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCheck")
    }
}

/// A host as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundHost {
    /// What the engine says.
    pub engine: EngineFacts,
    /// What the check makes of it; none where nobody checks.
    pub preflight: Option<Preflight>,
    /// When.
    pub at: DateTime<Utc>,
}

impl FoundHost {
    /// What keeps it from its work.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        self.preflight
            .as_ref()
            .map_or(&[], |preflight| preflight.refused.as_slice())
    }

    /// Whether it is what it was, found at another time.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        self.engine == other.engine && self.preflight == other.preflight
    }

    /// Nothing, or what says that no sandbox is made on it.
    pub(crate) fn admits(&self) -> Result<(), EngineError> {
        match self.refused() {
            [] => Ok(()),
            refused => Err(EngineError::HostUnfit(
                refused
                    .iter()
                    .map(|refused| format!("{}: {}", refused.name, refused.why))
                    .collect::<Vec<_>>()
                    .join("; "),
            )),
        }
    }

    /// What the record says of it, of a sandbox on this runtime.
    pub(crate) fn on_record(&self, runtime: &str) -> Option<HostFacts> {
        let preflight = self.preflight.as_ref()?;
        let own = self.engine.details.runtime.as_ref();
        Some(HostFacts {
            posture: preflight.posture,
            runtime_version: own
                .filter(|(name, _)| name == runtime)
                .map(|(_, version)| version.clone()),
            containerd: self.engine.details.containerd.clone(),
            kernel: self.engine.kernel.clone(),
            cgroup_version: match self.engine.cgroup {
                CgroupVersion::V1 => 1,
                CgroupVersion::V2 => 2,
            },
            lsm: self.engine.lsm(),
            missed: preflight.missed.clone(),
            not_checked: preflight.not_checked.clone(),
            checked_at: self.at,
        })
    }
}

/// What looks at the host, again and again.
pub(crate) struct Host {
    look: Look,
    known: Arc<watch::Sender<Known>>,
    /// The one task that waits for the engine's words. It ends with this.
    _watcher: JoinSet<()>,
}

/// What is known of the host.
#[derive(Debug, Clone)]
struct Known {
    host: Arc<FoundHost>,
    /// The engine was away since, or has read its configuration.
    stale: bool,
}

#[derive(Clone)]
struct Look {
    engine: Engine,
    check: Option<HostCheck>,
    clock: Arc<dyn Clock>,
}

impl Host {
    /// The host by what the engine has said at the first contact.
    pub(crate) async fn begin(engine: Engine, check: Option<HostCheck>, clock: Arc<dyn Clock>) -> Self {
        let look = Look { engine, check, clock };
        let host = look.judge(look.engine.facts().clone()).await;
        let known = Arc::new(watch::Sender::new(Known {
            host: Arc::new(host),
            stale: false,
        }));
        let mut watcher = JoinSet::new();
        watcher.spawn(watch(look.clone(), Arc::clone(&known)));
        Self {
            look,
            known,
            _watcher: watcher,
        }
    }

    /// What the host is now. An engine that is back has to be looked at first.
    ///
    /// # Errors
    /// [`EngineError::TimedOut`] where it does not say in time what it is.
    pub(crate) async fn now(&self) -> Result<Arc<FoundHost>, EngineError> {
        let mut known = self.known.subscribe();
        let fresh = tokio::time::timeout(FRESH_LIMIT, known.wait_for(|known| !known.stale)).await;
        match fresh {
            Ok(Ok(known)) => Ok(Arc::clone(&known.host)),
            // The sender lives as long as this.
            Ok(Err(_)) | Err(_) => Err(EngineError::TimedOut {
                doing: "say what it is",
                seconds: FRESH_LIMIT.as_secs(),
            }),
        }
    }

    /// Looks at it at once.
    pub(crate) async fn look(&self) -> Result<Arc<FoundHost>, EngineError> {
        let host = Arc::new(self.look.now().await?);
        self.known.send_modify(|known| known.host = Arc::clone(&host));
        Ok(host)
    }

    /// Resolves when the host is known to be another than this one.
    pub(crate) async fn differs_from(&self, host: &FoundHost) {
        let mut known = self.known.subscribe();
        let differs = known.wait_for(|known| !known.stale && !known.host.is_as(host));
        differs.await.expect("the sender lives as long as this");
    }
}

impl Look {
    async fn now(&self) -> Result<FoundHost, EngineError> {
        Ok(self.judge(self.engine.facts_now().await?).await)
    }

    async fn judge(&self, engine: EngineFacts) -> FoundHost {
        let at = self.clock.now().trunc_subsecs(3);
        let Some(HostCheck(check)) = self.check.clone() else {
            return FoundHost {
                engine,
                preflight: None,
                at,
            };
        };
        let judged = tokio::task::spawn_blocking(move || {
            let preflight = check(&engine);
            (engine, preflight)
        });
        match judged.await {
            Ok((engine, preflight)) => FoundHost {
                engine,
                preflight: Some(preflight),
                at,
            },
            // Nobody aborts it.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Looks at the host whenever the engine's words say that it may be another.
async fn watch(look: Look, known: Arc<watch::Sender<Known>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut words = look.engine.words();
        // The way to its words is open before it is asked what it is, or it could be another in between.
        let found = tokio::select! {
            biased;
            word = words.next() => Err(word),
            found = look.now() => Ok(found),
        };
        let begun = Instant::now();
        let word = match found {
            Ok(Ok(host)) => {
                learn(&known, host);
                words.next().await
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %Chain(&error), "the engine does not say what it is");
                None
            }
            Err(word) => word,
        };
        match word {
            Some(EngineWord::Refused) => {
                tokio::time::sleep(LOOK_EVERY).await;
                match look.now().await {
                    Ok(host) => learn(&known, host),
                    Err(error) => {
                        tracing::debug!(error = %Chain(&error), "the engine does not say what it is");
                    }
                }
                continue;
            }
            Some(EngineWord::Reloaded | EngineWord::Gone) | None => {
                known.send_modify(|known| known.stale = true);
            }
        }
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn learn(known: &watch::Sender<Known>, host: FoundHost) {
    let host = Arc::new(host);
    let before = known.send_replace(Known {
        host: Arc::clone(&host),
        stale: false,
    });
    if !host.is_as(&before.host) {
        tracing::warn!(
            engine = host.engine.engine(),
            engine_before = before.host.engine.engine(),
            kernel = host.engine.kernel,
            missed = host
                .preflight
                .as_ref()
                .map(|preflight| preflight.missed.join(", ")),
            "the engine's host is not what it was"
        );
    }
}
