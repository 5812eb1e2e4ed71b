use chrono::DateTime;
use mayfly_core::self_test::SelfTestFailure;
use tokio::sync::Semaphore;

use super::*;

const EVERY: Duration = Duration::from_secs(24 * 3600);
const RETRY: Duration = Duration::from_secs(60);

fn test(result: SelfTestResult) -> SelfTest {
    let failure = SelfTestFailure {
        runtime: "runc".to_owned(),
        probe: "memory".to_owned(),
        why: "it got more than its limit".to_owned(),
    };
    SelfTest {
        at: DateTime::UNIX_EPOCH,
        result,
        runtimes: vec!["runc".to_owned()],
        programs: 1,
        failures: match result {
            SelfTestResult::Failed => vec![failure],
            SelfTestResult::Passed | SelfTestResult::LeftOut => Vec::new(),
        },
        accepted: Vec::new(),
    }
}

/// A host whose tests go on until they are allowed to end.
struct Host {
    allowed: Semaphore,
    result: SelfTestResult,
    /// A permit for each time that it is another one.
    changes: Semaphore,
}

impl Host {
    fn new(result: SelfTestResult) -> Arc<Self> {
        Arc::new(Self {
            allowed: Semaphore::new(0),
            result,
            changes: Semaphore::new(0),
        })
    }
}

#[async_trait]
impl HostTest for Host {
    async fn run(&self, stop: &CancellationToken) -> Option<SelfTest> {
        tokio::select! {
            allowed = self.allowed.acquire() => {
                allowed.expect("it is never closed").forget();
                Some(test(self.result))
            }
            () = stop.cancelled() => None,
        }
    }

    async fn changed(&self) {
        self.changes.acquire().await.expect("it is never closed").forget();
    }
}

fn begin(first: SelfTestResult, host: Arc<Host>) -> (Testing, Option<Input>) {
    Testing::begin(Some(SelfTests {
        first: test(first),
        again: Some(Repetition {
            host,
            every: EVERY,
            retry_first: RETRY,
        }),
    }))
}

fn next_in(input: Option<Input>) -> Duration {
    match input {
        Some(Input::SelfTested {
            next_in: Some(next_in),
            ..
        }) => next_in,
        other => panic!("a next test is due: {other:?}"),
    }
}

#[tokio::test]
async fn after_one_that_passed_the_next_is_due_within_a_tenth_of_the_interval() {
    let (mut testing, first) = begin(SelfTestResult::Passed, Host::new(SelfTestResult::Passed));
    let mut waits = vec![next_in(first)];
    for _ in 0..50 {
        let again = testing.say(test(SelfTestResult::Passed));
        waits.push(next_in(Some(again)));
    }
    assert!(
        waits
            .iter()
            .all(|wait| *wait >= EVERY.mul_f64(0.9) && *wait <= EVERY),
        "{waits:?}"
    );
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 10, "hosts are not all tried at once: {waits:?}");
}

#[tokio::test]
async fn after_failures_it_is_tried_again_with_growing_pauses() {
    let (mut testing, first) = begin(SelfTestResult::Failed, Host::new(SelfTestResult::Failed));
    let mut most = RETRY;
    let mut wait = next_in(first);
    for _ in 0..20 {
        assert!(wait <= most && wait >= most / 2, "{wait:?} of {most:?}");
        most = (most * 2).min(EVERY);
        wait = next_in(Some(testing.say(test(SelfTestResult::Failed))));
    }
    assert_eq!(most, EVERY);
    next_in(Some(testing.say(test(SelfTestResult::Passed))));
    wait = next_in(Some(testing.say(test(SelfTestResult::Failed))));
    assert!(wait <= RETRY, "from the beginning: {wait:?}");
}

#[tokio::test]
async fn a_test_is_made_when_it_is_started_and_its_outcome_is_told() {
    let host = Host::new(SelfTestResult::Failed);
    let (mut testing, _) = begin(SelfTestResult::Passed, Arc::clone(&host));
    testing.start();
    host.allowed.add_permits(1);
    match testing.news().await {
        Some(Input::SelfTested { test: told, .. }) => assert_eq!(*told, test(SelfTestResult::Failed)),
        other => panic!("it is told: {other:?}"),
    }
}

#[tokio::test]
async fn that_the_host_has_changed_is_told_once_for_each_test() {
    let host = Host::new(SelfTestResult::Passed);
    let (mut testing, _) = begin(SelfTestResult::Passed, Arc::clone(&host));
    for _ in 0..2 {
        host.changes.add_permits(2);
        assert!(matches!(testing.news().await, Some(Input::HostChanged)));
        testing.start();
        host.allowed.add_permits(1);
        assert!(matches!(testing.news().await, Some(Input::SelfTested { .. })));
        assert!(matches!(testing.news().await, Some(Input::HostChanged)));
        testing.say(test(SelfTestResult::Passed));
    }
}

#[tokio::test]
async fn a_test_under_way_is_stopped_and_waited_for_at_the_end() {
    let (mut testing, _) = begin(SelfTestResult::Passed, Host::new(SelfTestResult::Passed));
    testing.start();
    testing.stop();
    assert!(testing.news().await.is_none());
    testing.start();
    testing.finish().await;
}

#[tokio::test]
async fn where_it_is_left_out_nothing_follows() {
    let (_, first) = Testing::begin(Some(SelfTests {
        first: test(SelfTestResult::LeftOut),
        again: None,
    }));
    assert!(matches!(first, Some(Input::SelfTested { next_in: None, .. })));
    assert!(Testing::begin(None).1.is_none());
}
