//! The warm pool around a sandbox without a container, on a clock that the test moves.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    digest::Digest,
    id::{ExecutorId, SandboxId, SessionId},
    image::ImagePin,
    limits::{LimitRules, Limits},
    outcome::{Mismatch, MismatchSource},
    policy::Network,
    run::Origin,
    units::{ByteSize, CpuShare, Span},
};
use mayfly_sandbox::{
    pool::{Classes, Kept, PoolConfig, WarmCommands, WarmPool},
    seam::{Loopback, PrepareError, ReadySandbox, Sandbox, SandboxRequest},
};
use mayfly_testkit::sandbox::Scripted;

const MAX_IDLE: Duration = Duration::from_secs(300);

fn request(executor: ExecutorId) -> SandboxRequest {
    let digest = Digest::of(b"image");
    SandboxRequest {
        sandbox_id: SandboxId::new(),
        executor,
        session: SessionId::new(),
        image: ImagePin {
            reference: "image".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        },
        runtime: "runc".to_owned(),
        limits: LimitRules::default().defaults,
        network: Network::None,
        loopback: Loopback::Closed,
        warm: None,
        longest_idle: Duration::from_secs(60),
    }
}

fn config(size: u32) -> PoolConfig {
    let most = LimitRules::default().ceilings;
    PoolConfig {
        size,
        max: size,
        max_idle: MAX_IDLE,
        starts_per_second: 10,
        starts: 2,
        classes: Classes::new(
            [256, 512].map(ByteSize::mib),
            [CpuShare::millis(1000)],
            [128, 256],
            &most,
        ),
        longest_wall: most.wall,
        longest_wait: Duration::from_secs(600),
        warm: WarmCommands::default(),
        kept: Vec::new(),
    }
}

/// A pool of this many, all ready, of the kind that is asked for.
async fn full(size: u32) -> (Scripted, Arc<WarmPool>, SandboxRequest) {
    let scripted = Scripted::default();
    let request = request(ExecutorId::new());
    let kept = Kept {
        request: request.clone(),
        min: size,
    };
    let config = PoolConfig {
        kept: vec![kept],
        ..config(size)
    };
    let pool = WarmPool::start(Arc::new(scripted.clone()), config);
    scripted.wait_for(|counts| counts.ready == size).await;
    (scripted, pool, request)
}

fn is_warm(sandbox: &dyn ReadySandbox) -> bool {
    match sandbox.facts().origin {
        Origin::Warm { .. } => true,
        Origin::Cold => false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_waits_is_given_once_and_another_is_made_in_its_place() {
    let (scripted, pool, request) = full(1).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let first = pool.prepare(request.clone()).await.unwrap();
    let Origin::Warm { idle_ms } = first.facts().origin else {
        panic!("it was not warm");
    };
    assert!((1500..1700).contains(&idle_ms), "{idle_ms}");
    let second = pool.prepare(request.clone()).await.unwrap();
    assert!(!is_warm(&*second), "the only one is given");
    assert_ne!(first.facts().sandbox_id, second.facts().sandbox_id);
    scripted.wait_for(|counts| counts.ready == 3).await;
    let third = pool.prepare(request).await.unwrap();
    assert!(is_warm(&*third));
    let counts = pool.counts();
    assert_eq!(
        (counts.hits, counts.misses.empty, counts.misses.total()),
        (2, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn the_limits_in_force_are_the_class_for_a_hit_and_a_miss_alike() {
    let (_, pool, mut request) = full(1).await;
    let asked = Limits {
        memory: ByteSize::mib(200),
        cpu: CpuShare::millis(300),
        pids: 100,
        wall: Span::seconds(7),
        stdout: ByteSize::kib(9),
        stderr: ByteSize::kib(8),
        ..request.limits
    };
    request.limits = asked;
    let warm = pool.prepare(request.clone()).await.unwrap();
    let cold = pool.prepare(request).await.unwrap();
    assert!(is_warm(&*warm) && !is_warm(&*cold));
    let class = Limits {
        memory: ByteSize::mib(256),
        cpu: CpuShare::millis(1000),
        pids: 128,
        ..asked
    };
    assert_eq!(warm.facts().in_force, class);
    assert_eq!(cold.facts().in_force, class);
}

#[tokio::test(start_paused = true)]
async fn one_that_died_while_it_waited_is_not_given_and_the_next_is_tried() {
    let (scripted, pool, request) = full(2).await;
    scripted.kill_waiting();
    let cold = pool.prepare(request.clone()).await.unwrap();
    assert!(!is_warm(&*cold), "both were dead");
    let counts = pool.counts();
    assert_eq!((counts.misses.dead, counts.discarded.dead), (1, 2));
    scripted
        .wait_for(|counts| counts.discarded == 2 && counts.ready == 3)
        .await;
    assert!(is_warm(&*pool.prepare(request).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_is_noticed_and_replaced_though_nobody_asks() {
    let (scripted, pool, _) = full(2).await;
    scripted.kill_waiting();
    scripted
        .wait_for(|counts| counts.discarded == 2 && counts.ready == 2)
        .await;
    assert_eq!(pool.counts().discarded.dead, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_replaced() {
    let (scripted, pool, request) = full(2).await;
    tokio::time::sleep(MAX_IDLE).await;
    scripted
        .wait_for(|counts| counts.discarded == 2 && counts.ready == 2)
        .await;
    assert_eq!(pool.counts().discarded.aged, 2);
    let Origin::Warm { idle_ms } = pool.prepare(request).await.unwrap().facts().origin else {
        panic!("it was not warm");
    };
    assert!(u128::from(idle_ms) < MAX_IDLE.as_millis() / 2);
}

#[tokio::test(start_paused = true)]
async fn draining_destroys_what_waits_and_what_is_in_the_making_and_jobs_still_get_theirs() {
    let (scripted, pool, request) = full(3).await;
    scripted.takes(Duration::from_secs(5));
    let taken = pool.prepare(request.clone()).await.unwrap();
    scripted.wait_for(|counts| counts.preparing == 1).await;
    pool.drain().await;
    let counts = scripted.counts();
    assert_eq!((counts.preparing, counts.ready, counts.discarded), (0, 1, 3));
    assert_eq!(pool.counts().discarded.drained, 3);
    let after = pool.prepare(request).await.unwrap();
    assert!(is_warm(&*taken) && !is_warm(&*after));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scripted.counts().ready, 2, "nothing is made any more");
    pool.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_makes_nothing_more() {
    let (scripted, pool, _) = full(1).await;
    drop(pool);
    scripted.wait_for(|counts| counts.discarded == 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scripted.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_for_the_stock_while_a_job_waits_for_its_own() {
    let (scripted, pool, request) = full(1).await;
    let warm = pool.prepare(request.clone()).await.unwrap();
    scripted.takes(Duration::from_millis(300));
    let began = tokio::time::Instant::now();
    let cold = pool.prepare(request).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(300));
    assert_eq!(
        scripted.requests().len(),
        2,
        "the first warm one, and the job's own"
    );
    assert!(is_warm(&*warm) && !is_warm(&*cold));
    scripted.wait_for(|counts| counts.ready == 3).await;
}

#[tokio::test(start_paused = true)]
async fn trouble_makes_it_wait_and_a_job_gets_the_error_of_its_own_sandbox() {
    let scripted = Scripted::default();
    let refuse = |count| {
        for _ in 0..count {
            scripted.refuse(PrepareError::Mismatch(vec![Mismatch {
                source: MismatchSource::Guest,
                field: "caps".to_owned(),
                asked: "none".to_owned(),
                found: "all".to_owned(),
            }]));
        }
    };
    let request = request(ExecutorId::new());
    let pool = WarmPool::start(Arc::new(scripted.clone()), config(4));
    refuse(2);
    assert!(pool.prepare(request.clone()).await.is_err());
    let failed = || pool.counts().failed;
    while failed() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(
        scripted.requests().len(),
        2,
        "settings that are not in force are not tried again soon"
    );
    scripted.wait_for(|counts| counts.ready == 1).await;
    assert!(is_warm(&*pool.prepare(request).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn another_executor_or_another_kind_gets_none_of_them() {
    let (_, pool, request) = full(1).await;
    let mut other = request.clone();
    other.limits.open_files += 1;
    assert!(!is_warm(&*pool.prepare(other).await.unwrap()));
    let mut other = request.clone();
    other.executor = ExecutorId::new();
    assert!(!is_warm(&*pool.prepare(other).await.unwrap()));
    assert!(is_warm(&*pool.prepare(request).await.unwrap()));
}
