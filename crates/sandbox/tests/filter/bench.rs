//! Runs lists of system calls in containers of a real engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use mayfly_sandbox::filter::{Arch, Profile};
use tempfile::TempDir;

/// Numbers of calls that the C library's headers may be too old to name. The same on every architecture, but for the
/// last two, which are of x86-64 alone.
pub(super) const NEWER: &[(&str, u64)] = &[
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
    ("listns", 470),
    ("uretprobe", 335),
    ("uprobe", 336),
];

/// A call with its arguments, as the probe reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call(pub(super) String);

impl Call {
    /// Its name, or what stands in its place.
    pub(super) fn name(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Returned(i64),
    Errno(i32),
    Signal(i32),
    /// What the call needs could not be made, with this `errno`.
    Unprepared(i32),
    /// The caller ended without a word.
    Exited(i32),
}

impl Outcome {
    /// Success, or the very failure: what can be compared between two processes.
    pub(super) const fn class(self) -> Self {
        match self {
            Self::Returned(_) => Self::Returned(0),
            other => other,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned(value) => write!(f, "returned {value}"),
            Self::Errno(errno) => write!(f, "errno {errno}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unprepared(errno) => write!(f, "unprepared {errno}"),
            Self::Exited(code) => write!(f, "exit {code}"),
        }
    }
}

/// Capabilities of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caps {
    None,
    /// Every one that a test machine is sure to have: what is refused then is refused by the filter alone.
    All,
}

/// How a script about a program of the machine ended.
pub(super) enum Ran {
    Well,
    /// There is no such program.
    Absent,
    /// With what it said.
    Badly(String),
}

/// A probe, the image that holds it, and the numbers of the calls.
pub(super) struct Bench {
    folder: TempDir,
    image: String,
    numbers: BTreeMap<String, u64>,
}

impl Bench {
    /// Compiles the probe and gives it to the engine; `None`, with the reason said, where that can't be done.
    pub(super) fn new(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let probe = folder.path().join("probe");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filter/probe.c");
        let numbers = call_numbers(test)?;
        let compiled = run(Command::new("cc")
            .args(["-static", "-O1", "-o"])
            .arg(&probe)
            .arg(source));
        if !compiled.is_some_and(|output| output.status.success()) {
            return skip(test, "no C compiler with a static C library");
        }
        if !engine_is_native() {
            assert!(
                std::env::var_os("MAYFLY_TEST_ENGINE").is_none(),
                "the engine answered when the tests began, and does no more"
            );
            return skip(test, "no container engine of this machine's architecture answers");
        }
        let layer = folder.path().join("layer.tar");
        let mut tar = tar::Builder::new(std::fs::File::create(&layer).unwrap());
        tar.append_path_with_name(&probe, "probe").unwrap();
        // The engine gives a tmpfs the mode of the image's folder, whatever mode it is asked for.
        let mut folder_for_all = tar::Header::new_ustar();
        folder_for_all.set_entry_type(tar::EntryType::Directory);
        folder_for_all.set_mode(0o1777);
        folder_for_all.set_size(0);
        tar.append_data(&mut folder_for_all, "tmp", std::io::empty())
            .unwrap();
        tar.finish().unwrap();
        let image = format!("mayfly-filter-test:{}", std::process::id());
        let imported = run(Command::new("docker").arg("import").arg(&layer).arg(&image)).unwrap();
        assert!(
            imported.status.success(),
            "{}",
            String::from_utf8_lossy(&imported.stderr)
        );
        Some(Self {
            folder,
            image,
            numbers,
        })
    }

    /// Makes the calls under this filter, or under none, and gives their outcomes in the same order.
    pub(super) fn make(&self, filter: Option<&Profile>, caps: Caps, calls: &[Call]) -> Vec<Outcome> {
        let lines: String = calls
            .iter()
            .enumerate()
            .map(|(id, call)| format!("{id} {}\n", self.line(call)))
            .collect();
        let caps = match caps {
            Caps::None => &["--cap-drop", "ALL"][..],
            Caps::All => &["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"],
        };
        let output = container(self.folder.path(), filter, caps, &self.image, &["/probe"], &lines);
        let text = String::from_utf8(output.stdout).unwrap();
        let outcomes: Vec<_> = text
            .lines()
            .enumerate()
            .map(|(id, line)| outcome(id, line))
            .collect();
        assert_eq!(
            outcomes.len(),
            calls.len(),
            "the probe ended early: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        outcomes
    }

    /// Whether this machine's kernel knows a call of this name at all.
    pub(super) fn has(&self, call: &Call) -> bool {
        special(call.name()) || self.numbers.contains_key(call.name())
    }

    /// The names that the headers know.
    pub(super) const fn numbers(&self) -> &BTreeMap<String, u64> {
        &self.numbers
    }

    /// Where files of this bench may lie.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Our Python image, where the engine has one.
    pub(super) fn python(&self) -> Option<String> {
        let listed = run(Command::new("docker").args(["images", "--quiet", "mayfly/python"]))?;
        let text = String::from_utf8(listed.stdout).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// Runs a script that uses a program of the machine, whose `/usr` and `/etc` are mounted for it.
    pub(super) fn use_program(&self, program: &str, script: &str, filter: &Profile, class: &str) -> Ran {
        let rust = rust_folder();
        let mounts = [
            "/usr:/usr:ro",
            "/etc:/etc:ro",
            "/usr/bin:/bin:ro",
            "/usr/lib:/lib:ro",
            "/usr/lib64:/lib64:ro",
        ];
        let rust_mount = format!("{rust}:{rust}:ro");
        let path = format!("PATH=/usr/local/bin:/usr/bin:/bin:{rust}/bin");
        let class = format!("CLASS={class}");
        let mut flags = vec!["--cap-drop", "ALL", "--user", "23456:23456", "--shm-size", "16m"];
        flags.extend([
            "--env",
            "HOME=/tmp",
            "--env",
            "TMPDIR=/tmp",
            "--env",
            &path,
            "--env",
            &class,
        ]);
        flags.extend(
            mounts
                .iter()
                .chain([&rust_mount.as_str()])
                .flat_map(|mount| ["--volume", mount]),
        );
        let script = format!("command -v {program} > /dev/null || exit 77\nset -e\ncd /tmp\n{script}");
        let output = container(
            self.folder.path(),
            Some(filter),
            &flags,
            &self.image,
            &["/bin/sh"],
            &script,
        );
        match output.status.code() {
            Some(0) => Ran::Well,
            Some(77) => Ran::Absent,
            _ => Ran::Badly(format!(
                "{}: {}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    fn line(&self, call: &Call) -> String {
        if special(call.name()) {
            return call.0.clone();
        }
        let number = self
            .numbers
            .get(call.name())
            .unwrap_or_else(|| panic!("no such call: {}", call.0));
        call.0.replacen(call.name(), &number.to_string(), 1)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let removed = run(Command::new("docker").args(["rmi", "--force", &self.image]));
        if !removed.is_some_and(|output| output.status.success()) {
            eprintln!("the image {} could not be removed", self.image);
        }
    }
}

/// The architecture that these tests are built for.
pub(super) fn arch() -> Arch {
    Arch::of(std::env::consts::ARCH).expect("mayfly runs on this architecture")
}

/// Runs a container like a sandbox but for what is asked, feeds it, and waits for its end.
pub(super) fn container(
    folder: &Path,
    filter: Option<&Profile>,
    flags: &[&str],
    image: &str,
    command: &[&str],
    stdin: &str,
) -> Output {
    let file = folder.join("seccomp.json");
    let seccomp = match filter {
        Some(profile) => {
            std::fs::write(&file, profile.inline()).unwrap();
            format!("seccomp={}", file.display())
        }
        None => "seccomp=unconfined".to_owned(),
    };
    let mut child = Command::new("docker")
        .args(["run", "--rm", "--interactive", "--network", "none", "--read-only"])
        .args([
            "--label",
            "mayfly-filter-test",
            "--pids-limit",
            "128",
            "--memory",
            "512m",
        ])
        .args(["--tmpfs", "/tmp:exec"])
        .args(["--security-opt", "no-new-privileges", "--security-opt", &seccomp])
        .args(flags)
        .arg(image)
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to_container = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A container that ended early says so by its output; its input is then of no use.
        scope.spawn(move || to_container.write_all(stdin.as_bytes()));
        child.wait_with_output().unwrap()
    })
}

/// Says why a test, or a part of it, was not made, and counts it where somebody counts.
pub(super) fn skip<T>(test: &str, reason: &str) -> Option<T> {
    eprintln!("skipped: {test}: {reason}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        writeln!(log, "syscall filter, {test}: {reason}").unwrap();
    }
    None
}

/// The numbers of this architecture's calls, from the C library's headers.
fn call_numbers(test: &str) -> Option<BTreeMap<String, u64>> {
    let mut numbers: BTreeMap<_, _> = header_calls(test, &["-include", "sys/syscall.h"])?
        .into_iter()
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    for (name, number) in newer(arch()) {
        numbers.entry(name.to_owned()).or_insert(number);
    }
    Some(numbers)
}

/// The names of the calls that architectures without a history have, 64-bit ARM among them.
pub(super) fn generic_calls(test: &str) -> Option<BTreeSet<String>> {
    // What ARM's own header (`asm/unistd.h`) asks of the generic one.
    let wanted = [
        "-D__ARCH_WANT_RENAMEAT",
        "-D__ARCH_WANT_NEW_STAT",
        "-D__ARCH_WANT_SET_GET_RLIMIT",
        "-D__ARCH_WANT_SYS_CLONE3",
        "-include",
        "asm-generic/unistd.h",
    ];
    let names = header_calls(test, &wanted)?.into_iter().map(|(name, _)| name);
    Some(
        names
            .chain(newer(Arch::Aarch64).map(|(name, _)| name.to_owned()))
            .collect(),
    )
}

/// Names and numbers, as written, of the calls that a header defines.
fn header_calls(test: &str, flags: &[&str]) -> Option<Vec<(String, String)>> {
    let mut preprocess = Command::new("cc");
    preprocess
        .args(["-E", "-dM"])
        .args(flags)
        .args(["-x", "c", "/dev/null"]);
    let Some(output) = run(&mut preprocess).filter(|output| output.status.success()) else {
        return skip(test, "no C compiler with the C library's headers");
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let calls = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    Some(
        calls
            .map(|(name, number)| (name.to_owned(), number.to_owned()))
            .collect(),
    )
}

/// Those of [`NEWER`] that an architecture has.
fn newer(arch: Arch) -> impl Iterator<Item = (&'static str, u64)> {
    NEWER
        .iter()
        .copied()
        .filter(move |(_, number)| *number >= 451 || arch == Arch::X86_64)
}

/// Where the Rust toolchain lies; a path that holds none where there is none.
fn rust_folder() -> String {
    run(Command::new("rustc").args(["--print", "sysroot"]))
        .filter(|output| output.status.success())
        .map_or_else(
            || "/opt/rust".to_owned(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
}

fn engine_is_native() -> bool {
    let version = run(Command::new("docker").args(["version", "--format", "{{.Server.Arch}}"]));
    version.is_some_and(|output| {
        output.status.success() && Arch::of(String::from_utf8_lossy(&output.stdout).trim()) == Some(arch())
    })
}

/// The program's output; `None` where it can't be started.
fn run(command: &mut Command) -> Option<Output> {
    command.stdin(Stdio::null()).output().ok()
}

/// Whether this stands for a number or for something of the probe's own.
fn special(name: &str) -> bool {
    name == "buffer" || name.starts_with("int80:") || name.starts_with("0x")
}

fn outcome(id: usize, line: &str) -> Outcome {
    let words: Vec<_> = line.split(' ').collect();
    let [of, kind, value] = words[..] else {
        panic!("the probe said {line:?}")
    };
    assert_eq!(of, id.to_string(), "the probe lost its place");
    let small = || value.parse().unwrap();
    match kind {
        "ret" => Outcome::Returned(value.parse().unwrap()),
        "errno" => Outcome::Errno(small()),
        "signal" => Outcome::Signal(small()),
        "unprepared" => Outcome::Unprepared(small()),
        "exit" => Outcome::Exited(small()),
        _ => panic!("the probe said {line:?}"),
    }
}
