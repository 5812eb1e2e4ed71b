//! Cancels against finishes, by the hundred and by the thousand: a cancel by HTTP and a report through the broker, both
//! about a run that has started, sent to real servers at the same moment. One of the two counts, and everybody is told
//! which. No sandbox takes part: the executor is this test, so that it may say that a run is over whenever it likes.

mod host;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_core::id::{AttemptId, JobId};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

use self::host::{Finisher, Host};
use crate::support::{Api, Fleet, SOON};

/// Races that are under way at a time.
const AT_A_TIME: usize = 16;
/// How far the one who wins too often is held back after each race.
const STEP_US: i64 = 250;
/// Neither is ever held back for longer.
const MOST_US: i64 = 50_000;

/// How many races are run: few where every test is, many where there is time.
#[expect(clippy::disallowed_methods, reason = "a test's own variables are no settings")]
fn races() -> usize {
    let Ok(text) = std::env::var("MAYFLY_TEST_CANCEL_RACES") else {
        return 200;
    };
    text.parse().expect("MAYFLY_TEST_CANCEL_RACES is a number")
}

/// Which of the two was first, in all races so far, and what makes the next one as open as can be.
#[derive(Default)]
struct Score {
    canceled: AtomicU64,
    finished: AtomicU64,
    /// How long the cancel is held back, in microseconds; the finish, where it is negative.
    hold_back_us: AtomicI64,
}

impl Score {
    fn note(&self, canceled: bool) {
        let (count, step) = if canceled {
            (&self.canceled, STEP_US)
        } else {
            (&self.finished, -STEP_US)
        };
        count.fetch_add(1, Ordering::Relaxed);
        let moved = |held: i64| Some((held + step).clamp(-MOST_US, MOST_US));
        // The closure always moves it.
        self.hold_back_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved)
            .unwrap_or_default();
    }

    /// How long the cancel waits, and how long the finish.
    fn waits(&self) -> (Duration, Duration) {
        let held = self.hold_back_us.load(Ordering::Relaxed);
        let wait = Duration::from_micros(held.unsigned_abs());
        if held > 0 {
            (wait, Duration::ZERO)
        } else {
            (Duration::ZERO, wait)
        }
    }
}

/// One race, about a run that has started. Whoever asked for the job's end is told what its outcome is going to be.
async fn race(api: &Api, finisher: &Finisher, (job, attempt): (JobId, AttemptId), score: &Score) {
    let (cancel_after, finish_after) = score.waits();
    let cancel = async {
        sleep(cancel_after).await;
        api.act("POST", &format!("/v1/jobs/{job}/cancel")).await
    };
    let finish = async {
        sleep(finish_after).await;
        finisher.finish(attempt);
    };
    let ((status, answer), ()) = tokio::join!(cancel, finish);
    assert_eq!(status, 200, "{answer}");
    let document = api.get(&format!("/v1/jobs/{job}?wait=30s&output=false")).await;
    let document: Value = document.json().await.expect("the answer is JSON");
    let state = document["state"].as_str().expect("a job has a state");
    let told = answer["answer"].as_str().expect("a cancel has an answer");
    match (told, state) {
        ("requested", "canceled") => score.note(true),
        ("over", "succeeded") => score.note(false),
        _ => panic!("the cancel of {job} was told `{told}`, and the job is {state}: {document:#}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cancel_and_a_finish_one_counts_and_everybody_is_told_which() {
    let Some(fleet) = Fleet::start(0).await else {
        return;
    };
    let api = Arc::new(fleet.api().await);
    let slots = u32::try_from(AT_A_TIME).expect("a few");
    let (mut host, finisher) = Host::join(&fleet, slots).await;
    let (score, room) = (Arc::new(Score::default()), Arc::new(Semaphore::new(AT_A_TIME)));
    let races = races();
    let feed = async {
        for _ in 0..races {
            // Whoever is through gives it back.
            room.acquire().await.expect("it is never closed").forget();
            fleet
                .submit("pass", json!({ "retry": { "max_attempts": 1 } }))
                .await;
        }
    };
    let run = async {
        let mut under_way = JoinSet::new();
        for _ in 0..races {
            let granted = host.granted();
            let granted = tokio::time::timeout(SOON, granted).await.expect("it is granted");
            let (api, finisher) = (Arc::clone(&api), finisher.clone());
            let (score, room) = (Arc::clone(&score), Arc::clone(&room));
            under_way.spawn(async move {
                race(&api, &finisher, granted, &score).await;
                room.add_permits(1);
            });
            while let Some(ended) = under_way.try_join_next() {
                ended.expect("the race was fair");
            }
        }
        while let Some(ended) = under_way.join_next().await {
            ended.expect("the race was fair");
        }
    };
    let begun = Instant::now();
    tokio::join!(feed, run);
    let canceled = score.canceled.load(Ordering::Relaxed);
    let finished = score.finished.load(Ordering::Relaxed);
    let seconds = begun.elapsed().as_secs();
    eprintln!(
        "races of a cancel against a finish: {races} in {seconds} s; canceled {canceled}, finished {finished}"
    );
    assert_eq!(canceled + finished, races as u64);
    on_record(&fleet, canceled, finished);
    let twentieth = races as u64 / 20;
    assert!(
        canceled >= twentieth && finished >= twentieth,
        "one of the two was nearly always first, which is no race: canceled {canceled}, finished {finished}"
    );
    host.leave().await;
}

/// What stands in the database of all of them, job by job: one end, the state of the job and of its audit event the same,
/// and a request for its end where it was canceled and nowhere else.
fn on_record(fleet: &Fleet, canceled: u64, finished: u64) {
    fleet.every_job_has_one_result();
    let ended = |state: &str| {
        let query = format!("SELECT count(*) FROM jobs WHERE end_state = '{state}'");
        fleet.services.count(&query)
    };
    assert_eq!((ended("canceled"), ended("succeeded")), (canceled, finished));
    let wrong = "SELECT count(*) FROM jobs j WHERE NOT EXISTS (
            SELECT 1 FROM (SELECT count(*) FILTER (WHERE kind = 'run_started') AS started,
                                  count(*) FILTER (WHERE kind = 'run_finished') AS reported,
                                  count(*) FILTER (WHERE kind = 'cancel_requested') AS asked,
                                  count(*) FILTER (WHERE kind = 'job_ended') AS ended,
                                  max(convert_from(body, 'UTF8')::jsonb #>> '{fact,state}')
                                      FILTER (WHERE kind = 'job_ended') AS state
                             FROM audit_events e WHERE e.job_id = j.job_id) e
             WHERE e.started = 1 AND e.reported = 1 AND e.ended = 1 AND e.state = j.end_state
               AND e.asked = CASE j.end_state WHEN 'canceled' THEN 1 ELSE 0 END)";
    assert_eq!(
        fleet.services.count(wrong),
        0,
        "jobs of which the record says two things"
    );
    let results =
        "SELECT count(*) FROM (SELECT attempt_id FROM results GROUP BY attempt_id HAVING count(*) > 1) t";
    assert_eq!(fleet.services.count(results), 0, "runs with two results");
}
