//! Lists of jobs by what they are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mayfly_core::{
    id::{JobId, TenantId},
    outcome::EndState,
    state::JobState,
};

use super::{
    Place,
    bench::{Bench, Plan, success},
    jobs::tenant,
};
use crate::{
    records::{JobFilter, NewJob},
    seam::{MAX_PAGE, MOST_LOOKED_AT},
};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

async fn submit(bench: &Bench, job: NewJob) -> JobId {
    let id = job.id;
    bench
        .store
        .submit(job, bench.date())
        .await
        .expect("the job is accepted");
    id
}

/// Everything that a filter lets through, page by page.
async fn all(bench: &Bench, filter: &JobFilter, limit: u32) -> Vec<JobId> {
    let (mut ids, mut before) = (Vec::new(), None);
    loop {
        let page = bench.list(TenantId::LOCAL, filter, before, limit).await;
        assert!(page.jobs.iter().all(|job| filter.lets_through(job)), "{filter:?}");
        ids.extend(page.jobs.iter().map(|job| job.id));
        before = page.next;
        if before.is_none() {
            return ids;
        }
    }
}

/// Each field alone, any two of them together, and all of them; with pages of one and of all.
pub async fn each_field_of_a_filter_counts(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let batch = bench.batch().await;
    let mut made = Vec::new();
    for number in 0..12 {
        let mut job = if number % 3 == 0 {
            bench.items(batch, [format!("item {number}").as_str()]).remove(0)
        } else {
            Plan::once().job(bench.date())
        };
        job.labels = labels(&[("team", ["a", "b"][number % 2]), ("turn", "1")]);
        if number % 4 == 0 {
            let mut resolved = (*job.resolved).clone();
            resolved.image = "node".parse().expect("it is a name");
            job.resolved = Arc::new(resolved);
        }
        made.push(submit(&bench, job).await);
        bench.pass(Duration::from_secs(1));
    }
    for (number, message) in bench.dispatch().await.into_iter().enumerate() {
        bench.send(&client.ask(&message)).await;
        if number % 2 == 0 {
            bench.send(&client.finish(message.attempt, success())).await;
        }
    }
    let everything = bench
        .list(TenantId::LOCAL, &JobFilter::default(), None, MAX_PAGE)
        .await
        .jobs;
    made.reverse();
    assert_eq!(everything.iter().map(|job| job.id).collect::<Vec<_>>(), made);
    let fields: [fn(&mut JobFilter, &Bench); 6] = [
        |filter, _| filter.state = Some(JobState::Ended(EndState::Succeeded)),
        |filter, _| filter.label = Some(("team".to_owned(), "a".to_owned())),
        |_, _| {},
        |filter, _| filter.image = Some("node".parse().expect("it is a name")),
        |filter, bench| filter.submitted_from = Some(bench.date() - Duration::from_secs(9)),
        |filter, bench| filter.submitted_before = Some(bench.date() - Duration::from_secs(2)),
    ];
    for which in 0_u32..64 {
        let mut filter = JobFilter::default();
        for (number, field) in fields.iter().enumerate() {
            if which & (1 << number) != 0 {
                field(&mut filter, &bench);
            }
        }
        if which & 0b100 != 0 {
            filter.batch = Some(batch);
        }
        let expected: Vec<JobId> = everything
            .iter()
            .filter(|job| filter.lets_through(job))
            .map(|job| job.id)
            .collect();
        if which.count_ones() == 1 {
            assert!(
                !expected.is_empty() && expected.len() < made.len(),
                "{filter:?} parts them"
            );
        }
        for limit in [1, 5, MAX_PAGE] {
            assert_eq!(
                all(&bench, &filter, limit).await,
                expected,
                "{filter:?}, {limit} a page"
            );
        }
    }
    for state in [
        JobState::Queued,
        JobState::Started,
        JobState::Ended(EndState::Failed),
    ] {
        let filter = JobFilter {
            state: Some(state),
            ..JobFilter::default()
        };
        let expected = everything.iter().filter(|job| job.state == state).count();
        assert_eq!(all(&bench, &filter, 2).await.len(), expected, "{state:?}");
    }
}

/// A label, a batch, an image of another tenant's finds nothing of it.
pub async fn a_filter_finds_its_tenants_jobs_alone(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["a"]).await;
    let image = "python".parse().expect("it is a name");
    for filter in [
        JobFilter {
            label: Some(("team".to_owned(), "a".to_owned())),
            ..JobFilter::default()
        },
        JobFilter {
            batch: Some(batch),
            ..JobFilter::default()
        },
        JobFilter {
            image: Some(image),
            ..JobFilter::default()
        },
        JobFilter {
            state: Some(JobState::Queued),
            ..JobFilter::default()
        },
    ] {
        assert_eq!(bench.list(TenantId::LOCAL, &filter, None, 10).await.jobs.len(), 1);
        assert_eq!(
            bench.list(tenant(1), &filter, None, 10).await.jobs,
            [],
            "{filter:?}"
        );
    }
}

/// However few of them it lets through: the page says where it goes on.
pub async fn a_call_looks_at_so_many_jobs_at_most(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let rare = NewJob {
        labels: labels(&[("team", "a"), ("kind", "rare")]),
        ..Plan::once().job(bench.date())
    };
    let rare = submit(&bench, rare).await;
    let mut left = MOST_LOOKED_AT;
    while left > 0 {
        let count = left.min(MAX_PAGE);
        let jobs = std::iter::repeat_with(|| Plan::once().job(bench.date()))
            .take(usize::try_from(count).expect("a page fits into memory"))
            .collect();
        bench.submit_many(jobs).await;
        left -= count;
    }
    // Found by the one label, and looked at for the state.
    let filter = JobFilter {
        label: Some(("team".to_owned(), "a".to_owned())),
        image: Some("node".parse().expect("it is a name")),
        ..JobFilter::default()
    };
    let page = bench.list(TenantId::LOCAL, &filter, None, 10).await;
    assert_eq!(page.jobs, []);
    let next = page.next.expect("it goes on");
    let rest = bench.list(TenantId::LOCAL, &filter, Some(next), 10).await;
    assert_eq!((rest.jobs, rest.next), (Vec::new(), None));
    let found = JobFilter {
        label: Some(("kind".to_owned(), "rare".to_owned())),
        state: Some(JobState::Queued),
        ..JobFilter::default()
    };
    let page = bench.list(TenantId::LOCAL, &found, None, 10).await;
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [rare]);
    assert_eq!(page.next, None, "its own label finds it at once");
}
