use mayfly_core::units::{ByteSize, CpuShare};

use super::*;

type Change = fn(&mut Limits);

fn body_of(request: &SandboxRequest, engine: &EngineFacts) -> ContainerCreateBody {
    create_body(&CreateInputs {
        request,
        engine,
        deployment: "home",
        expires: 1_800_000_000,
        uids: UidPair {
            guest: 20_000,
            job: 20_001,
        },
        guest_volume: "mayfly-guest-x86_64-0-1",
        filter: "{}",
        image_env: &["PATH=/bin".to_owned(), "LD_PRELOAD=/evil.so".to_owned()],
    })
}

#[test]
fn each_change_of_the_baseline_shows_in_review() {
    insta::with_settings!({ sort_maps => true }, {
        insta::assert_json_snapshot!(body_of(&sample_request(), &sample_engine()));
    });
}

#[test]
fn the_environment_of_a_job_shows_in_review() {
    let environment = job_environment(&sample_request().limits, Loopback::Closed, &[], []);
    insta::assert_json_snapshot!(environment);
}

#[test]
fn an_open_loopback_changes_this_and_nothing_else() {
    let open = SandboxRequest {
        loopback: Loopback::Open,
        ..sample_request()
    };
    let sysctls = |request: &SandboxRequest, engine: &EngineFacts| {
        let body = body_of(request, engine);
        body.host_config.unwrap().sysctls.unwrap_or_default()
    };
    let mut body = body_of(&open, &sample_engine());
    let small = sysctls(&open, &sample_engine());
    assert_eq!(small.len(), 2);
    assert!(small.values().all(|value| value == TCP_BUFFERS));
    body.host_config.as_mut().unwrap().sysctls = None;
    assert_eq!(body, body_of(&sample_request(), &sample_engine()));
    // Counted, and another kernel's.
    let v2 = EngineFacts {
        cgroup: CgroupVersion::V2,
        ..sample_engine()
    };
    let gvisor = SandboxRequest {
        runtime: "runsc".to_owned(),
        ..open.clone()
    };
    assert!(sysctls(&open, &v2).is_empty());
    assert!(sysctls(&gvisor, &sample_engine()).is_empty());

    let environment = |loopback| job_environment(&sample_request().limits, loopback, &[], []);
    let (closed, open) = (environment(Loopback::Closed), environment(Loopback::Open));
    let added: Vec<_> = open
        .iter()
        .filter(|variable| !closed.contains(variable))
        .collect();
    insta::assert_json_snapshot!(added);
}

#[test]
fn what_an_engine_wants_otherwise_it_gets_otherwise() {
    let v2 = EngineFacts {
        cgroup: CgroupVersion::V2,
        ..sample_engine()
    };
    let swappiness = |engine: &EngineFacts| {
        body_of(&sample_request(), engine)
            .host_config
            .unwrap()
            .memory_swappiness
    };
    assert_eq!((swappiness(&sample_engine()), swappiness(&v2)), (Some(0), None));
    let podman = EngineFacts {
        podman: true,
        ..sample_engine()
    };
    assert_eq!(body_of(&sample_request(), &podman).env, Some(vec![]));
    assert_eq!(
        body_of(&sample_request(), &sample_engine()).env,
        Some(vec!["PATH".to_owned(), "LD_PRELOAD".to_owned()])
    );
}

#[test]
fn gvisors_own_threads_have_room_beside_the_jobs_limit() {
    let gvisor = SandboxRequest {
        runtime: "runsc".to_owned(),
        ..sample_request()
    };
    let (host, own) = (sample_request(), gvisor);
    let pids = i64::from(host.limits.pids);
    assert_eq!(engine_pids_limit(&host), pids + 1);
    assert_eq!(engine_pids_limit(&own), 128 + 8 * pids);
    let nproc = |request: &SandboxRequest| {
        process_limits(request)
            .into_iter()
            .find(|(name, _)| *name == "nproc")
    };
    assert_eq!(nproc(&own), Some(("nproc", u64::from(own.limits.pids))));
    assert_eq!(nproc(&host), Some(("nproc", u64::from(host.limits.pids) + 1)));
}

#[test]
fn each_limit_reaches_the_engine() {
    let asked = |change: fn(&mut Limits)| {
        let mut request = sample_request();
        change(&mut request.limits);
        body_of(&request, &sample_engine())
    };
    let usual = asked(|_| {});
    let changes: [(&str, Change); 7] = [
        ("memory", |limits| limits.memory = ByteSize::mib(100)),
        ("cpu", |limits| limits.cpu = CpuShare::millis(100)),
        ("pids", |limits| limits.pids = 100),
        ("work", |limits| limits.work = ByteSize::mib(10)),
        ("tmp", |limits| limits.tmp = ByteSize::mib(10)),
        ("shm", |limits| limits.shm = ByteSize::mib(10)),
        ("open_files", |limits| limits.open_files = 100),
    ];
    for (name, change) in changes {
        assert_ne!(asked(change), usual, "{name}");
    }
}

#[test]
fn the_digest_of_the_baseline_is_the_same_each_time() {
    assert_eq!(baseline_digest(), baseline_digest());
}
