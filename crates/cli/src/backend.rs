//! Where programs of a model run: at the server that the settings name, or on this host, by the roles of a fleet in this
//! process and their API. It is the same client of the same API either way.

use std::sync::Arc;

use mayfly_api::Api;
use mayfly_client::{ApiKey, Client};
use mayfly_core::{account::Role, id::TenantId, image::ImageName};
use mayfly_settings::Settings;
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::Common,
    context::Session,
    embedded::Embedded,
    exit,
    failure::Failure,
    fleet::{dev, hub::SharedHub},
    place::Place,
    remote::MAX_ANSWER,
    uids::UidLock,
};

/// Where programs run.
pub(crate) struct Backend {
    /// A client of the API there.
    pub(crate) client: Client,
    /// The settings that say where it is.
    pub(crate) settings: Settings,
    here: Option<Here>,
}

/// The roles of this process.
struct Here {
    embedded: Embedded,
    _uids: UidLock,
    attending: JoinHandle<()>,
    stop: CancellationToken,
}

impl Backend {
    /// The server of the settings, or the roles of this process where they name none or a flag says so. The default image is
    /// in the catalog then.
    pub(crate) async fn of(common: &Common) -> Result<Self, Failure> {
        match Place::of(common)? {
            Place::Server(remote) => Ok(Self {
                client: remote.client,
                settings: remote.settings,
                here: None,
            }),
            Place::Here(settings) => Self::here(*settings).await,
        }
    }

    async fn here(settings: Settings) -> Result<Self, Failure> {
        let session = Session::with(settings).await?;
        let reached = session.engine().await?;
        let usual = session
            .settings
            .image
            .default
            .parse::<ImageName>()
            .map_err(Failure::usage)?;
        session.catalog(&reached).resolve(&usual).await?;
        let hub = SharedHub::default();
        let slots = session.settings.executor.slots;
        let started = session.roles(slots, Arc::new(hub.clone()), &session.settings.pool);
        let (embedded, uids) = started.await?;
        let parts = dev::parts(&session, &embedded, hub).into_api();
        // By a key of this process alone: it is on no record, and no connection leads here.
        let (api, key) = Api::in_process(parts, TenantId::LOCAL, Role::Submitter);
        let key = ApiKey::new(&key.reveal()).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let client = Client::in_process(api.router(), Some(key), MAX_ANSWER)?;
        let stop = CancellationToken::new();
        let attending = TaskTracker::new().spawn(api.attend(stop.clone()));
        Ok(Self {
            client,
            settings: session.settings,
            here: Some(Here {
                embedded,
                _uids: uids,
                attending,
                stop,
            }),
        })
    }

    /// Whether programs run in this process, and end with it.
    pub(crate) const fn is_here(&self) -> bool {
        self.here.is_some()
    }

    /// Ends the roles of this process, where there are any, and kills what still runs in them: nobody is left who waits.
    pub(crate) async fn stop(self) {
        let Some(here) = self.here else { return };
        here.stop.cancel();
        if let Err(error) = here.attending.await {
            tracing::error!(error = %mayfly_core::chain::Chain(&error), "a part of the API has panicked");
        }
        here.embedded.brake().abort();
        here.embedded.stop().await;
    }
}
