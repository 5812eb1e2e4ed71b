//! What every command has: settings, the database, the clock; and what some of them ask for: the engine, the roles.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use mayfly_core::{
    chain::Chain,
    clock::Clock,
    id::ExecutorId,
    image::{ImageName, ImagePin},
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_executor::{Listeners, Outside};
use mayfly_sandbox::{
    DockerSandbox, HostCheck,
    engine::Engine,
    images::Images,
    pool::WarmPool,
    seam::{LiveOutput, Sandbox, SandboxConfig, UidRange},
};
use mayfly_settings::{PoolSettings, Posture, SandboxSettings, Settings, Stranger, Surroundings};
use mayfly_store::seam::Store;
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;

use crate::{
    args::Common,
    catalog::Catalog,
    credentials, doctor,
    embedded::{Embedded, EmbeddedParts, OneListener},
    failure::Failure,
    own,
    pool::{self, PoolParts},
    uids::{self, UidLock},
};

/// A command's surroundings.
pub(crate) struct Session {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What lies beside the database, by the one path that the database has: others may reach it by a link, and must find the
/// same locks.
pub(crate) fn beside(database: &Path, name: &str) -> PathBuf {
    let real = std::fs::canonicalize(database);
    real.unwrap_or_else(|_| database.to_owned()).with_file_name(name)
}

/// A container engine that answers.
pub(crate) struct Reached {
    images: Images,
}

impl From<Engine> for Reached {
    fn from(engine: Engine) -> Self {
        Self {
            images: Images::new(engine),
        }
    }
}

impl Session {
    /// Reads the settings, sets log lines up and opens the database.
    pub(crate) async fn begin(common: &Common) -> Result<Self, Failure> {
        Self::with(settings(surroundings(common))?).await
    }

    /// With settings that were read already.
    pub(crate) async fn with(settings: Settings) -> Result<Self, Failure> {
        let store = SqliteStore::open(&settings.store.path).await?;
        Ok(Self {
            settings,
            store: Arc::new(store),
            clock: Arc::new(SystemClock),
        })
    }

    /// Connects to the engine.
    pub(crate) async fn engine(&self) -> Result<Reached, Failure> {
        Ok(Engine::connect(self.address()).await?.into())
    }

    /// The image catalog, on an engine.
    pub(crate) fn catalog<'a>(&'a self, reached: &'a Reached) -> Catalog<'a> {
        Catalog {
            store: &*self.store,
            images: &reached.images,
            settings: &self.settings.image,
            clock: &*self.clock,
        }
    }

    /// Starts the roles of a fleet in this process, for so many jobs at a time, with a pool of warm sandboxes: that of
    /// the settings, or one that is off. The uids of their sandboxes are this process's for as long as the lock is held.
    pub(crate) async fn embedded(
        &self,
        slots: u32,
        live: Arc<dyn LiveOutput>,
        pool: &PoolSettings,
    ) -> Result<(Embedded, UidLock), Failure> {
        self.roles(slots, Arc::new(OneListener(live)), pool).await
    }

    /// The same, with a listener for each job.
    pub(crate) async fn roles(
        &self,
        slots: u32,
        listeners: Arc<dyn Listeners>,
        pool: &PoolSettings,
    ) -> Result<(Embedded, UidLock), Failure> {
        pool.fits_beside(slots)?;
        let (sandbox, lock) = self.sandboxes().await?;
        let engine = sandbox.engine().facts();
        let facts = ExecutorFacts {
            engine: format!("{} {}", engine.name, engine.version),
            kernel: engine.kernel.clone(),
            ..ExecutorFacts::default()
        };
        let executor = ExecutorId::new();
        let warm = if pool.is_off() {
            None
        } else {
            let pins = self.pins(pool, sandbox.engine()).await?;
            let config = pool::config(&PoolParts {
                pool,
                policy: &self.settings.policy,
                engine: sandbox.engine(),
                executor,
                pins: &pins,
            })?;
            Some(WarmPool::start(Arc::<DockerSandbox>::clone(&sandbox), config))
        };
        let counts = warm.as_ref().map(Arc::downgrade);
        let source: Arc<dyn Sandbox> = match warm {
            Some(warm) => warm,
            None => Arc::<DockerSandbox>::clone(&sandbox),
        };
        let parts = EmbeddedParts {
            executor,
            processes: beside(&self.settings.store.path, "processes"),
            containers_at: self.containers_at(sandbox.engine()),
            store: Arc::clone(&self.store),
            sandbox: source,
            clock: Arc::clone(&self.clock),
            outside: Outside::of_host(own::addresses(&self.settings, &[]).await?)
                .with_credentials(credentials::of(&self.settings)?),
            #[cfg(feature = "fleet")]
            vault: crate::fleet::vault::of(&self.settings)?,
            listeners,
            facts,
            slots,
        };
        let embedded = Embedded::start(parts).await?.with_pool(counts);
        // What a process left behind that was killed is removed by the next one, beside its own work.
        embedded.beside(async move {
            match sandbox.sweep().await {
                Ok(swept) if swept.removed > 0 => {
                    tracing::info!(swept.removed, "removed what was left behind")
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "could not look for what was left behind")
                }
            }
        });
        Ok((embedded, lock))
    }

    /// What the names in a pool's settings mean on an engine, by the catalog.
    async fn pins(
        &self,
        pool: &PoolSettings,
        engine: &Engine,
    ) -> Result<BTreeMap<String, ImagePin>, Failure> {
        let reached = Reached::from(engine.clone());
        let mut pins = BTreeMap::new();
        for text in pool.images.keys() {
            let name = text.parse::<ImageName>().map_err(Failure::usage)?;
            pins.insert(text.clone(), self.catalog(&reached).resolve(&name).await?);
        }
        Ok(pins)
    }

    /// Sandboxes on the engine, with uids that are theirs for as long as the lock is held.
    pub(crate) async fn sandboxes(&self) -> Result<(Arc<DockerSandbox>, UidLock), Failure> {
        let settings = &self.settings.sandbox;
        let check = doctor::host_check(settings, Posture::Development, &[]);
        sandboxes(settings, check, &self.clock).await
    }

    /// What containers of this process can be found by: engine and deployment.
    fn containers_at(&self, engine: &Engine) -> String {
        let id = &engine.facts().id;
        let engine = if id.is_empty() {
            self.address().unwrap_or_default()
        } else {
            id
        };
        format!("{engine}\n{}", self.settings.sandbox.deployment)
    }

    /// Where the engine is, if the settings say so.
    pub(crate) fn address(&self) -> Option<&str> {
        address(&self.settings.sandbox)
    }
}

/// Where the engine is, if the settings say so.
pub(crate) fn address(settings: &SandboxSettings) -> Option<&str> {
    Some(settings.engine.as_str()).filter(|address| !address.is_empty())
}

/// What the settings of a process that stays are read from.
#[cfg(feature = "fleet")]
pub(crate) fn service(common: &Common) -> Surroundings {
    Surroundings {
        is_service: true,
        ..surroundings(common)
    }
}

/// Reads the settings and sets log lines up.
pub(crate) fn settings(surroundings: Surroundings) -> Result<Settings, Failure> {
    let settings = Settings::load(&surroundings)?;
    mayfly_telemetry::init(&settings.log.filter, settings.log.format)?;
    for Stranger { name, meant } in Settings::sources(&surroundings).strangers {
        let meant = meant.map_or_else(String::new, |meant| format!(": is {meant} meant?"));
        tracing::warn!("the variable {name} is no setting, and has no effect{meant}");
    }
    Ok(settings)
}

/// Sandboxes on the engine of these settings, with uids that are theirs for as long as the lock is held.
pub(crate) async fn sandboxes(
    settings: &SandboxSettings,
    check: HostCheck,
    clock: &Arc<dyn Clock>,
) -> Result<(Arc<DockerSandbox>, UidLock), Failure> {
    let lock = uids::take(settings.first_uid)?;
    let config = sandbox_config(settings, &lock, check);
    Ok((DockerSandbox::connect(config, Arc::clone(clock)).await?, lock))
}

/// What sandboxes of this process are made by.
pub(crate) fn sandbox_config(settings: &SandboxSettings, lock: &UidLock, check: HostCheck) -> SandboxConfig {
    SandboxConfig {
        engine: address(settings).map(ToOwned::to_owned),
        deployment: settings.deployment.clone(),
        uids: UidRange {
            first: lock.first(),
            count: uids::COUNT,
        },
        guest: (!settings.guest.as_os_str().is_empty()).then(|| settings.guest.clone()),
        kill_grace: settings.kill_grace.as_duration(),
        host_check: Some(check),
    }
}

/// What settings are read from.
pub(crate) fn surroundings(common: &Common) -> Surroundings {
    Surroundings {
        variables: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        is_service: false,
        file: common.config.clone(),
        flags: common
            .log
            .iter()
            .map(|filter| ("log.filter", filter.clone()))
            .collect(),
    }
}
