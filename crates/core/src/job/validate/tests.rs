use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    job::{Blob, FileMode},
    units::ByteSize,
};

fn pin() -> ImagePin {
    let digest = Digest::of(b"image");
    ImagePin {
        reference: "python:1".into(),
        digest,
        config_digest: digest,
        platform: "linux/amd64".into(),
    }
}

fn resolve(spec: Value) -> Result<ResolvedJob, Vec<(String, &'static str)>> {
    let spec: JobSpec = serde_json::from_value(spec).expect("a job that can be read");
    spec.resolve(&Policy::default(), pin(), &Digest::of(b"baseline"))
        .map_err(|faults| {
            faults
                .iter()
                .map(|fault| (fault.path.clone(), fault.code))
                .collect()
        })
}

fn faults(spec: Value) -> Vec<(String, &'static str)> {
    resolve(spec).expect_err("faults")
}

#[test]
fn a_source_becomes_a_file_and_its_interpreter() {
    let job = resolve(json!({"image": "python", "source": {"text": "print(1)"}, "args": ["a b"]})).unwrap();
    assert_eq!(job.argv, ["python3", "/work/main.py", "a b"]);
    assert_eq!(
        (job.files[0].path.as_str(), job.files[0].content.as_bytes()),
        ("main.py", &b"print(1)"[..])
    );
    assert_eq!(
        (job.runtime.as_str(), job.limits),
        ("runc", Policy::default().limits.defaults)
    );
    let job = resolve(json!({"image": "shell", "source": {"language": "shell", "text": "echo"}})).unwrap();
    assert_eq!(job.argv, ["sh", "/work/main.sh"]);
}

#[test]
fn an_empty_source_is_a_program() {
    assert!(resolve(json!({"image": "python", "source": {"text": ""}})).is_ok());
}

#[test]
fn every_fault_of_a_job_is_listed_at_once() {
    let spec = json!({
        "image": "python", "command": [""], "args": ["a\0"],
        "files": [{"path": "/etc/passwd", "content": ""}, {"path": "a", "content": ""}, {"path": "a", "content": ""},
                  {"path": "a/b", "content": ""}],
        "env": {"A=B": "", "C": "\0"}, "secrets": {"": "long enough", "C": " \0c ", "D": "12345"}, "limits": {"memory": "1B", "pids": 1_000_000},
        "runtime": "host", "artifacts": ["*", "../x"], "retry": {"max_attempts": 0, "on": ["error"]},
        "labels": {"": "x"}, "expires_after": "1000h",
    });
    let expected = [
        ("command", "empty"),
        ("files[0].path", "bad_path"),
        ("files[2].path", "duplicate"),
        ("files[3].path", "below_a_file"),
        ("args[0]", "contains_nul"),
        ("env[\"A=B\"]", "bad_name"),
        ("env[\"C\"]", "contains_nul"),
        ("secrets[\"\"]", "bad_name"),
        ("secrets[\"C\"]", "contains_nul"),
        ("secrets[\"C\"]", "duplicate"),
        ("secrets[\"C\"]", "too_short"),
        ("labels[\"\"]", "bad_label"),
        ("limits.memory", "too_small"),
        ("limits.pids", "too_large"),
        ("runtime", "not_allowed"),
        ("artifacts[1]", "bad_glob"),
        ("retry.max_attempts", "out_of_range"),
        ("retry.on[0]", "not_a_job_end"),
        ("expires_after", "out_of_range"),
    ];
    assert_eq!(faults(spec), expected.map(|(path, code)| (path.to_owned(), code)));
}

#[test]
fn a_job_is_a_source_or_a_command() {
    assert_eq!(
        faults(json!({"image": "python"})),
        [("source".to_owned(), "missing")]
    );
    let both = json!({"image": "python", "source": {"text": ""}, "command": ["true"]});
    assert_eq!(faults(both), [("command".to_owned(), "ambiguous")]);
}

#[test]
fn names_that_leave_work_or_hide_are_refused() {
    let names = [
        "",
        "..",
        "a/../../b",
        "./a",
        "a//b",
        "a/",
        "/a",
        "a\nb",
        "a\0b",
        "\u{1b}[2J",
        &"n".repeat(256),
    ];
    for name in names {
        let spec = json!({"image": "python", "command": ["true"], "files": [{"path": name, "content": ""}]});
        assert_eq!(
            faults(spec),
            [("files[0].path".to_owned(), "bad_path")],
            "{name:?}"
        );
    }
    let clash =
        json!({"image": "python", "source": {"text": ""}, "files": [{"path": "main.py", "content": ""}]});
    assert_eq!(faults(clash), [("files[0].path".to_owned(), "duplicate")]);
}

#[test]
fn content_is_bounded() {
    let long = "x".repeat(100 * 1024);
    let spec = json!({"image": "python", "command": ["true"], "args": [long]});
    assert_eq!(faults(spec), [("args".to_owned(), "too_large")]);
    let escaped = "\u{1}".repeat(16 * 1024);
    let spec = json!({"image": "python", "command": ["true"], "env": {"A": escaped}});
    assert_eq!(faults(spec), [("args".to_owned(), "too_large")]);
    let big = "x".repeat(usize::try_from(ByteSize::mib(16).as_bytes()).unwrap() + 1);
    let spec = json!({"image": "python", "source": {"text": big}});
    assert_eq!(faults(spec), [("files".to_owned(), "too_large")]);
    let files: Vec<_> = (0..=1000)
        .map(|n| json!({"path": n.to_string(), "content": ""}))
        .collect();
    assert_eq!(
        faults(json!({"image": "python", "command": ["true"], "files": files})),
        [("files".to_owned(), "too_many")]
    );
}

#[test]
fn arguments_and_variables_are_counted() {
    let spec = |args: usize, variables: usize| {
        let env: serde_json::Map<_, _> = (0..variables).map(|n| (n.to_string(), "".into())).collect();
        json!({"image": "python", "source": {"text": ""}, "args": vec![""; args], "env": env})
    };
    assert!(resolve(spec(998, 900)).is_ok());
    assert_eq!(faults(spec(999, 900)), [("args".to_owned(), "too_many")]);
    assert_eq!(faults(spec(998, 901)), [("env".to_owned(), "too_many")]);
}

#[test]
fn a_field_that_nobody_knows_and_a_number_without_a_unit_are_refused_when_read() {
    for spec in [
        json!({"image": "python", "source": {"text": ""}, "privileged": true}),
        json!({"image": "python", "source": {"text": ""}, "limits": {"memory": 268_435_456}}),
        json!({"image": "python", "source": {"text": ""}, "limits": {"wall": 30}}),
        json!({"image": "python:3", "source": {"text": ""}}),
        json!({"image": "python", "source": {"text": ""}, "network": "host"}),
    ] {
        assert!(serde_json::from_value::<JobSpec>(spec.clone()).is_err(), "{spec}");
    }
}

#[test]
fn what_a_job_brings_is_digested_by_part() {
    let job = |text: &str, stdin: &str| {
        resolve(json!({"image": "python", "source": {"text": text}, "stdin": stdin}))
            .unwrap()
            .content_digests()
    };
    let first = job("a", "");
    assert_ne!(first.code, job("b", "").code);
    assert_eq!(first.code, job("a", "x").code);
    assert_ne!(first.stdin, job("a", "x").stdin);
}

proptest! {
    /// What a job asks for is in force or refused; a path that is taken stays below `/work`.
    #[test]
    fn any_path_is_refused_or_stays_inside(path: String) {
        let spec = json!({"image": "python", "command": ["true"], "files": [{"path": path, "content": ""}]});
        if let Ok(job) = resolve(spec) {
            let below = std::path::Path::new("/work").join(&job.files[0].path);
            prop_assert!(below.starts_with("/work"));
            let plain = |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::RootDir);
            prop_assert!(below.components().all(plain));
        }
    }

    /// Whatever JSON comes is read or refused, without a panic.
    #[test]
    fn any_json_is_read_or_refused(text in "\\PC{0,200}") {
        let _: Result<JobSpec, _> = serde_json::from_str(&text);
    }
}

#[test]
fn what_is_wrong_with_secrets_is_said_without_them() {
    let resolved = |secrets: Value, env: Value| {
        let spec = json!({"image": "python", "command": ["true"], "secrets": secrets, "env": env});
        let spec: JobSpec = serde_json::from_value(spec).unwrap();
        assert!(!format!("{spec:?}").contains("hunter2"), "{spec:?}");
        spec.resolve(&Policy::default(), pin(), &Digest::of(b"baseline"))
    };
    let job = resolved(json!({"TOKEN": "hunter2hunter2"}), json!({})).unwrap();
    assert_eq!(job.secrets["TOKEN"].reveal(), "hunter2hunter2");
    assert!(!format!("{job:?}").contains("hunter2"), "{job:?}");
    let bare = resolved(json!({}), json!({})).unwrap();
    let text = serde_json::to_string(&bare).unwrap();
    assert!(
        !text.contains("secrets") && !text.contains("redaction"),
        "as before there were any: {text}"
    );
    assert_eq!(serde_json::from_str::<ResolvedJob>(&text).unwrap(), bare);
    let many: serde_json::Map<_, _> = (0..257).map(|n| (format!("S{n}"), "hunter2".into())).collect();
    let long = format!("hunter2{}", "x".repeat(16 << 10));
    let forms = "hunter2 \u{e9}\"/?".repeat(1100);
    for (secrets, env, path, code) in [
        (
            json!({"A": "hunter2\0"}),
            json!({}),
            "secrets[\"A\"]",
            "contains_nul",
        ),
        (
            json!({"A": "hunter2"}),
            json!({"A": ""}),
            "secrets[\"A\"]",
            "duplicate",
        ),
        (json!({"A": " \n12 "}), json!({}), "secrets[\"A\"]", "too_short"),
        (many.into(), json!({}), "secrets", "too_large"),
        (json!({"A": long}), json!({}), "secrets", "too_large"),
        (json!({"A": forms}), json!({}), "secrets", "too_large"),
    ] {
        let faults = resolved(secrets, env).unwrap_err();
        let found: Vec<_> = faults
            .iter()
            .map(|fault| (fault.path.as_str(), fault.code))
            .collect();
        assert_eq!(found, [(path, code)]);
        assert!(!faults.to_string().contains("hunter2"), "{faults}");
    }
}

#[test]
fn secrets_are_texts_or_names_for_variables_and_for_files() {
    let resolved = |changes: Value| {
        let mut spec = json!({"image": "python", "source": {"text": "pass"}, "files": [{"path": "data/a", "content": ""}]});
        spec.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        let spec: JobSpec = serde_json::from_value(spec).unwrap();
        spec.resolve(&Policy::default(), pin(), &Digest::of(b"baseline"))
    };
    let job = resolved(json!({
        "secrets": {"A": "hunter22", "B": {"named": "b"}},
        "secret_files": {"conf/c": "hunter33", "conf/d": {"named": "d"}, "e": {"named": "b"}},
    }))
    .unwrap();
    assert_eq!(job.secret_values().collect::<Vec<_>>(), ["hunter22", "hunter33"]);
    let name = |text: &str| text.parse::<crate::job::SecretName>().unwrap();
    assert_eq!(job.named_secrets.env, [("B".to_owned(), name("b"))].into());
    assert_eq!(
        job.named_secrets.files,
        [("conf/d".to_owned(), name("d")), ("e".to_owned(), name("b"))].into()
    );
    assert_eq!(job.named_secrets.names(), [&name("b"), &name("d")].into());
    assert!(job.has_secrets());
    let many: serde_json::Map<_, _> = (0..257)
        .map(|n| (format!("S{n}"), json!({"named": "n"})))
        .collect();
    for (changes, path, code) in [
        (
            json!({"secret_files": {"../c": {"named": "c"}}}),
            "secret_files[\"../c\"]",
            "bad_path",
        ),
        (
            json!({"secret_files": {"/c": "hunter22"}}),
            "secret_files[\"/c\"]",
            "bad_path",
        ),
        (
            json!({"secret_files": {"data/a": {"named": "c"}}}),
            "secret_files[\"data/a\"]",
            "duplicate",
        ),
        (
            json!({"secret_files": {"main.py": "hunter22"}}),
            "secret_files[\"main.py\"]",
            "duplicate",
        ),
        (
            json!({"secret_files": {"data/a/b": "hunter22"}}),
            "secret_files[\"data/a/b\"]",
            "below_a_file",
        ),
        (
            json!({"secret_files": {"data": {"named": "c"}}}),
            "files[0].path",
            "below_a_file",
        ),
        (
            json!({"secret_files": {"c": " abc"}}),
            "secret_files[\"c\"]",
            "too_short",
        ),
        (
            json!({"secrets": {"A": {"named": "c"}}, "env": {"A": ""}}),
            "secrets[\"A\"]",
            "duplicate",
        ),
        (
            json!({"secrets": {"A=": {"named": "c"}}}),
            "secrets[\"A=\"]",
            "bad_name",
        ),
        (json!({"secrets": many}), "secrets", "too_large"),
        (
            json!({"secret_files": {"c": format!("hunter22{}", " ".repeat(64 << 10))}}),
            "secrets",
            "too_large",
        ),
        (
            json!({"secrets": {"A".repeat(48 << 10): {"named": "c"}}}),
            "args",
            "too_large",
        ),
    ] {
        let faults = resolved(changes).unwrap_err();
        let found: Vec<_> = faults
            .iter()
            .map(|fault| (fault.path.as_str(), fault.code))
            .collect();
        assert_eq!(found, [(path, code)]);
        assert!(!faults.to_string().contains("hunter"), "{faults}");
    }
}

const ZIPPED: &[u8] = include_bytes!("../../../../../fuzz/seeds/archive/deflated.zip");

fn archive(into: Option<&str>) -> Value {
    let mut archive = json!({"content": Blob::from(ZIPPED.to_vec())});
    if let Some(into) = into {
        archive["into"] = into.into();
    }
    archive
}

#[test]
fn archives_are_files_once_a_policy_was_applied() {
    let spec = json!({
        "image": "python", "source": {"text": ""}, "files": [{"path": "a", "content": ""}],
        "archives": [archive(Some("one")), archive(Some("two/deep"))],
    });
    let job = resolve(spec.clone()).unwrap();
    let paths: Vec<_> = job.files.iter().map(|file| file.path.as_str()).collect();
    let expected =
        ["main.py", "a"]
            .into_iter()
            .map(str::to_owned)
            .chain(["one", "two/deep"].into_iter().flat_map(|into| {
                ["main.py", "pkg/__init__.py", "pkg/mod.py", "bin/tool"].map(|path| format!("{into}/{path}"))
            }));
    assert_eq!(paths, expected.collect::<Vec<_>>());
    assert!(
        job.files
            .iter()
            .all(|file| file.executable == file.path.ends_with("bin/tool"))
    );
    let without = serde_json::to_string(&job).unwrap();
    assert!(!without.contains("archives"), "nothing of them is on record");
    let spec: JobSpec = serde_json::from_value(spec).unwrap();
    let content = spec.content_bytes() + 2 * 1789;
    assert_eq!(job.content_bytes(), content);
    assert!(spec.check(&Policy::default()).is_ok());
}

#[test]
fn archives_count_where_files_do() {
    let mut policy = Policy::default();
    let spec: JobSpec = serde_json::from_value(json!({
        "image": "python", "command": ["true"], "files": [{"path": "a", "content": "1234567890"}],
        "archives": [archive(Some("one")), archive(Some("two"))],
    }))
    .unwrap();
    let codes = |policy: &Policy| match spec.check(policy) {
        Ok(()) => Vec::new(),
        Err(faults) => faults
            .iter()
            .map(|fault| (fault.path.clone(), fault.code))
            .collect(),
    };
    for (total, files, expected) in [
        (10 + 2 * 1789, 9, vec![]),
        (
            10 + 2 * 1789 - 1,
            9,
            vec![("archives[1]".to_owned(), "too_large")],
        ),
        (10 + 2 * 1789, 8, vec![("archives[1]".to_owned(), "too_many")]),
    ] {
        policy.content.total = ByteSize::bytes(total);
        policy.content.files = files;
        assert_eq!(codes(&policy), expected);
    }
}

#[test]
fn the_record_of_content_is_the_same_however_files_came_and_whatever_their_modes() {
    let archived = json!({"image": "python", "command": ["true"], "archives": [archive(None)]});
    let job = resolve(archived).unwrap();
    let mut one_by_one = job.clone();
    for file in &mut one_by_one.files {
        (file.executable, file.mode) = (false, FileMode::new(0o600));
    }
    let files = serde_json::to_value(&one_by_one.files).unwrap();
    assert_eq!(files[0]["mode"], "0600");
    let again = resolve(json!({"image": "python", "command": ["true"], "files": files})).unwrap();
    assert_eq!(again.files, one_by_one.files);
    assert_eq!(again.content_digests(), job.content_digests());
}

#[test]
fn a_file_has_one_mode() {
    let files = |file: Value| json!({"image": "python", "command": ["true"], "files": [file]});
    for (file, mode) in [
        (json!({"path": "a", "content": ""}), 0o644),
        (json!({"path": "a", "content": "", "executable": true}), 0o755),
        (json!({"path": "a", "content": "", "mode": "0640"}), 0o640),
        (
            json!({"path": "a", "content": "", "mode": "500", "executable": false}),
            0o500,
        ),
    ] {
        assert_eq!(resolve(files(file)).unwrap().files[0].file_mode().bits(), mode);
    }
    let both = json!({"path": "a", "content": "", "mode": "0640", "executable": true});
    assert_eq!(faults(files(both)), [("files[0].mode".to_owned(), "ambiguous")]);
    let setuid = files(json!({"path": "a", "content": "", "mode": "4755"}));
    let error = serde_json::from_value::<JobSpec>(setuid).unwrap_err().to_string();
    assert!(error.contains("setuid") && error.contains("0640"), "{error}");
}
