//! The HTTP API of the server role: `/v1`, its OpenAPI document and the page about that.
//!
//! Start with [`Api`]; `routes` lists every route beside what it does, and [`access`] says who may. A handler takes what
//! it needs out of a request (`extract`), asks the store, and shows what it has found (`show`). `envelope` is around all:
//! there every error becomes a problem document, and causes go to the log and nowhere else.
//!
//! ```text
//! Api::serve
//! ├── waiters       one look at the store for each commit, for all who wait
//! └── connections   one task each, bounded in number; ended last
//! ```
//!
//! Decided here: what waits is woken by commits and never polls; a body, a list, a stream, the requests of a key and those
//! at once all have bounds ([`ApiLimits`]); another tenant's things read like things that do not exist. Absent on purpose:
//! the broker, which is behind the seams of [`seams`].

pub mod access;
mod app;
mod auth;
mod cache;
mod envelope;
mod error;
mod expansion;
mod extract;
mod key;
mod page;
mod rate;
mod resolve;
mod routes;
pub mod seams;
mod serve;
mod show;
mod waiters;

pub use key::{ApiKey, ParseKeyError, prefix};
pub use routes::ACTION;
pub use serve::{ServeError, TlsError, tls_config};

use std::{sync::Arc, time::Duration};

use axum::Router;
use mayfly_core::{
    account::Role,
    clock::Clock,
    digest::Digest,
    id::TenantId,
    job::ResolvedJob,
    policy::Policy,
    units::{ByteSize, Span},
};
use mayfly_dispatch::ledger::Context;
use mayfly_store::{
    accounts::{KeyRecord, Standing},
    seam::Store,
};
use mayfly_vault::Vault;
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::{
    app::{App, Shared},
    seams::{DeadLetterDesk, Fleet, HealthSource, LiveOutputSource},
};

/// What the API is made of.
pub struct ApiParts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// The rules for jobs.
    pub policy: Policy,
    /// Whether executors have a way to leave files that jobs ask to keep.
    pub keeps_artifacts: bool,
    /// How much is kept of what tenants upload.
    pub uploads: UploadRules,
    /// What named secrets are sealed with; where there is none, none are kept.
    pub vault: Option<Arc<Vault>>,
    /// Digest of what the sandbox enforces beside them: a part of the policy's version.
    pub baseline: Digest,
    /// Which pool's executors a job is for.
    pub pool: Arc<dyn Fn(&ResolvedJob) -> String + Send + Sync>,
    /// What a decision about a running job takes into account now.
    pub context: Arc<dyn Fn() -> Context + Send + Sync>,
    /// What running jobs write.
    pub live: Arc<dyn LiveOutputSource>,
    /// The executors.
    pub fleet: Arc<dyn Fleet>,
    /// Messages that were set aside.
    pub dead_letters: Arc<dyn DeadLetterDesk>,
    /// What the server needs.
    pub health: Arc<dyn HealthSource>,
    /// How much at once.
    pub limits: ApiLimits,
}

/// What is kept of uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadRules {
    /// Most bytes of one.
    pub file: ByteSize,
    /// Most bytes of a tenant's.
    pub total: ByteSize,
    /// Most of a tenant's.
    pub count: u32,
    /// How long one is kept after its last use.
    pub keep: Span,
}

/// Bounds of the API.
#[derive(Debug, Clone, Copy)]
pub struct ApiLimits {
    /// Largest body of one request.
    pub body: ByteSize,
    /// Bodies in memory at once.
    pub bodies: ByteSize,
    /// What the archives of one request may expand to. Of all requests at once it is as much as of bodies.
    pub expanded: ByteSize,
    /// Connections at once.
    pub connections: usize,
    /// Requests at once, those that wait for a job's end among them.
    pub requests: usize,
    /// Streams at once.
    pub streams: usize,
    /// Requests of one key in a second.
    pub requests_per_second: u32,
    /// Requests of one key at once after a pause.
    pub burst: u32,
    /// Requests in a second whose key opens nothing, of everybody together.
    pub failures_per_second: u32,
    /// How often a stream looks whether its key is valid still.
    pub look_again: Duration,
}

impl ApiLimits {
    /// Those of a server with some GiB of memory: 24 MiB a body, which holds the largest job of the usual policy in
    /// base64, and 256 MiB of bodies at once, with 64 MiB for the archives of one.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            body: ByteSize::mib(24),
            bodies: ByteSize::mib(256),
            expanded: ByteSize::mib(64),
            connections: 4096,
            requests: 4096,
            streams: 1024,
            requests_per_second: 1000,
            burst: 2000,
            failures_per_second: 50,
            look_again: Duration::from_secs(15),
        }
    }
}

/// The API, not serving yet.
pub struct Api {
    app: Shared,
    /// Routes of other protocols.
    beside: Vec<Router>,
}

impl Api {
    /// An API of these parts.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        Self {
            app: Arc::new(App::new(parts, None)),
            beside: Vec::new(),
        }
    }

    /// An API for callers in this process alone, and the one key beside those on record that opens it. It is kept nowhere, and
    /// ends with the API. What [`Api::router`] gives answers for as long as [`Api::attend`] runs.
    #[must_use]
    pub fn in_process(parts: ApiParts, tenant: TenantId, role: Role) -> (Self, ApiKey) {
        let key = ApiKey::generate();
        let record = KeyRecord {
            id: key.id(),
            tenant: Some(tenant),
            role,
            name: "in-process".to_owned(),
            secret: key.digest(),
            created_at: parts.clock.now(),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            standing: Standing::Valid,
        };
        let app = Arc::new(App::new(parts, Some(record)));
        let beside = Vec::new();
        (Self { app, beside }, key)
    }

    /// The same with a route of another protocol, which is no part of the document. A valid API key is needed for it; the rest
    /// is for the route to judge. Its refusals are in the words of its own protocol.
    #[must_use]
    pub fn with_route(mut self, route: Router) -> Self {
        self.beside.push(route);
        self
    }

    /// The OpenAPI document, as it is served.
    #[must_use]
    pub fn document(&self) -> utoipa::openapi::OpenApi {
        routes::document(&self.app)
    }

    /// Serves on a listener, with TLS where it is given, until it is asked to stop. Then nothing new is taken, streams and
    /// waits end, and what is under way is finished, within 30 seconds.
    ///
    /// # Errors
    /// A listener that can't accept any more. Nothing is under way then.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let router = self.router();
        serve::run(&self.app, router, listener, tls, stop).await
    }

    /// What is beside the routes where they are not served by [`Api::serve`]: wakes whoever waits, until it is asked to stop.
    /// Then waits and streams end.
    pub async fn attend(self, stop: CancellationToken) {
        self.app.waiters.run(stop).await;
        self.app.stop.cancel();
    }

    /// Every route, with its guard.
    pub fn router(&self) -> Router {
        routes::router(&self.app, &self.beside)
    }
}
