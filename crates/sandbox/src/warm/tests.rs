use std::collections::BTreeMap;

use mayfly_core::job::{Blob, InputFile, JobSpec};

use super::*;
use crate::baseline::sample_request;

fn warmth(imports: &[&str]) -> Warmth {
    let request = sample_request();
    Warmth {
        command: command(imports),
        environment: job_environment(&request.limits, crate::seam::Loopback::Closed, &[], []),
        boot: Ok(1),
        killed_for_memory: false,
    }
}

fn command(imports: &[&str]) -> WarmCommand {
    WarmCommand::python(imports.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

fn job(argv: &[&str], files: &[&str]) -> ResolvedJob {
    let request = sample_request();
    let file = |path: &&str| InputFile {
        path: (*path).to_owned(),
        content: Blob::from(Vec::new()),
        executable: false,
        mode: None,
    };
    ResolvedJob {
        image: mayfly_core::image::ImageName::Digest {
            repository: "sample".to_owned(),
            digest: request.image.digest,
        },
        pin: request.image,
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        files: files.iter().map(file).collect(),
        stdin: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        secret_files: BTreeMap::new(),
        fetched: Vec::new(),
        named_secrets: Default::default(),
        redaction: Default::default(),
        asked: Default::default(),
        limits: request.limits,
        network: request.network,
        egress: None,
        runtime: request.runtime,
        on_output_limit: mayfly_core::policy::OnOutputLimit::Truncate,
        artifacts: Vec::new(),
        artifacts_after: Default::default(),
        artifact_limits: None,
        retry: Default::default(),
        policy_version: mayfly_core::digest::Digest::of(b""),
    }
}

const PYTHON: [&str; 2] = ["python3", "/work/main.py"];

fn admits(warmth: &Warmth, job: &ResolvedJob, variables: &[(&str, &str)]) -> Result<(), String> {
    warmth.admits(
        job,
        &job_environment(
            &job.limits,
            crate::seam::Loopback::Closed,
            &[],
            variables.iter().copied(),
        ),
    )
}

#[test]
fn what_waits_is_what_a_python_source_becomes() {
    let spec: JobSpec = serde_json::from_str(r#"{"image": "x", "source": {"text": ""}}"#).unwrap();
    let (program, file) = spec.source.unwrap().language.interpreter();
    let argv = [program.to_owned(), format!("/work/{file}")];
    assert_eq!(command(&[]).order(&[]).argv, argv);
    assert_eq!(argv, PYTHON);
}

#[test]
fn the_hook_goes_before_what_the_image_searches() {
    let order = command(&["json", "os.path"]).order(&[
        ("A".to_owned(), "1".to_owned()),
        ("PYTHONPATH".to_owned(), "/opt/a:/opt/b".to_owned()),
    ]);
    let env: Vec<(&str, &str)> = order
        .env
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    assert_eq!(
        env,
        [
            ("A", "1"),
            ("PYTHONPATH", "/guest/python:/opt/a:/opt/b"),
            ("MAYFLY_WARM_IMPORTS", "json,os.path")
        ]
    );
    let order = command(&[]).order(&[]);
    assert_eq!(
        order.env[0],
        ("PYTHONPATH".to_owned(), "/guest/python".to_owned())
    );
}

#[test]
fn a_name_that_is_no_module_is_refused() {
    for good in ["json", "os.path", "_x", "numpy2", "\u{e9}t\u{e9}"] {
        assert!(WarmCommand::python(vec![good.to_owned()]).is_ok(), "{good}");
    }
    for bad in ["", "a,b", "a b", ".a", "a.", "a..b", "1a", "a\0", "a;b"] {
        assert_eq!(
            WarmCommand::python(vec!["json".to_owned(), bad.to_owned()]),
            Err(NotAModule(bad.to_owned()))
        );
    }
}

#[test]
fn a_job_that_a_cold_start_would_read_the_same_for_is_admitted() {
    let bare = warmth(&[]);
    assert_eq!(
        admits(&bare, &job(&PYTHON, &["main.py", "data/x.csv"]), &[]),
        Ok(())
    );
    let arguments = job(&["python3", "/work/main.py", "-v", "x"], &["main.py"]);
    assert_eq!(admits(&bare, &arguments, &[("API_KEY", "k"), ("X", "")]), Ok(()));
    assert_eq!(admits(&warmth(&["json"]), &arguments, &[]), Ok(()));
}

#[test]
fn a_job_that_the_process_has_read_something_else_for_is_not() {
    let bare = warmth(&[]);
    let main = job(&PYTHON, &["main.py"]);
    for argv in [
        &["python3"][..],
        &["python3", "main.py"],
        &["python3", "-u", "/work/main.py"],
        &["/usr/bin/python3", "/work/main.py"],
        &["sh", "/work/main.sh"],
    ] {
        assert!(admits(&bare, &job(argv, &["main.py"]), &[]).is_err(), "{argv:?}");
    }
    for file in [
        ".local/lib/python3.11/site-packages/x.pth",
        "a/.b",
        "matplotlibrc",
    ] {
        let why = admits(&bare, &job(&PYTHON, &["main.py", file]), &[]).unwrap_err();
        assert!(why.contains(file), "{why}");
    }
    for name in [
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "LD_PRELOAD",
        "LC_ALL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TZDIR",
        "HOME",
        "PATH",
        "OMP_NUM_THREADS",
        "MALLOC_ARENA_MAX",
        "GLIBC_TUNABLES",
    ] {
        let why = admits(&bare, &main, &[(name, "other")]).unwrap_err();
        assert!(why.contains(name), "{why}");
    }
    // What an import has read can't be known.
    let why = admits(&warmth(&["json"]), &main, &[("MPLBACKEND", "svg")]).unwrap_err();
    assert!(why.contains("MPLBACKEND"), "{why}");
    let failed = Warmth {
        boot: Err("it broke".to_owned()),
        ..warmth(&[])
    };
    assert_eq!(admits(&failed, &main, &[]), Err("it broke".to_owned()));
}

#[test]
fn the_record_says_whether_the_process_was_used_and_why_not() {
    let concluded = |admitted: Result<(), String>, came| {
        let mut facts = warmth(&["json"]).facts();
        conclude(&mut facts, admitted, came);
        (facts.used, facts.why_cold)
    };
    assert_eq!(concluded(Ok(()), Some(WarmUse::Used)), (true, None));
    let why = || Err("another command".to_owned());
    assert_eq!(
        concluded(why(), Some(WarmUse::NotAsked)),
        (false, Some("another command".to_owned()))
    );
    for came in [
        None,
        Some(WarmUse::NotAsked),
        Some(WarmUse::Gone),
        Some(WarmUse::Unfit),
        Some(WarmUse::Wrote),
        Some(WarmUse::Silent),
        Some(WarmUse::Declined),
    ] {
        let (used, why) = concluded(Ok(()), came);
        assert!(!used && why.is_some(), "{came:?}");
    }
}
