//! The process that waits for its job: what a job can tell of it, and what happens when it fails.

mod failures;

use std::process::Command;

use mayfly_protocol::{Ended, FromGuest, Job, ToGuest, WarmOrder, WarmUse};

use crate::alike::{PROGRAMS, Program, without_addresses};
use crate::guest;
use crate::harness::{Guest, Options, Told, WORK, job};

/// Where the hook is for these tests, in the guest's mount namespace alone.
const HOOK: &str = "/srv/python";

const PYTHON: [&str; 2] = ["/usr/bin/python3", "/mnt/main.py"];

/// A sandbox with the hook and with a folder of modules that can be imported.
fn with_hook(modules: &[(&str, &str)]) -> Options {
    let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/hooks/python");
    let mut prelude =
        format!("mount -t tmpfs -o mode=0755 srv /srv; cp -r {hook} /srv; mkdir /srv/modules\n");
    for (name, text) in modules {
        prelude += &format!("cat > /srv/modules/{name}.py <<'END'\n{text}\nEND\n");
    }
    Options {
        prelude,
        ..Options::plain()
    }
}

/// The environment of a job of these tests; the order's is the same with the hook's variables.
fn environment() -> Vec<(String, String)> {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("HOME", WORK),
        ("PYTHONPATH", "/srv/modules"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn python_order(imports: &str) -> WarmOrder {
    let mut env = environment();
    env.retain(|(name, _)| name != "PYTHONPATH");
    env.push(("PYTHONPATH".to_owned(), format!("{HOOK}:/srv/modules")));
    env.push(("MAYFLY_WARM_IMPORTS".to_owned(), imports.to_owned()));
    order(&PYTHON, env)
}

fn order(argv: &[&str], env: Vec<(String, String)>) -> WarmOrder {
    WarmOrder {
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        env,
        cwd: WORK.to_owned(),
        limit_ms: 10_000,
    }
}

/// What waits is a script of a test's own. Started cold it says so.
fn script_order(script: &str) -> WarmOrder {
    let script = format!(
        "import os, signal, sys, time
try: os.write(4, b'')
except OSError: print('cold'); sys.exit()
def take():
    text = b''
    while text.count(b'\\0') < 2 or text.count(b'\\0') != 2 + sum(map(int, text.split(b'\\0')[:2])):
        text += os.read(3, 100)
    return text
def go():
    os.write(4, b'T')
    assert os.read(3, 1) == b'G'
{script}"
    );
    order(&["/usr/bin/python3", "-c", &script], environment())
}

/// A job that may run in the process of the order.
fn job_for(order: &WarmOrder) -> Job {
    Job {
        argv: order.argv.clone(),
        env: environment(),
        warm: true,
        ..job(&[], 0)
    }
}

fn python_job(args: &[&str]) -> Job {
    let mut job = job_for(&python_order(""));
    job.argv.extend(args.iter().map(|&arg| arg.to_owned()));
    job.env.push(("NAME".to_owned(), "m\u{e9}yfly=x".to_owned()));
    job.files = 1;
    job
}

/// Sends the order and takes the answer.
fn warm_up(guest: &Guest, order: &WarmOrder) -> Result<(), String> {
    guest.send(&ToGuest::Warm(order.clone()));
    match guest.next() {
        FromGuest::Warmed(warmed) => {
            assert!(warmed.boot_us > 0);
            Ok(())
        }
        FromGuest::WarmFailed(failed) => Err(failed.reason),
        other => panic!("{other:?}"),
    }
}

fn run_program(guest: &Guest, program: &Program) -> Told {
    let mut job = python_job(program.args);
    job.stdin = program.stdin.is_some();
    guest.submit(job, &[("main.py", 0o644, program.text.as_bytes())]);
    if let Some(stdin) = program.stdin {
        guest.send(&ToGuest::Stdin(stdin.as_bytes().to_vec()));
        guest.send(&ToGuest::StdinClose);
    }
    guest.collect()
}

/// What there is to compare of a run.
fn said(told: &Told) -> (String, String, Ended) {
    (
        without_addresses(&told.out()),
        without_addresses(&told.err()),
        told.exit().how,
    )
}

#[test]
fn a_program_says_the_same_of_itself_after_a_warm_start_as_after_a_cold_one() {
    let mut different = Vec::new();
    for program in PROGRAMS {
        let cold = run_program(&guest!(with_hook(&[])), program);
        assert_eq!(cold.warm, Some(WarmUse::Gone));
        let guest = guest!(with_hook(&[]));
        warm_up(&guest, &python_order("")).unwrap();
        let warm = run_program(&guest, program);
        assert_eq!(warm.warm, Some(WarmUse::Used));
        let (cold, warm) = (said(&cold), said(&warm));
        if cold != warm {
            eprintln!("{}:\ncold: {cold:#?}\nwarm: {warm:#?}", program.name);
            different.push(program.name);
        }
    }
    assert_eq!(different, Vec::<&str>::new());
}

/// Runs a Python program in a guest that was asked to keep a process waiting.
fn run_main(guest: &Guest, program: &str) -> Told {
    guest.run(python_job(&[]), &[("main.py", 0o644, program.as_bytes())])
}

/// The job of a script order, and what it came to.
fn run_script(guest: &Guest, order: &WarmOrder) -> Told {
    guest.run(job_for(order), &[])
}

fn signal_the_one_that_waits(guest: &Guest, signal: &str) {
    let [pid] = guest.processes_of(guest.job_id)[..] else {
        panic!("one process waits")
    };
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

fn assert_cold(told: &Told, why: WarmUse) {
    assert_eq!(
        (told.warm, told.out().as_str()),
        (Some(why), "cold\n"),
        "{}",
        told.err()
    );
    assert_eq!(told.exit().how, Ended::Code(0));
}

#[test]
fn what_was_imported_is_there_and_a_second_import_does_nothing() {
    let modules = [
        ("heavy", "import json\nvalue = object()"),
        ("other", "def f(): return __name__"),
    ];
    let guest = guest!(with_hook(&modules));
    warm_up(&guest, &python_order("heavy,other,os.path")).unwrap();
    let told = run_main(
        &guest,
        "import sys; print([m in sys.modules for m in ('heavy', 'other', 'json')]); import heavy, other; print(other.f())",
    );
    assert_eq!(told.warm, Some(WarmUse::Used), "{}", told.err());
    assert_eq!(told.out(), "[True, True, True]\nother\n");
}

#[test]
fn an_import_that_fails_is_named_and_the_job_starts_cold() {
    let modules = [
        ("broken", "raise RuntimeError('no luck')"),
        ("leaves", "import sys; sys.exit(3)"),
    ];
    for (imports, named) in [
        (
            "nosuchmodule",
            "nosuchmodule: ModuleNotFoundError: No module named 'nosuchmodule'",
        ),
        ("broken", "broken: RuntimeError: no luck"),
        ("leaves", "leaves: SystemExit: 3"),
    ] {
        let guest = guest!(with_hook(&modules));
        let why = warm_up(&guest, &python_order(imports)).unwrap_err();
        assert!(why.starts_with(named), "{why}");
        let told = run_main(&guest, "print('ran')");
        assert_eq!((told.warm, told.out().as_str()), (Some(WarmUse::Gone), "ran\n"));
    }
}

#[test]
fn an_import_that_writes_something_leaves_it_to_the_program_that_imports_it() {
    for text in [
        "print('loud')",
        "import sys; sys.stderr.write('loud\\n')",
        "import os; os.write(1, b'loud\\n')",
    ] {
        let guest = guest!(with_hook(&[("loud", text)]));
        let why = warm_up(&guest, &python_order("loud")).unwrap_err();
        assert!(why.starts_with("it wrote something"), "{why}");
        let told = run_main(&guest, "import loud");
        assert_eq!(told.warm, Some(WarmUse::Gone));
        assert_eq!(told.out() + &told.err(), "loud\n");
    }
}

#[test]
fn what_an_import_writes_later_is_not_the_jobs() {
    let late = "import signal
signal.signal(signal.SIGUSR1, lambda *_: print('late'))";
    let by_import = python_order("late");
    let by_script = script_order(
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(4, b'R'); signal.sigwait({signal.SIGUSR1}); os.write(1, b'late'); take(); go()",
    );
    for order in [by_import, by_script] {
        let guest = guest!(with_hook(&[("late", late)]));
        warm_up(&guest, &order).unwrap();
        signal_the_one_that_waits(&guest, "-USR1");
        let main: &[u8] = b"print('cold')";
        let mut job = job_for(&order);
        job.files = 1;
        assert_cold(&guest.run(job, &[("main.py", 0o644, main)]), WarmUse::Wrote);
    }
}

#[test]
fn a_module_of_the_jobs_own_is_not_shadowed_by_one_that_was_imported() {
    for (path, asked) in [
        ("json.py", "json"),
        ("json/__init__.py", "json"),
        ("heavy.py", "heavy"),
    ] {
        let guest = guest!(with_hook(&[("heavy", "import json")]));
        warm_up(&guest, &python_order("heavy")).unwrap();
        let mut job = python_job(&[]);
        job.files = 2;
        let main = format!("import {asked}; print({asked}.mine)");
        let files: [(&str, u32, &[u8]); 2] = [
            ("main.py", 0o644, main.as_bytes()),
            (path, 0o644, b"mine = 'yes'"),
        ];
        let told = guest.run(job, &files);
        assert_eq!(
            (told.warm, told.out().as_str()),
            (Some(WarmUse::Declined), "yes\n"),
            "{path}: {}",
            told.err()
        );
    }
}
