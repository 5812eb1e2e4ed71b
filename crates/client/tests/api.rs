//! The client against the real API, over real connections on this host: a SQLite store, and no executor, so that jobs wait.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_api::{Api, ApiLimits, ApiParts, UploadRules, seams::Nothing};
use mayfly_client::{ApiKey, Client, ClientConfig, JobEvent, JobFilter, ServerUrl, SubmitAnswer};
use mayfly_core::{
    account::Role,
    clock::Clock,
    digest::Digest,
    id::TenantId,
    image::ImagePin,
    job::JobSpec,
    policy::Policy,
    units::{ByteSize, Span},
};
use mayfly_dispatch::{ledger::Context, timing::Timing, token::TokenKey};
use mayfly_store::{
    accounts::{NewKey, NewTenant, Quotas, USUAL_WEIGHT},
    seam::Store,
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_wire::{
    account::{ChangeTenant, NewTenant as TenantToMake},
    job::{CancelWord, State, SubmitMany},
    problem::Code,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A server on this host, and the keys of its two tenants.
struct Ground {
    store: Arc<dyn Store>,
    address: SocketAddr,
    admin: Client,
    submitter: Client,
    viewer: Client,
    stranger: Client,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
    _folder: tempfile::TempDir,
}

fn client(address: SocketAddr, key: &str) -> Client {
    Client::new(ClientConfig {
        server: ServerUrl::parse(&format!("http://{address}"), false).unwrap(),
        key: Some(ApiKey::new(key).unwrap()),
        ca: None,
        timeout: Duration::from_secs(20),
        patience: Duration::from_secs(20),
        max_answer: 16 << 20,
    })
    .unwrap()
}

async fn key(store: &Arc<dyn Store>, tenant: Option<TenantId>, role: Role) -> String {
    let key = mayfly_api::ApiKey::generate();
    let record = NewKey {
        id: key.id(),
        tenant,
        role,
        name: role.to_string(),
        secret: key.digest(),
        expires_at: None,
    };
    store.create_key(record, None, SystemClock.now()).await.unwrap();
    key.reveal()
}

fn parts(store: &Arc<dyn Store>) -> ApiParts {
    ApiParts {
        store: Arc::clone(store),
        clock: Arc::new(SystemClock),
        policy: Policy::default(),
        keeps_artifacts: true,
        uploads: UploadRules {
            file: ByteSize::mib(8),
            total: ByteSize::mib(12),
            count: 20,
            keep: Span::seconds(3600),
        },
        vault: None,
        baseline: Digest::of(b"baseline"),
        pool: Arc::new(|_| "default".to_owned()),
        context: Arc::new(|| {
            Context::new(
                SystemClock.now().into(),
                Timing::standard(),
                TokenKey::from_bytes([7; 32]),
                0,
            )
        }),
        live: Arc::new(Nothing),
        fleet: Arc::new(Nothing),
        dead_letters: Arc::new(Nothing),
        health: Arc::new(Nothing),
        limits: ApiLimits::standard(),
    }
}

fn serve(store: &Arc<dyn Store>, listener: TcpListener) -> (CancellationToken, JoinHandle<()>) {
    let api = Api::new(parts(store));
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let task = TaskTracker::new().spawn(async move { api.serve(listener, None, asked).await.unwrap() });
    (stop, task)
}

impl Ground {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&folder.path().join("jobs.db")).await.unwrap());
        let mut tenants = Vec::new();
        for name in ["team-a", "team-b"] {
            let tenant = NewTenant {
                id: TenantId::new(),
                name: name.to_owned(),
                weight: USUAL_WEIGHT,
                quotas: Quotas::default(),
            };
            tenants.push(
                store
                    .create_tenant(tenant, None, SystemClock.now())
                    .await
                    .unwrap()
                    .id,
            );
        }
        let digest = Digest::of(b"image");
        let pin = ImagePin {
            reference: "python:3".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        };
        store
            .pin_image("python", &pin, None, SystemClock.now())
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, two) = (Some(tenants[0]), Some(tenants[1]));
        Self {
            admin: client(address, &key(&store, None, Role::Admin).await),
            submitter: client(address, &key(&store, one, Role::Submitter).await),
            viewer: client(address, &key(&store, one, Role::Viewer).await),
            stranger: client(address, &key(&store, two, Role::Submitter).await),
            serving: Some(serve(&store, listener)),
            store,
            address,
            _folder: folder,
        }
    }

    /// Ends the server, its streams too.
    async fn stop(&mut self) {
        let (stop, task) = self.serving.take().unwrap();
        stop.cancel();
        task.await.unwrap();
    }

    /// Begins it again, where it was.
    async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serving = Some(serve(&self.store, listener));
    }
}

fn spec(labels: &[(&str, &str)]) -> JobSpec {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    serde_json::from_value(serde_json::json!({
        "image": "python",
        "source": {"text": "print(6*7)"},
        "labels": labels,
    }))
    .unwrap()
}

#[tokio::test]
async fn a_job_is_submitted_once_however_often_it_is_sent() {
    let ground = Ground::new().await;
    let (client, job) = (&ground.submitter, spec(&[]));
    let first = client.submit(&job, "key-1").await.unwrap();
    let again = client.submit(&job, "key-1").await.unwrap();
    assert_eq!((first.existing, again.existing), (false, true));
    assert_eq!(first.job, again.job);
    let other = client.submit(&spec(&[("a", "b")]), "key-1").await.unwrap_err();
    assert_eq!(other.code(), Some(Code::IdempotencyConflict));
    assert_eq!(
        client
            .jobs(&JobFilter::default(), 10)
            .take(10)
            .await
            .unwrap()
            .len(),
        1
    );
    let shown = client.job(first.job).await.unwrap();
    assert_eq!((shown.state, shown.attempts), (State::Queued, 0));
}

#[tokio::test]
async fn a_job_that_may_not_be_is_refused_with_all_its_faults() {
    let ground = Ground::new().await;
    let mut job = spec(&[]);
    job.runtime = Some("none".to_owned());
    job.limits.pids = Some(1_000_000);
    let error = ground.submitter.submit(&job, "key-1").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidJob));
    let text = error.to_string();
    assert!(text.contains("limits.pids") && text.contains("runtime"), "{text}");
    let mut unknown = spec(&[]);
    unknown.image = "nowhere".parse().unwrap();
    let error = ground.submitter.submit(&unknown, "key-2").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::ImageNotPinned));
    assert!(error.to_string().contains("mayfly image"), "{error}");
}

#[tokio::test]
async fn a_list_is_filtered_and_walked_to_its_end() {
    let ground = Ground::new().await;
    let client = &ground.submitter;
    let jobs = (0..7).map(|index| spec(&[("odd", if index % 2 == 1 { "yes" } else { "no" })]));
    let many = client
        .submit_many(&SubmitMany { jobs: jobs.collect() })
        .await
        .unwrap();
    let all = client
        .jobs(&JobFilter::default(), 2)
        .take(usize::MAX)
        .await
        .unwrap();
    let (mut sent, mut listed): (Vec<_>, Vec<_>) = (
        many.jobs.iter().map(|job| job.job).collect(),
        all.iter().map(|job| job.job).collect(),
    );
    sent.sort();
    listed.sort();
    assert_eq!(sent, listed);
    let filter = JobFilter {
        state: Some(State::Queued),
        label: Some("odd=yes".to_owned()),
        image: Some("python".parse().unwrap()),
        batch: None,
    };
    assert_eq!(client.jobs(&filter, 2).take(usize::MAX).await.unwrap().len(), 3);
    let none = JobFilter {
        state: Some(State::Failed),
        ..JobFilter::default()
    };
    assert!(client.jobs(&none, 2).next().await.unwrap().is_none());
}

#[tokio::test]
async fn another_tenants_job_is_not_there_and_a_role_may_not_more_than_it_may() {
    let ground = Ground::new().await;
    let job = ground.submitter.submit(&spec(&[]), "key-1").await.unwrap().job;
    assert_eq!(ground.viewer.job(job).await.unwrap().job, job);
    assert_eq!(
        ground.viewer.cancel(job).await.unwrap_err().code(),
        Some(Code::Forbidden)
    );
    for answer in [
        ground.stranger.job(job).await.map(drop),
        ground.stranger.cancel(job).await.map(drop),
        ground.stranger.events(job).next().await.map(drop),
    ] {
        assert_eq!(answer.unwrap_err().code(), Some(Code::NotFound));
    }
    let unknown = client(ground.address, &mayfly_api::ApiKey::generate().reveal());
    let error = unknown.whoami().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unauthenticated));
    assert!(error.to_string().contains("client.key"), "{error}");
}

#[tokio::test]
async fn who_waits_for_a_job_hears_of_its_end() {
    let ground = Ground::new().await;
    let client = &ground.submitter;
    let begun = Instant::now();
    let waited = client
        .submit_and_wait(&spec(&[]), "key-1", Duration::from_millis(300))
        .await
        .unwrap();
    let SubmitAnswer::Accepted(submitted) = waited else {
        panic!("{waited:?}")
    };
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let job = submitted.job;
    let (ended, canceled) = tokio::join!(client.wait(job, Duration::from_secs(10)), client.cancel(job));
    assert_eq!(canceled.unwrap().answer, CancelWord::Canceled);
    assert_eq!(ended.unwrap().state, State::Canceled);
    assert_eq!(client.cancel(job).await.unwrap().answer, CancelWord::Over);
    let again = client
        .submit_and_wait(&spec(&[]), "key-1", Duration::from_secs(1))
        .await
        .unwrap();
    assert!(matches!(again, SubmitAnswer::Ended(ended) if ended.job == job));
}

#[tokio::test]
async fn a_stream_outlives_its_server() {
    let mut ground = Ground::new().await;
    let client = ground.submitter.clone();
    let job = client.submit(&spec(&[]), "key-1").await.unwrap().job;
    let mut events = client.events(job);
    let first = events.next().await.unwrap();
    assert!(matches!(first, Some(JobEvent::State(state)) if state.state == State::Queued));
    ground.stop().await;
    let (next, ()) = tokio::join!(events.next(), async {
        ground.restart().await;
        client.cancel(job).await.unwrap();
    });
    // The state that was seen before is not seen again.
    assert!(matches!(next.unwrap(), Some(JobEvent::State(state)) if state.state == State::Canceled));
    assert!(matches!(events.next().await.unwrap(), Some(JobEvent::End(end)) if end.state == State::Canceled));
    assert_eq!(events.next().await.unwrap(), None);
    let audit = client.job_audit(job, 10).await.unwrap().events;
    let kinds: Vec<_> = audit.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds.first(), Some(&"job_submitted"));
}

#[tokio::test]
async fn tenants_and_keys_are_made_listed_and_revoked() {
    let ground = Ground::new().await;
    let admin = &ground.admin;
    let new = TenantToMake {
        name: "team-c".to_owned(),
        weight: Some(3),
        most_in_flight: Some(9),
        most_queued: None,
    };
    let tenant = admin.create_tenant(&new).await.unwrap();
    assert_eq!(
        admin.create_tenant(&new).await.unwrap_err().code(),
        Some(Code::Conflict)
    );
    let bounds = ChangeTenant {
        most_in_flight: Some(Some(3)),
        most_queued: Some(Some(5)),
        ..ChangeTenant::default()
    };
    admin.change_tenant(tenant.tenant, &bounds).await.unwrap();
    let without = ChangeTenant {
        most_in_flight: Some(None),
        ..ChangeTenant::default()
    };
    let tenant = admin.change_tenant(tenant.tenant, &without).await.unwrap();
    assert_eq!((tenant.most_in_flight, tenant.most_queued), (None, Some(5)));
    let names: Vec<_> = admin.tenants(2).take(usize::MAX).await.unwrap();
    assert!(names.iter().any(|known| known == &tenant));
    let made = admin
        .create_key(&mayfly_wire::account::NewKey {
            name: "ci".to_owned(),
            role: Role::Submitter,
            tenant: Some(tenant.tenant),
            expires_after: None,
        })
        .await
        .unwrap();
    let theirs = client(ground.address, &made.secret);
    assert_eq!(theirs.whoami().await.unwrap().tenant, Some(tenant.tenant));
    assert_eq!(admin.keys(Some(tenant.tenant), 1).take(9).await.unwrap().len(), 1);
    assert!(admin.revoke_key(made.key.key).await.unwrap().revoked_at.is_some());
    let error = theirs.whoami().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unauthenticated));
    assert!(admin.executors(10).next().await.unwrap().is_none());
    assert_eq!(admin.images().await.unwrap().images.len(), 1);
    assert!(admin.dead_letters(10).await.unwrap().dead_letters.is_empty());
    assert!(admin.ready().await.unwrap().ready);
}

#[tokio::test]
async fn an_api_of_this_process_answers_without_a_connection_and_by_the_same_guards() {
    let ground = Ground::new().await;
    let tenant = ground.submitter.whoami().await.unwrap().tenant.unwrap();
    let (api, key) = Api::in_process(parts(&ground.store), tenant, Role::Submitter);
    let here = Client::in_process(api.router(), Some(ApiKey::new(&key.reveal()).unwrap()), 16 << 20).unwrap();
    let stop = CancellationToken::new();
    let attending = TaskTracker::new().spawn(api.attend(stop.clone()));

    let job = here.submit(&spec(&[]), "key-1").await.unwrap().job;
    let mut events = here.events(job);
    assert!(
        matches!(events.next().await.unwrap(), Some(JobEvent::State(state)) if state.state == State::Queued)
    );
    let (ended, canceled) = tokio::join!(here.wait(job, Duration::from_secs(10)), here.cancel(job));
    assert_eq!(canceled.unwrap().answer, CancelWord::Canceled);
    assert_eq!(ended.unwrap().state, State::Canceled);
    assert!(matches!(events.next().await.unwrap(), Some(JobEvent::State(_))));
    assert!(matches!(events.next().await.unwrap(), Some(JobEvent::End(end)) if end.state == State::Canceled));
    // Refusals are the same, with the key's role, with another key, with none.
    let new = TenantToMake {
        name: "team-c".to_owned(),
        weight: None,
        most_in_flight: None,
        most_queued: None,
    };
    let forbidden = here.create_tenant(&new).await;
    assert_eq!(forbidden.unwrap_err().code(), Some(Code::Forbidden));
    let unknown = here.with_key(ApiKey::new(&mayfly_api::ApiKey::generate().reveal()).unwrap());
    assert_eq!(
        unknown.job(job).await.unwrap_err().code(),
        Some(Code::Unauthenticated)
    );
    // The key is of that API alone, and on no record.
    let elsewhere = client(ground.address, &key.reveal());
    assert_eq!(
        elsewhere.whoami().await.unwrap_err().code(),
        Some(Code::Unauthenticated)
    );

    let waiting = here.submit(&spec(&[]), "key-2").await.unwrap().job;
    let (waited, ()) = tokio::join!(here.wait(waiting, Duration::from_secs(60)), async {
        stop.cancel()
    });
    assert_eq!(waited.unwrap().state, State::Queued, "a wait ends with the API");
    attending.await.unwrap();
}
