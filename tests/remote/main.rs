//! The commands that ask a server, against `mayfly dev` on the real engine: the real binary on both sides, over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

#[path = "../newcomer/support.rs"]
mod support;

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Output, Stdio},
};

use mayfly_testkit::model::{ModelServer, Say, Shape};
use serde_json::Value;
use support::{ACTING, Mayfly, assert_nothing_acts};

/// A server of the test's own, and a home whose commands ask it.
struct Served {
    home: Mayfly,
    server: Child,
    url: String,
    key: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let ended = Command::new("kill").arg(self.server.id().to_string()).status();
        assert!(
            ended.is_ok_and(|status| status.success()),
            "the server runs until here"
        );
        self.server.wait().unwrap();
    }
}

impl Served {
    /// Nothing where there is no engine; that is printed and counted.
    fn start() -> Option<Self> {
        let home = Mayfly::with_python()?;
        let mut server = home
            .command(["dev"])
            .env("MAYFLY_SERVER__LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap();
        let key = lines.next().unwrap().unwrap();
        // The rest of what it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self {
            home,
            server,
            url: url.strip_prefix("mayfly dev serves ").unwrap().to_owned(),
            key: key.rsplit_once(": ").unwrap().1.to_owned(),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command
            .env("MAYFLY_CLIENT__SERVER", &self.url)
            .env("MAYFLY_CLIENT__KEY", &self.key)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        said(self.command(args).output().unwrap())
    }

    /// What a command prints that must succeed.
    fn printed(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        assert!(
            !format!("{stdout}{stderr}").contains(&self.key),
            "the key is not printed"
        );
        stdout
    }

    fn file(&self, text: &str) -> String {
        self.home
            .file("job.py", text.as_bytes())
            .to_str()
            .unwrap()
            .to_owned()
    }
}

fn said(output: Output) -> (i32, String, String) {
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_program_ends_at_a_server_as_it_ends_here() {
    let Some(served) = Served::start() else { return };
    let file = served.file("import sys\nprint(6*7)\nprint('oh', file=sys.stderr)\nsys.exit(3)\n");
    let (code, stdout, stderr) = served.run(&["run", &file]);
    assert_eq!((code, stdout.as_str()), (3, "42\n"));
    let (here_code, here_stdout, here_stderr) = served.run(&["run", "--local", &file]);
    assert_eq!((here_code, here_stdout.as_str()), (3, "42\n"));
    let parts = |line: &str| {
        line.split(" · ")
            .take(4)
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>()
    };
    let (first, last) = stderr.split_once('\n').unwrap();
    let (here_first, here_last) = here_stderr.split_once('\n').unwrap();
    assert_eq!((first, parts(last)), (here_first, parts(here_last)), "{stderr}");
    let json: Value = serde_json::from_str(&served.run(&["run", "--json", &file]).1).unwrap();
    assert_eq!(
        (&json["state"], &json["stdout"]["text"]),
        (&"failed".into(), &"42\n".into())
    );
    assert_eq!(json["exit_code"], 3);
}

#[test]
fn a_job_is_submitted_found_and_read() {
    let Some(served) = Served::start() else { return };
    let file = served.file("print('x' * 3)");
    let id = served.printed(&["submit", "--label", "a=b", "--idempotency-key", "k", &file]);
    let id = id.trim();
    let again = served.printed(&[
        "submit",
        "--label",
        "a=b",
        "--idempotency-key",
        "k",
        "--wait",
        &file,
    ]);
    assert_eq!(again, "xxx\n");
    assert_eq!(served.printed(&["logs", id]), "xxx\n");
    assert_eq!(served.printed(&["logs", "-f", id]), "xxx\n");
    let shown = served.printed(&["job", "show", id]);
    assert!(shown.contains("succeeded") && shown.contains("a=b"), "{shown}");
    let listed = served.printed(&["job", "list", "--label", "a=b", "--state", "succeeded", "--json"]);
    assert_eq!(listed.lines().count(), 1);
    assert_eq!(served.printed(&["job", "list", "--label", "a=c", "--json"]), "");
    let audit = served.printed(&["audit", "list", "--job", id]);
    assert!(
        audit.contains("job_submitted") && audit.contains("run_finished"),
        "{audit}"
    );
    let cancel = served.printed(&["cancel", id]);
    assert!(cancel.contains("was over already"), "{cancel}");
    assert!(served.printed(&["image", "list"]).contains("python"));
    assert!(served.printed(&["top"]).contains("jobs:"));
    let (code, _, stderr) = served.run(&["submit", "--idempotency-key", "k", &served.file("print(1)")]);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("idempotency"), "{stderr}");
}

#[test]
fn nothing_of_a_job_acts_in_what_a_server_has_of_it() {
    let Some(served) = Served::start() else { return };
    let file = served.file("import os, sys\nfor to in (1, 2): os.write(to, sys.argv[1].encode())\n");
    let label = format!("acting={ACTING}");
    let run = served.printed(&["run", "--json", "--label", &label, &file, "--", ACTING]);
    let json: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(
        (&json["stdout"]["text"], &json["labels"]["acting"]),
        (&ACTING.into(), &ACTING.into())
    );
    let id = json["job"].as_str().unwrap();
    for command in [
        &["job", "show", id][..],
        &["job", "show", id, "--json"],
        &["job", "list"],
        &["job", "list", "--json"],
        &["audit", "list", "--job", id],
        &["audit", "list", "--job", id, "--json"],
        &["top"],
    ] {
        assert_nothing_acts(&command.join(" "), &served.printed(command));
    }
    assert_nothing_acts("run", &run);
    assert_eq!(
        served.printed(&["logs", "--stream", "stdout", id]),
        ACTING,
        "a file gets the bytes"
    );
}

#[test]
fn ctrl_c_cancels_the_job() {
    let Some(served) = Served::start() else { return };
    let file = served.file("import time\nprint('here', flush=True)\ntime.sleep(600)");
    let mut run = served
        .command(&["run", "--timeout", "20m", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "here\n");
    let sent = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let (code, _, stderr) = said(run.wait_with_output().unwrap());
    assert_eq!(code, 120, "{stderr}");
    assert!(stderr.contains("canceled"), "{stderr}");
}

#[test]
fn who_may_not_is_told_so_and_a_first_key_comes_from_the_database() {
    let Some(served) = Served::start() else { return };
    let key = served.printed(&[
        "--local", "key", "create", "--role", "auditor", "--tenant", "local",
    ]);
    let mut theirs = served.command(&["submit", &served.file("print(1)")]);
    let (code, _, stderr) = said(theirs.env("MAYFLY_CLIENT__KEY", key.trim()).output().unwrap());
    assert_eq!(code, 77, "{stderr}");
    let keys = served.printed(&["key", "list", "--json"]);
    let auditor = keys.lines().find(|line| line.contains("auditor")).unwrap();
    let id: Value = serde_json::from_str(auditor).unwrap();
    served.printed(&["key", "revoke", id["key"].as_str().unwrap()]);
    let tenant = served.printed(&["tenant", "create", "acme"]);
    assert!(served.printed(&["tenant", "list"]).contains(tenant.trim()));
    let bounds = |json: &str| {
        let tenant: Value = serde_json::from_str(json).expect("one JSON line");
        [
            &tenant["weight"],
            &tenant["most_in_flight"],
            &tenant["most_queued"],
        ]
        .map(Value::as_u64)
    };
    let set = [
        "tenant",
        "set",
        "acme",
        "--most-in-flight",
        "3",
        "--most-queued",
        "5",
        "--json",
    ];
    assert_eq!(bounds(&served.printed(&set)), [Some(1), Some(3), Some(5)]);
    let set = [
        "--local",
        "tenant",
        "set",
        "acme",
        "--weight",
        "7",
        "--most-in-flight",
        "none",
        "--json",
    ];
    assert_eq!(bounds(&served.printed(&set)), [Some(7), None, Some(5)]);
    let shown = served.printed(&["tenant", "show", "acme", "--json"]);
    assert_eq!(bounds(&shown), [Some(7), None, Some(5)]);
    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(served.run(&["job", "show", &unknown]).0, 72);
    let mut nobody = served.command(&["job", "list"]);
    let nobody = nobody.env("MAYFLY_CLIENT__SERVER", "http://10.0.0.1");
    let (code, _, stderr) = said(nobody.output().unwrap());
    assert_eq!(code, 64);
    assert!(stderr.contains("allow_plain_http"), "{stderr}");
}

#[test]
fn programs_of_a_model_run_at_the_server_and_its_key_stays_here() {
    const KEY: &str = "sk-canary-9d02c7714e";
    let Some(served) = Served::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let model = runtime.block_on(ModelServer::start(|asked| match asked.results.as_slice() {
        [] => Say::call(
            "run_python",
            serde_json::json!({"source": "import secrets\nprint('nonce', secrets.token_hex(8))"}),
        ),
        [one] => {
            let (_, nonce) = one.text.split_once("nonce ").expect("the program has run");
            Say::Text(nonce[..16].to_owned())
        }
        more => panic!("{more:?}"),
    }));
    let mut command = served.command(&[
        "ask",
        "--model",
        "openai/scripted",
        "--log",
        "trace",
        "a number, please",
    ]);
    command
        .env("OPENAI_BASE_URL", model.base(Shape::OpenAi))
        .env("OPENAI_API_KEY", KEY);
    let (code, stdout, stderr) = said(command.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(!format!("{stdout}{stderr}").contains(&served.key) && !stderr.contains(KEY));
    let last = served.printed(&["job", "show", "--last", "--json"]);
    let job: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(job["stdout"]["text"], format!("nonce {stdout}"), "{stderr}");
    assert_eq!(job["labels"]["tool"], "run_python");
    let database = served.home.database();
    for file in std::fs::read_dir(database.parent().unwrap()).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        assert!(
            !bytes.windows(9).any(|window| window == b"sk-canary"),
            "{:?}",
            file.path()
        );
    }
}
