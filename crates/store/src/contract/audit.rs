//! The record: every state move has its events, in the transaction that makes it and in order.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, SubsecRound as _, Utc};
use mayfly_core::{
    account::Role,
    audit::FactKind,
    id::{ExecutorId, TenantId},
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::message::{AbandonReason, SessionEvent};

use super::{
    Place,
    accounts::new_key,
    bench::{Bench, Client, POOL, Plan, report, success},
};
use crate::{
    accounts::{NewTenant, Quotas, TenantChange, USUAL_WEIGHT},
    executors::NewExecutor,
    records::AuditFilter,
    seam::MAX_PAGE,
};

/// What happens to a job, in a life.
#[derive(Debug, Clone, Copy)]
enum Step {
    Submit,
    Dispatch,
    Start,
    Succeed,
    Fail,
    Abandon,
    Unname,
    Die,
    Cancel,
    AskAgain,
    Expire,
    DeadLetter,
    Late,
    Contradict,
}

/// A life: its steps, each with the events that are there after it and were not before.
type Life = &'static [(Step, &'static [&'static str])];

const SUBMIT: (Step, &[&str]) = (Step::Submit, &["job_submitted"]);
const DISPATCH: (Step, &[&str]) = (Step::Dispatch, &["attempt_dispatched"]);
const START: (Step, &[&str]) = (Step::Start, &["run_started"]);
const CANCEL: (Step, &[&str]) = (Step::Cancel, &["cancel_requested"]);
const LATE: (Step, &[&str]) = (Step::Late, &["result_superseded"]);
const LOST_TWICE: &[&str] = &["attempt_lost", "job_requeued"];
const LOST: &[&str] = &["attempt_lost", "job_ended"];
const FINISHED: &[&str] = &["run_finished", "job_ended"];

/// Each life of a job that is tried twice at most, also after it failed; and the state that it ends in.
const LIVES: &[(EndState, Life)] = &[
    (
        EndState::Succeeded,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Succeed, FINISHED),
            (Step::Contradict, &["run_contradicted"]),
        ],
    ),
    (
        EndState::Failed,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Fail, &["run_finished", "job_requeued"]),
            DISPATCH,
            START,
            (Step::Fail, FINISHED),
        ],
    ),
    (
        EndState::Succeeded,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Die, LOST_TWICE),
            DISPATCH,
            START,
            (Step::Succeed, FINISHED),
            LATE,
        ],
    ),
    (
        EndState::Lost,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Abandon, LOST_TWICE),
            DISPATCH,
            START,
            (Step::Abandon, LOST),
            LATE,
        ],
    ),
    (
        EndState::Lost,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Unname, LOST_TWICE),
            DISPATCH,
            START,
            (Step::Die, LOST),
        ],
    ),
    (EndState::Canceled, &[SUBMIT, (Step::Cancel, &["job_ended"])]),
    (
        EndState::Canceled,
        &[SUBMIT, DISPATCH, (Step::Cancel, &["job_ended"])],
    ),
    (
        EndState::Canceled,
        &[SUBMIT, DISPATCH, START, CANCEL, (Step::Succeed, FINISHED)],
    ),
    (
        EndState::Canceled,
        &[SUBMIT, DISPATCH, START, CANCEL, (Step::Die, LOST), LATE],
    ),
    (
        EndState::Canceled,
        &[SUBMIT, DISPATCH, START, CANCEL, (Step::AskAgain, LOST)],
    ),
    (
        EndState::Canceled,
        &[
            SUBMIT,
            DISPATCH,
            START,
            (Step::Die, LOST_TWICE),
            (Step::Cancel, &["job_ended"]),
        ],
    ),
    (EndState::Expired, &[SUBMIT, (Step::Expire, &["job_ended"])]),
    (
        EndState::Expired,
        &[SUBMIT, DISPATCH, (Step::Expire, &["job_ended"])],
    ),
    (
        EndState::Error,
        &[
            SUBMIT,
            DISPATCH,
            (Step::DeadLetter, &[]),
            (Step::DeadLetter, &[]),
            (Step::DeadLetter, &[]),
            (Step::DeadLetter, &[]),
            (Step::DeadLetter, &["job_ended"]),
        ],
    ),
];

/// One table: life by life, step by step, no event missing and none too many.
pub async fn every_life_has_its_events_in_order(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    for (number, (end, life)) in LIVES.iter().enumerate() {
        let mut run = Run::new(&bench).await;
        let mut expected: Vec<&str> = Vec::new();
        for (step, events) in *life {
            run.step(&mut bench, *step).await;
            expected.extend(*events);
            let kinds = bench.kinds(run.plan.id).await;
            assert_eq!(kinds, expected, "life {number}, after {step:?}");
        }
        assert_eq!(
            bench.state(run.plan.id).await,
            JobState::Ended(*end),
            "life {number}"
        );
    }
}

/// One life as it goes on.
struct Run {
    plan: crate::records::NewJob,
    client: Client,
    message: Option<mayfly_dispatch::message::DispatchMessage>,
    first: Option<(Client, mayfly_core::id::AttemptId)>,
}

impl Run {
    async fn new(bench: &Bench) -> Self {
        let mut plan = Plan {
            expires_after: Some(Duration::from_secs(3600)),
            ..Plan::default()
        };
        plan.retry.max_attempts = 2;
        plan.retry.on = vec![EndState::Failed];
        Self {
            plan: plan.job(bench.date()),
            client: bench.session().await,
            message: None,
            first: None,
        }
    }

    async fn step(&mut self, bench: &mut Bench, step: Step) {
        let message = self.message.clone();
        let current = || message.clone().expect("it is dispatched");
        match step {
            Step::Submit => {
                let accepted = bench.store.submit(self.plan.clone(), bench.date()).await;
                accepted.expect("the job is accepted");
            }
            Step::Dispatch => {
                bench.pass(Duration::from_secs(5));
                self.message = bench.dispatch().await.pop();
            }
            Step::Start => {
                bench.send(&self.client.ask(&current())).await;
                self.first.get_or_insert((self.client.clone(), current().attempt));
            }
            Step::Succeed => {
                bench
                    .send(&self.client.finish(current().attempt, success()))
                    .await;
            }
            Step::Fail => {
                let failed = report(EndState::Failed, Cause::Exited, b"");
                bench.send(&self.client.finish(current().attempt, failed)).await;
            }
            Step::Abandon => {
                let event = SessionEvent::Abandoned {
                    attempt: current().attempt,
                    why: AbandonReason::Stopped,
                    ran: true,
                };
                let batch = self.client.batch(vec![event]);
                bench.send(&batch).await;
                if let Some((client, _)) = &mut self.first {
                    client.next = self.client.next;
                }
            }
            Step::Unname => {
                bench.send(&self.client.beat(&[])).await;
            }
            Step::Die => {
                self.client = Client::of(self.client.executor);
                let opened = self.client.opened(100);
                bench.send(&opened).await;
            }
            Step::Cancel => {
                let answer = bench
                    .store
                    .cancel(TenantId::LOCAL, self.plan.id, &bench.context())
                    .await;
                answer.expect("cancelling works");
            }
            Step::AskAgain => {
                bench.send(&self.client.ask(&current())).await;
            }
            Step::Expire => {
                bench.pass(Duration::from_secs(3600));
                bench
                    .store
                    .expire(POOL, &bench.context())
                    .await
                    .expect("expiring works");
            }
            Step::DeadLetter => {
                let noted = bench
                    .store
                    .dead_lettered(current().attempt, current().publication, &bench.context())
                    .await;
                if let Some(next) = noted.expect("noting works") {
                    self.message = Some(next);
                }
            }
            Step::Contradict => {
                let attempt = self.first.as_ref().expect("it has started").1;
                let batch = self.client.contradict(attempt, "the engine says otherwise");
                bench.send(&batch).await;
            }
            Step::Late => {
                let (client, attempt) = self.first.as_mut().expect("it has started");
                let batch = client.finish(*attempt, success());
                bench.send(&batch).await;
            }
        }
    }
}

/// Of a job, of an attempt, of both; the newest where there are too many, the oldest of them first.
pub async fn a_filter_finds_its_events_alone(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let one = bench.started(&Plan::once(), &mut client).await;
    let two = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(one.attempt, success())).await;
    let all = bench.events(AuditFilter::default()).await;
    assert_eq!(all.len(), 9);
    let filters = [
        (Some(one.job), None),
        (None, Some(one.attempt)),
        (Some(one.job), Some(one.attempt)),
        (Some(two.job), Some(one.attempt)),
        (Some(two.job), None),
    ];
    for (job, attempt) in filters {
        let found = bench.events(AuditFilter { job, attempt }).await;
        let expected: Vec<_> = all
            .iter()
            .filter(|event| job.is_none_or(|job| event.job == Some(job)))
            .filter(|event| attempt.is_none_or(|attempt| event.attempt == Some(attempt)))
            .cloned()
            .collect();
        assert_eq!(found, expected);
        for limit in [0, 1, 3] {
            let filter = AuditFilter { job, attempt };
            let newest = bench.store.list_audit(TenantId::LOCAL, filter, limit).await;
            let from = expected
                .len()
                .saturating_sub(usize::try_from(limit).expect("it is small"));
            assert_eq!(newest.expect("listing works"), expected[from..]);
        }
    }
}

/// What is about no job, page by page from the newest back.
pub async fn the_log_of_the_fleet_has_what_is_about_no_job(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let job = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(job.attempt, success())).await;
    for name in ["a", "b", "c"] {
        let executor = NewExecutor {
            id: ExecutorId::new(),
            name: name.to_owned(),
            pool: POOL.to_owned(),
        };
        let enrolled = bench.store.enroll_executor(executor, None, bench.date()).await;
        enrolled.expect("the executor is enrolled");
    }
    let mut all = bench.events(AuditFilter::default()).await;
    let of_all = all.len();
    all.retain(|event| event.job.is_none());
    assert!(all.len() >= 4 && all.len() < of_all, "{all:?}");
    let whole = bench.store.list_fleet_audit(None, MAX_PAGE).await;
    assert_eq!(whole.expect("listing works"), all);
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = bench
            .store
            .list_fleet_audit(before, 2)
            .await
            .expect("listing works");
        let Some(oldest) = page.first() else { break };
        before = Some(oldest.id);
        paged.splice(0..0, page);
    }
    assert_eq!(paged, all);
    assert_eq!(
        bench
            .store
            .list_fleet_audit(None, 0)
            .await
            .expect("listing works"),
        Vec::new()
    );
}

/// So that what is found by a column is what the canonical bytes say.
pub async fn columns_and_body_say_the_same(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    bench.pass(Duration::from_micros(1_234_567));
    for (_, life) in LIVES {
        let mut run = Run::new(&bench).await;
        for (step, _) in *life {
            run.step(&mut bench, *step).await;
        }
    }
    let pin = Plan::default().resolved.pin;
    bench
        .store
        .pin_image("python", &pin, None, bench.date())
        .await
        .expect("pinning works");
    let tenant = NewTenant {
        id: TenantId::LOCAL,
        name: "local".to_owned(),
        weight: USUAL_WEIGHT,
        quotas: Quotas::default(),
    };
    let made = bench.store.create_tenant(tenant, None, bench.date()).await;
    made.expect("the tenant is made");
    let change = TenantChange {
        most_in_flight: Some(Some(100)),
        ..TenantChange::default()
    };
    let changed = bench
        .store
        .change_tenant(TenantId::LOCAL, change, None, bench.date())
        .await;
    changed.expect("the tenant is changed");
    let key = new_key(Some(TenantId::LOCAL), Role::Viewer);
    let id = key.id;
    let made = bench.store.create_key(key, None, bench.date()).await;
    made.expect("the key is made");
    let revoked = bench.store.revoke_key(id, None, bench.date()).await;
    revoked.expect("revoking works");
    let events = bench.events(AuditFilter::default()).await;
    let all = usize::try_from(MAX_PAGE).expect("a page fits into memory");
    assert!(events.len() > 80 && events.len() < all);
    let mut kinds = std::collections::BTreeSet::new();
    for event in &events {
        let body: serde_json::Value = serde_json::from_slice(&event.body).expect("a body is JSON");
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        assert_eq!(text(&body["id"]), Some(event.id.to_string()));
        assert_eq!(text(&body["tenant"]), Some(TenantId::LOCAL.to_string()));
        assert_eq!(text(&body["job"]), event.job.map(|id| id.to_string()));
        assert_eq!(text(&body["attempt"]), event.attempt.map(|id| id.to_string()));
        assert_eq!(text(&body["fact"]["kind"]).as_ref(), Some(&event.kind));
        let at: DateTime<Utc> = text(&body["at"])
            .and_then(|at| at.parse().ok())
            .expect("it has a time");
        assert_eq!(at, event.at.trunc_subsecs(3), "the body has milliseconds");
        assert_eq!(
            mayfly_core::digest::canonical_json(&body),
            event.body,
            "it is canonical"
        );
        kinds.insert(event.kind.clone());
    }
    assert!(events.is_sorted_by_key(|event| event.at));
    // Every fact that there is has been seen here: a new one needs a life.
    let every = [
        FactKind::JobSubmitted,
        FactKind::AttemptDispatched,
        FactKind::RunStarted,
        FactKind::RunFinished,
        FactKind::ResultSuperseded,
        FactKind::RunContradicted,
        FactKind::AttemptLost,
        FactKind::JobRequeued,
        FactKind::CancelRequested,
        FactKind::JobEnded,
        FactKind::SessionOpened,
        FactKind::SessionEnded,
        FactKind::ImagePinned,
        FactKind::TenantCreated,
        FactKind::TenantChanged,
        FactKind::KeyCreated,
        FactKind::KeyRevoked,
    ];
    assert_eq!(kinds, every.iter().map(|kind| kind.as_str().to_owned()).collect());
}

/// Neither its code, files, arguments, environment, input and labels, nor its output; nor what proves a right to ask.
pub async fn nothing_that_a_job_chose_stands_in_the_log(place: Arc<dyn Place>) {
    const CANARY: &str = "canary-5f1d";
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let mut plan = Plan::once();
    let resolved = &mut plan.resolved;
    resolved.argv.push(CANARY.to_owned());
    resolved.files.push(mayfly_core::job::InputFile {
        path: CANARY.to_owned(),
        content: CANARY.as_bytes().to_vec().into(),
        executable: false,
        mode: None,
    });
    resolved.stdin = Some(CANARY.as_bytes().to_vec().into());
    resolved.env.insert(CANARY.to_owned(), CANARY.to_owned());
    let secret = mayfly_core::job::SecretText::from(CANARY.to_owned());
    resolved.secrets.insert("SECRET".to_owned(), secret);
    let mut new = plan.job(bench.date());
    new.labels.insert(CANARY.to_owned(), CANARY.to_owned());
    let digests = new.resolved.content_digests();
    bench
        .store
        .submit(new, bench.date())
        .await
        .expect("the job is accepted");
    let message = bench.dispatch().await.remove(0);
    bench.send(&client.ask(&message)).await;
    let mut sent = report(EndState::Succeeded, Cause::Exited, CANARY.as_bytes());
    sent.stderr.tail = CANARY.as_bytes().to_vec();
    let output = sent.stdout.count.digest;
    bench.send(&client.finish(message.attempt, sent)).await;
    let events = bench.events(AuditFilter::default()).await;
    assert_eq!(events.len(), 6);
    let token = serde_json::to_string(&message.token).expect("a token is text");
    let salt = "09".repeat(32);
    for event in events {
        let body = String::from_utf8(event.body).expect("a body is text");
        for secret in [
            CANARY,
            &digests.code.to_hex(),
            &digests.files.to_hex(),
            &digests.stdin.to_hex(),
            &output.to_hex(),
            token.trim_matches('"'),
            &salt,
        ] {
            assert!(!body.contains(secret), "{secret} stands in {body}");
        }
    }
}
