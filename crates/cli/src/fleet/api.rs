//! The API of a role: where it listens, what it is made of, and how the role's own health looks from outside.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_api::{
    Api, ApiLimits, ApiParts, UploadRules,
    seams::{DeadLetterDesk, Fleet, HealthSource, LiveOutputSource},
    tls_config,
};
use mayfly_client::Client;
use mayfly_core::{chain::Chain, clock::Clock};
use mayfly_dispatch::{message::BlobPlaces, token::TokenKey};
use mayfly_queue::seam::Queue;
use mayfly_server::Server;
use mayfly_settings::{ServerSettings, Settings};
use mayfly_store::seam::Store;
use mayfly_vault::Vault;
use mayfly_wire::health::Check;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{exit, failure::Failure, mcp, remote::MAX_ANSWER};

/// How long one look at something that the server needs may take.
const LOOK_LIMIT: Duration = Duration::from_millis(1500);

/// What the API of a role is made of.
pub(crate) struct Parts<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The pool that jobs go to.
    pub(crate) pool: String,
    /// The dispatcher of that pool.
    pub(crate) server: Arc<Server>,
    pub(crate) live: Arc<dyn LiveOutputSource>,
    pub(crate) fleet: Arc<dyn Fleet>,
    pub(crate) dead_letters: Arc<dyn DeadLetterDesk>,
    pub(crate) health: Arc<dyn HealthSource>,
    /// Whether executors have a way to leave files.
    pub(crate) keeps_artifacts: bool,
    /// What named secrets are sealed with.
    pub(crate) vault: Option<Arc<Vault>>,
}

impl Parts<'_> {
    pub(crate) fn into_api(self) -> ApiParts {
        let (pool, server) = (self.pool, self.server);
        let uploads = &self.settings.uploads;
        ApiParts {
            store: self.store,
            clock: self.clock,
            policy: self.settings.policy.clone(),
            keeps_artifacts: self.keeps_artifacts,
            uploads: UploadRules {
                file: uploads.file,
                total: uploads.total,
                count: uploads.count,
                keep: uploads.keep,
            },
            vault: self.vault,
            baseline: mayfly_sandbox::baseline_digest(),
            pool: Arc::new(move |_| pool.clone()),
            context: Arc::new(move || server.context()),
            live: self.live,
            fleet: self.fleet,
            dead_letters: self.dead_letters,
            health: self.health,
            limits: ApiLimits::standard(),
        }
    }
}

/// An API that serves.
pub(crate) struct Serving {
    pub(crate) task: JoinHandle<()>,
    /// Where clients reach it.
    pub(crate) url: String,
}

/// Begins to serve. It ends in order when `stop` is canceled, and cancels `failed` where it ends otherwise.
pub(crate) async fn serve(
    parts: Parts<'_>,
    stop: CancellationToken,
    failed: CancellationToken,
) -> Result<Serving, Failure> {
    let settings = &parts.settings.server;
    let tls = if settings.tls_cert.as_os_str().is_empty() {
        None
    } else {
        let [chain, key] = [read(&settings.tls_cert)?, read(&settings.tls_key)?];
        let config = tls_config(&chain, &key).map_err(|error| Failure::new(exit::USAGE, error))?;
        Some(config)
    };
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
        let error = anyhow::Error::new(error)
            .context(format!("can't listen on {} (`server.listen`)", settings.listen));
        Failure::new(exit::INTERNAL, error)
    })?;
    let bound = listener
        .local_addr()
        .map_err(|error| Failure::new(exit::INTERNAL, error))?;
    let url = url(&settings.public_url, bound, tls.is_some());
    let settings = parts.settings;
    let api = Api::new(parts.into_api());
    let own = Client::in_process(api.router(), None, MAX_ANSWER)?;
    let api = match mcp::route(settings, own)? {
        Some(route) => api.with_route(route),
        None => api,
    };
    tracing::info!(%url, listen = %bound, "the API is served");
    let task = tokio_util::task::TaskTracker::new().spawn(async move {
        if let Err(error) = api.serve(listener, tls, stop).await {
            tracing::error!(error = %Chain(&error), "the API is served no more");
            failed.cancel();
        }
    });
    Ok(Serving { task, url })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be read", path.display()));
        Failure::new(exit::NO_INPUT, error)
    })
}

fn url(public: &str, bound: SocketAddr, tls: bool) -> String {
    if public.is_empty() {
        format!("{}://{bound}", if tls { "https" } else { "http" })
    } else {
        public.trim_end_matches('/').to_owned()
    }
}

/// Where executors fetch what is too long for a message; none where they are not told how to reach the server.
pub(crate) fn blobs(settings: &ServerSettings, key: &TokenKey) -> Option<BlobPlaces> {
    (!settings.public_url.is_empty()).then(|| BlobPlaces {
        base: settings.public_url.trim_end_matches('/').to_owned(),
        key: key.blob_key(),
        input_above: settings.input_in_message.as_bytes(),
        output_above: settings.output_in_message.as_bytes(),
    })
}

/// The database and the broker, looked at.
pub(crate) struct Health {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn Queue>,
}

#[async_trait]
impl HealthSource for Health {
    async fn checks(&self) -> Vec<Check> {
        let broker = self.queue.health();
        let reason = match &broker.blocked {
            None => "it does not answer: jobs are accepted, and wait until it does".to_owned(),
            Some(why) => {
                format!("it takes no messages at present ({why}): jobs are accepted, and wait until it does")
            }
        };
        let works = broker.connected && broker.blocked.is_none();
        vec![
            look_at_database(&*self.store).await,
            check("broker", false, works, &reason),
        ]
    }
}

/// Whether the database answers.
pub(crate) async fn look_at_database(store: &dyn Store) -> Check {
    let looked = tokio::time::timeout(LOOK_LIMIT, store.find_image("python")).await;
    let reason = "it does not answer: nothing can be accepted or looked up";
    check("database", true, matches!(looked, Ok(Ok(_))), reason)
}

fn check(name: &str, required: bool, ok: bool, reason: &str) -> Check {
    Check {
        name: name.to_owned(),
        ok,
        required,
        reason: (!ok).then(|| reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_the_public_address_where_there_is_one() {
        let bound = SocketAddr::from(([127, 0, 0, 1], 8420));
        assert_eq!(url("", bound, false), "http://127.0.0.1:8420");
        assert_eq!(url("", bound, true), "https://127.0.0.1:8420");
        assert_eq!(
            url("https://fleet.example/", bound, false),
            "https://fleet.example"
        );
    }
}
