//! `mayfly dev`: the API of a fleet on the embedded defaults, for one person on one host: a file for a database, a queue in
//! memory, the local engine. It is the same API; what the embedded side can't do, replicas and executors of their own, it
//! has not.

use std::{process::ExitCode, sync::Arc};

use async_trait::async_trait;
use mayfly_api::{
    ApiKey,
    seams::{HealthSource, Nothing},
};
use mayfly_core::{account::Role, chain::Chain, id::TenantId, image::ImageName};
use mayfly_server::keep_sweeping_uploads;
use mayfly_store::{
    accounts::{KeysOf, NewKey, NewTenant, Quotas, Standing, USUAL_WEIGHT},
    seam::{MAX_PAGE, Store},
};
use mayfly_wire::health::Check;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    api::{self, Serving, look_at_database},
    hub::SharedHub,
    letters::Letters,
    vault,
};
use crate::{
    args::{Common, fleet::DevArgs},
    context::{self, Session},
    embedded::{Embedded, Requests},
    exit,
    failure::Failure,
    terminal::print,
};

/// What the tenant of a database for one person is called, and its key.
const TENANT: &str = "local";
const KEY: &str = "dev";

pub(crate) async fn dev(common: &Common, args: DevArgs) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    let settings = context::settings(context::service(common))?;
    let listen = settings.server.listen;
    if !listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "setting `server.listen`: {listen} can be reached from other hosts, and `mayfly dev` is for this one: \
             `mayfly server` serves others"
        )));
    }
    let session = Session::with(settings).await?;
    vault::make(&session.settings)?;
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
    let (embedded, _uids) = started.await?;
    let (stop, failed) = (CancellationToken::new(), CancellationToken::new());
    let serving = serve(&session, &embedded, hub, stop.clone(), failed.clone()).await?;
    let tasks = TaskTracker::new();
    let sweeping = tasks.spawn(keep_sweeping_uploads(
        Arc::clone(&session.store),
        Arc::clone(&session.clock),
        session.settings.uploads.keep.as_duration(),
        stop.clone(),
    ));
    // Last, since it is shown once.
    let key = first_key(&session, args.new_key).await?;
    print(&greeting(&serving.url, key.as_ref()))?;
    let code = tokio::select! {
        () = requests.next() => exit::OK,
        () = failed.cancelled() => exit::INTERNAL,
    };
    stop.cancel();
    let grace = session.settings.server.grace.as_duration();
    if tokio::time::timeout(grace, serving.task).await.is_err() {
        tracing::warn!("requests that were under way have been cut off");
    }
    if let Err(error) = sweeping.await {
        tracing::error!(error = %Chain(&error), "the sweep of uploads has panicked");
    }
    let brake = embedded.brake();
    let end = embedded.stop();
    let mut end = std::pin::pin!(end);
    tokio::select! {
        () = &mut end => return Ok(ExitCode::from(code)),
        () = requests.next() => brake.abort(),
        () = tokio::time::sleep(session.settings.executor.grace.as_duration()) => brake.abort(),
    }
    end.await;
    Ok(ExitCode::from(exit::SOME_FAILED))
}

/// Serves the API of roles that are embedded in this process; `hub` hears their output.
pub(crate) async fn serve(
    session: &Session,
    embedded: &Embedded,
    hub: SharedHub,
    stop: CancellationToken,
    failed: CancellationToken,
) -> Result<Serving, Failure> {
    api::serve(parts(session, embedded, hub), stop, failed).await
}

/// What the API of embedded roles is made of.
pub(crate) fn parts<'a>(session: &'a Session, embedded: &Embedded, hub: SharedHub) -> api::Parts<'a> {
    api::Parts {
        settings: &session.settings,
        store: Arc::clone(&session.store),
        clock: Arc::clone(&session.clock),
        pool: embedded.pool().to_owned(),
        server: Arc::clone(embedded.server()),
        live: Arc::new(hub),
        fleet: Arc::new(Nothing),
        dead_letters: Arc::new(Letters {
            store: Arc::clone(&session.store),
            server: Arc::clone(embedded.server()),
        }),
        health: Arc::new(Health(Arc::clone(&session.store))),
        keeps_artifacts: true,
        vault: embedded.vault(),
    }
}

fn greeting(url: &str, key: Option<&ApiKey>) -> String {
    match key {
        Some(key) => format!(
            "mayfly dev serves {url}\nkey (shown this once): {}\n\n  curl -H \"Authorization: Bearer $KEY\" {url}/v1/whoami\n",
            key.reveal()
        ),
        None => format!(
            "mayfly dev serves {url}\nits key was shown at the first start; --new-key makes another\n"
        ),
    }
}

/// The key of whoever has this database, which is not there yet, or where another one is asked for.
pub(crate) async fn first_key(session: &Session, another: bool) -> Result<Option<ApiKey>, Failure> {
    let (store, now) = (&session.store, session.clock.now());
    if store.find_tenant(TenantId::LOCAL).await?.is_none() {
        let tenant = NewTenant {
            id: TenantId::LOCAL,
            name: TENANT.to_owned(),
            weight: USUAL_WEIGHT,
            quotas: Quotas::default(),
        };
        store.create_tenant(tenant, None, now).await?;
    }
    let keys = store
        .list_keys(KeysOf::Tenant(TenantId::LOCAL), None, MAX_PAGE, now)
        .await?;
    let has_one = keys
        .iter()
        .any(|key| key.name == KEY && key.standing == Standing::Valid);
    if has_one && !another {
        return Ok(None);
    }
    let key = ApiKey::generate();
    let record = NewKey {
        id: key.id(),
        tenant: Some(TenantId::LOCAL),
        role: Role::Admin,
        name: KEY.to_owned(),
        secret: key.digest(),
        expires_at: None,
    };
    store.create_key(record, None, now).await?;
    Ok(Some(key))
}

struct Health(Arc<dyn Store>);

#[async_trait]
impl HealthSource for Health {
    async fn checks(&self) -> Vec<Check> {
        vec![look_at_database(&*self.0).await]
    }
}
