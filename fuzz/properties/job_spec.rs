//! What holds of every text that somebody gives as a job.

use std::collections::BTreeSet;

use mayfly_core::{
    digest::Digest,
    image::ImagePin,
    job::{JobSpec, ResolvedJob},
    limits::MEMORY_BESIDE_TMPFS,
    policy::Policy,
};

/// Panics if it does not hold of this text. Says whether it was a job, and whether the policy allows it.
pub(crate) fn check(json: &[u8]) -> Verdict {
    let Ok(spec) = serde_json::from_slice::<JobSpec>(json) else {
        return Verdict::NoJob;
    };
    let written = serde_json::to_vec(&spec).expect("a job can be written");
    assert_eq!(
        serde_json::from_slice::<JobSpec>(&written).ok().as_ref(),
        Some(&spec),
        "what was read is written as something that reads back as the same"
    );
    let (policy, baseline) = (Policy::default(), Digest::of(b"baseline"));
    let resolve = || spec.clone().resolve(&policy, pin(), &baseline);
    let resolved = resolve();
    assert_eq!(resolved, resolve(), "the same job always means the same");
    match resolved {
        Ok(job) => {
            accepted(&spec, &job, &policy);
            Verdict::Accepted
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "a refusal says why");
            for fault in faults.iter() {
                assert!(!fault.path.is_empty() && !fault.code.is_empty() && !fault.message.is_empty());
                assert!(
                    fault.message.len() <= 16 * 1024,
                    "{} bytes of {}",
                    fault.message.len(),
                    fault.path
                );
                assert!(fault.path.len() <= 1024, "{} bytes of a path", fault.path.len());
            }
            Verdict::Refused
        }
    }
}

/// What became of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can't be read as a job.
    NoJob,
    /// It breaks a rule.
    Refused,
    /// It would run.
    Accepted,
}

fn accepted(spec: &JobSpec, job: &ResolvedJob, policy: &Policy) {
    let written = serde_json::to_vec(job).expect("a resolved job can be written");
    assert_eq!(
        serde_json::from_slice::<ResolvedJob>(&written).ok().as_ref(),
        Some(job)
    );
    assert_eq!(job.content_digests(), job.clone().content_digests());

    assert!(
        job.argv.first().is_some_and(|program| !program.is_empty()),
        "there is a program"
    );
    assert!(!job.argv.iter().any(|argument| argument.contains('\0')));
    for (name, value) in job.variables() {
        assert!(
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'),
            "{name:?}"
        );
    }
    secrets(job);
    files(job, policy);
    limits(spec, job, policy);
    fits_its_frame(job);
    assert!(policy.runtimes.contains(&job.runtime) && policy.networks.contains(&job.network));
    assert!((1..=policy.max_attempts).contains(&job.retry.max_attempts));
    assert!(job.artifacts.is_empty(), "what can't be kept is not promised");
}

/// Each of them can be looked for, and is one variable.
fn secrets(job: &ResolvedJob) {
    let values = job.secrets.values().map(mayfly_core::job::SecretText::reveal);
    let secrets = mayfly_redact::Secrets::new(values).expect("they are few and short enough");
    assert_eq!(secrets.too_short(), 0);
    assert!(job.secrets.keys().all(|name| !job.env.contains_key(name)));
}

/// Every path stays below `/work`, and no two are in each other's way.
fn files(job: &ResolvedJob, policy: &Policy) {
    assert!(
        job.files.len() <= policy.content.files as usize + 1,
        "{} files",
        job.files.len()
    );
    let paths: BTreeSet<&str> = job.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths.len(), job.files.len(), "no file takes the place of another");
    for path in &paths {
        assert!(path.len() <= policy.content.path_bytes as usize);
        assert!(!path.chars().any(char::is_control), "{path:?}");
        for part in path.split('/') {
            assert!(!["", ".", ".."].contains(&part) && part.len() <= 255, "{path:?}");
        }
        for (end, _) in path.match_indices('/') {
            assert!(!paths.contains(&path[..end]), "{path:?} is below a file");
        }
    }
    let content = job.files.iter().map(|file| &file.content).chain(&job.stdin);
    let total: usize = content.map(|content| content.as_bytes().len()).sum();
    assert!(total as u64 <= policy.content.total.as_bytes(), "{total} bytes");
}

/// What was asked for is in force, and every number is between its floor and its ceiling.
fn limits(spec: &JobSpec, job: &ResolvedJob, policy: &Policy) {
    let (limits, least, most) = (&job.limits, &policy.limits.floors, &policy.limits.ceilings);
    macro_rules! each {
        ($($field:ident)*) => {$(
            assert!((least.$field..=most.$field).contains(&limits.$field), stringify!($field));
            assert!(spec.limits.$field.is_none_or(|asked| asked == limits.$field), stringify!($field));
        )*};
    }
    each!(memory cpu pids wall work tmp shm stdout stderr open_files);
    let in_memory = limits.work.as_bytes() + limits.tmp.as_bytes() + limits.shm.as_bytes();
    assert!(in_memory + MEMORY_BESIDE_TMPFS.as_bytes() <= limits.memory.as_bytes());
}

/// The guest takes the job's arguments and environment in one frame, beside variables of our own: a job that is
/// accepted is one that it can read.
fn fits_its_frame(job: &ResolvedJob) {
    use mayfly_protocol::{Decoder, Job, ToGuest, VERSION};
    // Ours beside them: 24, and 6 where there is a proxy.
    let ours = (0..30).map(|n| {
        (
            format!("OUR_VARIABLE_{n}"),
            "/work/.local/share/some/value".to_owned(),
        )
    });
    let variables = job.variables();
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let frame = ToGuest::Job(Job {
        version: VERSION,
        argv: job.argv.clone(),
        env: variables.chain(ours).collect(),
        cwd: "/work".to_owned(),
        deadline_ms: u64::MAX,
        rlimits: vec![],
        files: u32::try_from(job.files.len()).expect("files are counted in 32 bits"),
        stdin: true,
        warm: true,
        collects: !job.artifacts.is_empty(),
        egress: job.egress.is_some(),
    });
    let mut bytes = Vec::new();
    frame
        .encode(&mut bytes)
        .expect("an accepted job fits into a frame");
    let read = Decoder::<ToGuest>::new()
        .decode(&mut &*bytes)
        .expect("the guest can read an accepted job");
    assert_eq!(read, Some(frame));
}

fn pin() -> ImagePin {
    let digest = Digest::of(b"image");
    ImagePin {
        reference: "python:1".to_owned(),
        digest,
        config_digest: digest,
        platform: "linux/amd64".to_owned(),
    }
}
