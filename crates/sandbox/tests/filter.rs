//! The syscall filter by its behaviour, on a real engine: each refusal answers exactly what is written, whatever bits
//! are set above those that the kernel looks at, and the same call without the filter answers otherwise.
//!
//! The calls are listed in `filter/*.txt`; `filter/probe.c` makes them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that can't go on fails, and says what it could not show"
)]

#[path = "filter/bench.rs"]
mod bench;
#[path = "filter/model.rs"]
mod model;

use std::collections::BTreeSet;

use bench::{Bench, Call, Caps, NEWER, Outcome, Ran, arch, container, skip};
use mayfly_sandbox::filter::{Arch, FilterOptions, Profile, SocketBuffers, Sockets, profile};
use model::{Decision, Model};

const REFUSED: &str = include_str!("filter/refused.txt");
const ALLOWED: &str = include_str!("filter/allowed.txt");
const LOOPBACK_REFUSED: &str = include_str!("filter/loopback.txt");
const LOOPBACK_ALLOWED: &str = include_str!("filter/loopback-allowed.txt");
const HONEST: &str = include_str!("filter/honest.py");

/// Programs of the machine and a script that uses each.
const PROGRAMS: &[(&str, &str)] = &[
    ("cp", include_str!("filter/programs/coreutils.sh")),
    ("gcc", include_str!("filter/programs/gcc.sh")),
    ("git", include_str!("filter/programs/git.sh")),
    ("java", include_str!("filter/programs/java.sh")),
    ("make", include_str!("filter/programs/make.sh")),
    ("node", include_str!("filter/programs/node.sh")),
    ("perl", include_str!("filter/programs/perl.sh")),
    ("rustc", include_str!("filter/programs/rustc.sh")),
    ("sqlite3", include_str!("filter/programs/sqlite3.sh")),
];

/// `linux/socket.h` ends at `AF_MCTP`, 45; one more is a family that doesn't exist.
const FAMILIES: std::ops::RangeInclusive<u64> = 0..=46;
const SOCKET_TYPES: [u64; 4] = [1, 2, 3, 5];

const EPERM: Outcome = Outcome::Errno(1);
const ENOSYS: Outcome = Outcome::Errno(38);

const LOOPBACK: Sockets = Sockets::LoopbackToo(SocketBuffers::Fixed);

/// A call and what the filter must answer.
type Case = (Call, Outcome);

fn filter(sockets: Sockets) -> Profile {
    profile(FilterOptions {
        arch: arch(),
        sockets,
    })
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn cases(text: &str) -> Vec<Case> {
    lines(text)
        .map(|line| {
            let (call, answer) = line.split_once(" = ").unwrap();
            let answer = match answer {
                "0" => Outcome::Returned(0),
                "EPERM" => EPERM,
                "EINVAL" => Outcome::Errno(22),
                "ENOSYS" => ENOSYS,
                "EL2HLT" => Outcome::Errno(51),
                "SIGSYS" => Outcome::Signal(31),
                _ => panic!("{line}"),
            };
            (Call(call.to_owned()), answer)
        })
        .collect()
}

/// Every family with every usual type, but for those allowed; and all of them with a bit set that the kernel drops.
fn families(allowed: &[u64]) -> Vec<Case> {
    let bits = [0, 1 << 32, 1 << 63];
    FAMILIES
        .flat_map(|family| SOCKET_TYPES.map(|kind| (family, kind)))
        .flat_map(|(family, kind)| bits.map(|bit| (family | bit, kind)))
        .filter(|(family, _)| !allowed.contains(family))
        .map(|(family, kind)| (Call(format!("socket {family:#x} {kind} 0")), EPERM))
        .collect()
}

/// Those that are calls on this architecture. On x86-64, which the lists are written for, that is all of them.
fn on_this_machine(bench: &Bench, cases: Vec<Case>) -> Vec<Case> {
    match arch() {
        Arch::X86_64 => cases,
        Arch::Aarch64 => cases
            .into_iter()
            .filter(|(call, answer)| bench.has(call) && *answer != Outcome::Signal(31))
            .collect(),
    }
}

/// Checks each answer with no capability and with all, and that the kernel alone answers otherwise in one of the two.
/// The calls of which it doesn't are listed: here the filter makes no difference, so nothing is shown of it.
fn refuses(test: &str, sockets: Sockets, cases: Vec<Case>) {
    let Some(bench) = Bench::new(test) else { return };
    let cases = on_this_machine(&bench, cases);
    let calls: Vec<_> = cases.iter().map(|(call, _)| call.clone()).collect();
    let mut differs = vec![false; cases.len()];
    let mut wrong = Vec::new();
    for caps in [Caps::None, Caps::All] {
        let filtered = bench.make(Some(&filter(sockets)), caps, &calls);
        let plain = bench.make(None, caps, &calls);
        for (index, (call, expected)) in cases.iter().enumerate() {
            if filtered[index] != *expected {
                wrong.push(format!(
                    "{}: {}, not {expected} (capabilities: {caps:?})",
                    call.0, filtered[index]
                ));
            }
            differs[index] |= plain[index] != *expected
                && !matches!(plain[index], Outcome::Unprepared(_) | Outcome::Exited(_));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} answers are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    let unproven: Vec<_> = calls
        .iter()
        .zip(&differs)
        .filter(|(_, differs)| !**differs)
        .map(|(call, _)| call.0.as_str())
        .collect();
    eprintln!(
        "{test}: {} answers, {} shown to be the filter's",
        cases.len(),
        cases.len() - unproven.len()
    );
    assert!(
        unproven.len() * 20 <= cases.len(),
        "the kernel alone answers the same too often: {}",
        unproven.join(", ")
    );
    if !unproven.is_empty() {
        let list = format!(
            "{} not provable on this kernel: {}",
            unproven.len(),
            unproven.join(", ")
        );
        let _: Option<()> = skip(test, &list);
    }
}

/// Checks that each call answers with the filter what it answers without.
fn allows(test: &str, sockets: Sockets, calls: &[Call]) {
    let Some(bench) = Bench::new(test) else { return };
    let calls: Vec<_> = calls.iter().filter(|call| bench.has(call)).cloned().collect();
    let filtered = bench.make(Some(&filter(sockets)), Caps::None, &calls);
    let plain = bench.make(None, Caps::None, &calls);
    let wrong: Vec<_> = calls
        .iter()
        .zip(filtered.iter().zip(&plain))
        .filter(|(call, (filtered, plain))| {
            // A runtime skips the names that it is too old for, and the call is then answered as absent.
            let unknown = NEWER.iter().any(|(name, _)| *name == call.name()) && **filtered == ENOSYS;
            let made = !matches!(filtered, Outcome::Unprepared(_) | Outcome::Exited(_));
            !made || (filtered.class() != plain.class() && !unknown)
        })
        .map(|(call, (filtered, plain))| format!("{}: {filtered}, without the filter {plain}", call.0))
        .collect();
    assert!(wrong.is_empty(), "the filter changes:\n{}", wrong.join("\n"));
}

fn allowed(text: &str) -> Vec<Call> {
    lines(text).map(|line| Call(line.to_owned())).collect()
}

/// The names in the profile's rules, those with conditions apart.
fn names(profile: &Profile, conditional: bool) -> BTreeSet<String> {
    let json = profile.to_json();
    let rules = json["syscalls"].as_array().unwrap().clone();
    rules
        .iter()
        .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW" && rule.get("args").is_some() == conditional)
        .flat_map(|rule| rule["names"].as_array().unwrap().clone())
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn each_refused_call_has_its_answer_and_only_by_the_filter() {
    refuses("refused calls", Sockets::UnixOnly, cases(REFUSED));
}

#[test]
fn no_socket_family_but_unix_can_be_had_by_any_number_that_the_kernel_takes_for_one() {
    refuses("families", Sockets::UnixOnly, families(&[1]));
}

#[test]
fn the_marker_tells_this_profile_from_the_engines_own_and_from_none() {
    let test = "marker";
    let Some(bench) = Bench::new(test) else { return };
    let marker = [Call("personality 0x6d617966".to_owned())];
    for sockets in [
        Sockets::UnixOnly,
        LOOPBACK,
        Sockets::LoopbackToo(SocketBuffers::Settable),
    ] {
        assert_eq!(
            bench.make(Some(&filter(sockets)), Caps::None, &marker),
            [Outcome::Errno(51)]
        );
    }
    assert_ne!(bench.make(None, Caps::None, &marker), [Outcome::Errno(51)]);
}

#[test]
fn with_loopback_the_rest_stays_refused_and_buffers_stay_as_they_are() {
    let mut all = cases(LOOPBACK_REFUSED);
    all.extend(families(&[1, 2, 10, 16]));
    refuses("loopback", LOOPBACK, all);
}

#[test]
fn calls_that_are_allowed_for_some_arguments_work_with_them() {
    allows("allowed arguments", Sockets::UnixOnly, &allowed(ALLOWED));
}

#[test]
fn with_loopback_tcp_and_udp_work() {
    allows("loopback", LOOPBACK, &allowed(LOOPBACK_ALLOWED));
}

#[test]
fn buffers_can_be_set_where_a_limit_counts_them() {
    let calls = ["buffer tcp 7", "buffer tcp 8", "buffer udp 7"].map(|call| Call(call.to_owned()));
    let Some(bench) = Bench::new("settable buffers") else {
        return;
    };
    let settable = filter(Sockets::LoopbackToo(SocketBuffers::Settable));
    assert_eq!(
        bench.make(Some(&settable), Caps::None, &calls),
        [Outcome::Returned(1); 3]
    );
}

#[test]
fn a_call_that_is_allowed_outright_answers_as_without_the_filter() {
    // With these arguments they end, fork or wait.
    let not_comparable = [
        "exit",
        "exit_group",
        "pause",
        "rt_sigreturn",
        "vfork",
        "uprobe",
        "uretprobe",
    ];
    let calls: Vec<_> = names(&filter(Sockets::UnixOnly), false)
        .into_iter()
        .filter(|name| !not_comparable.contains(&name.as_str()))
        .map(|name| Call(format!("{name} -1 -1 -1 -1 -1 -1")))
        .collect();
    allows("allowed calls", Sockets::UnixOnly, &calls);
}

/// The runtime compiles the rules into a program; this compares the program's decisions with the document's.
#[test]
fn around_every_rule_the_runtime_decides_as_the_profile_says() {
    let Some(bench) = Bench::new("decisions") else {
        return;
    };
    for sockets in [Sockets::UnixOnly, LOOPBACK] {
        let profile = filter(sockets);
        let calls: Vec<_> = Model::of(&profile)
            .neighbourhood()
            .into_iter()
            .filter(|(call, _)| bench.has(call))
            .collect();
        let made: Vec<_> = calls.iter().map(|(call, _)| call.clone()).collect();
        let filtered = bench.make(Some(&profile), Caps::None, &made);
        let through: Vec<_> = calls
            .iter()
            .zip(&filtered)
            .filter(|((_, decision), _)| *decision == Decision::Allowed)
            .map(|((call, _), outcome)| (call.clone(), *outcome))
            .collect();
        let allowed: Vec<_> = through.iter().map(|(call, _)| call.clone()).collect();
        let plain = bench.make(None, Caps::None, &allowed);
        let mut wrong: Vec<_> = through
            .iter()
            .zip(&plain)
            .filter(|((_, filtered), plain)| filtered.class() != plain.class())
            .map(|((call, filtered), plain)| format!("{}: {filtered}, without the filter {plain}", call.0))
            .collect();
        wrong.extend(
            calls
                .iter()
                .zip(&filtered)
                .filter_map(|((call, decision), outcome)| match decision {
                    Decision::Answered(answer) if answer != outcome => {
                        Some(format!("{}: {outcome}, not {answer}", call.0))
                    }
                    Decision::Answered(_) | Decision::Allowed => None,
                }),
        );
        eprintln!(
            "{sockets:?}: {} calls, {} of them allowed",
            calls.len(),
            allowed.len()
        );
        assert!(
            wrong.is_empty(),
            "{sockets:?}: {} of {}:\n{}",
            wrong.len(),
            calls.len(),
            wrong.join("\n")
        );
        assert!(
            allowed.len() > 100 && calls.len() > 10 * allowed.len() / 9,
            "both sides must be tried"
        );
    }
}

#[test]
fn every_call_of_the_kernel_is_allowed_outright_or_tested() {
    let Some(bench) = Bench::new("completeness") else {
        return;
    };
    let profile = filter(Sockets::UnixOnly);
    let (outright, with_conditions) = (names(&profile, false), names(&profile, true));
    for name in outright.iter().chain(&with_conditions) {
        assert!(
            bench.numbers().contains_key(name),
            "{name} is no call of this architecture: a misspelling?"
        );
    }
    let refused: BTreeSet<_> = cases(REFUSED)
        .iter()
        .map(|(call, _)| call.name().to_owned())
        .collect();
    let untested: Vec<_> = bench
        .numbers()
        .keys()
        .filter(|name| !outright.contains(*name) && !refused.contains(*name))
        .collect();
    assert!(
        untested.is_empty(),
        "neither allowed nor in refused.txt: {untested:?}"
    );
    let used: BTreeSet<_> = allowed(ALLOWED)
        .iter()
        .map(|call| call.name().to_owned())
        .collect();
    let unused: Vec<_> = with_conditions.difference(&used).collect();
    assert!(
        unused.is_empty(),
        "allowed under conditions and not in allowed.txt: {unused:?}"
    );
}

/// The numbers of 64-bit ARM are the generic ones, whose header every Linux machine with a compiler has.
#[test]
fn every_name_in_the_profile_for_arm_is_a_call_there() {
    let Some(known) = bench::generic_calls("names for ARM") else {
        return;
    };
    let profile = profile(FilterOptions {
        arch: Arch::Aarch64,
        sockets: LOOPBACK,
    });
    let unknown: Vec<_> = names(&profile, false)
        .into_iter()
        .chain(names(&profile, true))
        // The one conditional rule that names a call of x86 beside its general form.
        .filter(|name| name != "mknod" && !known.contains(name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn an_honest_python_program_notices_nothing() {
    let test = "honest programs";
    let Some(bench) = Bench::new(test) else { return };
    let Some(image) = bench.python() else {
        let _: Option<()> = skip(test, "no image mayfly/python; 'make image' builds it");
        return;
    };
    let bootstrap = "import os, sys; open('/tmp/honest.py', 'w').write(sys.stdin.read()); \
                     os.execv(sys.executable, [sys.executable, '/tmp/honest.py'] + sys.argv[1:])";
    for (sockets, class) in [(Sockets::UnixOnly, "unix"), (LOOPBACK, "loopback")] {
        let output = container(
            bench.folder(),
            Some(&filter(sockets)),
            &[
                "--cap-drop",
                "ALL",
                "--user",
                "23456:23456",
                "--env",
                "TMPDIR=/tmp",
                "--workdir",
                "/tmp",
            ],
            &image,
            &["python3", "-c", bootstrap, class],
            HONEST,
        );
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success() && out.ends_with("all done\n"),
            "{class}: {out}{err}"
        );
    }
}

#[test]
fn the_machines_own_programs_notice_nothing() {
    let test = "honest programs";
    let Some(bench) = Bench::new(test) else { return };
    let mut failed = Vec::new();
    for (program, script) in PROGRAMS {
        let classes: &[_] = if script.contains("CLASS") {
            &[(Sockets::UnixOnly, "unix"), (LOOPBACK, "loopback")]
        } else {
            &[(Sockets::UnixOnly, "unix")]
        };
        for (sockets, class) in classes {
            match bench.use_program(program, script, &filter(*sockets), class) {
                Ran::Well => {}
                Ran::Absent => drop(skip::<()>(test, &format!("{program} is not on this machine"))),
                Ran::Badly(said) => failed.push(format!("{program}, {class}: {said}")),
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
