//! A process that is killed in the middle of whatever it commits.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::{id::TenantId, state::JobState};
use mayfly_dispatch::message::SessionEvent;
use mayfly_store::{
    contract::bench::{Bench, Client, POOL, Plan, success},
    records::AuditFilter,
    seam::JobStore as _,
};

use super::{File, as_child, child};

/// How often it is killed: at the beginning of each kind of call in turn, and each time a little later in it.
const KILLS: u32 = 80;
/// By how much later.
const STEP: Duration = Duration::from_micros(150);

/// What the test below kills; by itself it does nothing. It takes jobs through all of their moves, and says before each
/// that it begins, and of each job that it was accepted, until it is killed.
#[tokio::test]
async fn as_a_process_that_is_killed() {
    let Some(path) = as_child() else { return };
    let bench = Bench::new(Arc::new(File::existing(&path))).await;
    let mut client = Client::new();
    let opened = client.opened(1_000_000);
    bench.send(&opened).await;
    for number in 0_u64.. {
        println!("submitting");
        let job = bench.submit(&Plan::once()).await;
        println!("accepted {job}");
        println!("dispatching");
        let Some(message) = bench.dispatch().await.pop() else {
            continue;
        };
        if number % 4 == 3 {
            let canceled = bench
                .store
                .cancel(TenantId::LOCAL, message.job, &bench.context())
                .await;
            canceled.unwrap();
            continue;
        }
        println!("asking");
        bench.send(&client.ask(&message)).await;
        println!("finishing");
        let event = SessionEvent::Finished {
            attempt: message.attempt,
            report: Box::new(success()),
        };
        let batch = client.batch(vec![event]);
        bench.send(&batch).await;
    }
}

#[tokio::test]
async fn whatever_was_accepted_is_there_and_state_and_record_agree() {
    let file = File::new();
    let mut accepted = BTreeSet::new();
    for kill in 0..KILLS {
        let mut child = child("tests::crash::as_a_process_that_is_killed", &file)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let calls = ["submitting", "dispatching", "asking", "finishing"];
        let (call, later) = (calls[usize::try_from(kill % 4).unwrap()], STEP * (kill / 4));
        let mut killed = false;
        for line in lines {
            let line = line.unwrap();
            if let Some((_, id)) = line.split_once("accepted ") {
                accepted.insert(id.to_owned());
            }
            // What it still says until it is dead is read too.
            if !killed && line.contains(call) {
                let seen = Instant::now();
                while seen.elapsed() < later {
                    std::hint::spin_loop();
                }
                child.kill().unwrap();
                killed = true;
            }
        }
        assert!(!child.wait().unwrap().success(), "it is killed");
        check(&file, &accepted).await;
    }
    assert!(accepted.len() > 20);
}

/// Each job's rows against its events.
async fn check(file: &File, accepted: &BTreeSet<String>) {
    let store = file.store().await;
    let ledger = super::everything(&store, POOL).await;
    let jobs: BTreeSet<_> = ledger.jobs().map(|job| job.job.to_string()).collect();
    assert!(jobs.is_superset(accepted), "an accepted job is gone");
    for job in ledger.jobs() {
        let filter = AuditFilter {
            job: Some(job.job),
            attempt: None,
        };
        let events = store.list_audit(TenantId::LOCAL, filter, 100).await.unwrap();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for event in events {
            *counts.entry(event.kind).or_default() += 1;
        }
        let found = store.find_job(TenantId::LOCAL, job.job).await.unwrap().unwrap();
        let attempts = &found.attempts;
        let started = attempts
            .iter()
            .filter(|attempt| attempt.started_at.is_some())
            .count();
        let reported = attempts.iter().filter(|attempt| attempt.report.is_some()).count();
        let lost = attempts.iter().filter(|attempt| {
            attempt.started_at.is_some() && attempt.ended_at.is_some() && attempt.report.is_none()
        });
        let expected = [
            ("job_submitted", 1),
            ("attempt_dispatched", attempts.len()),
            ("run_started", started),
            ("run_finished", reported),
            ("attempt_lost", lost.count()),
            ("cancel_requested", 0),
            ("job_ended", usize::from(found.job.outcome.is_some())),
        ];
        for (kind, count) in expected {
            assert_eq!(counts.remove(kind).unwrap_or(0), count, "{kind} of {}", job.job);
        }
        assert!(counts.is_empty(), "{counts:?}");
        assert_eq!(found.job.state.end().is_some(), found.job.outcome.is_some());
        assert_eq!(usize::try_from(job.attempts).unwrap(), attempts.len());
        let running = attempts
            .iter()
            .filter(|attempt| attempt.started_at.is_some() && attempt.ended_at.is_none());
        assert_eq!(running.count(), usize::from(job.state == JobState::Started));
    }
}
