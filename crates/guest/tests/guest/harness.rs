//! A guest in namespaces of its own, and the executor's end of its conversation.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_protocol::{
    Decoder, Exit, FileHeader, FromGuest, GuestSession, Job, ProtocolError, ReadyReport, Refused, Started,
    StreamId, ToGuest, VERSION, WarmUse,
};

/// Longest that any one thing in these tests may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a guest says when a job was started for which no process waited.
pub(crate) const STARTED: FromGuest = FromGuest::Started(Started {
    warm: WarmUse::NotAsked,
});

/// Where the work directory is mounted, in the guest's mount namespace alone.
pub(crate) const WORK: &str = "/mnt";

/// What a test decides about its sandbox.
pub(crate) struct Options {
    /// Put in front of the guest, in a shell, after the mounts.
    pub(crate) prelude: String,
    pub(crate) alive_limit_ms: u64,
    pub(crate) send_alive: bool,
    pub(crate) work_options: &'static str,
}

impl Options {
    pub(crate) fn plain() -> Self {
        Self {
            prelude: String::new(),
            alive_limit_ms: 10_000,
            send_alive: true,
            work_options: "size=8m,nr_inodes=64",
        }
    }
}

/// Starts a plain guest, or says why that can't be done here and ends the test.
#[macro_export]
macro_rules! guest {
    () => {
        $crate::guest!($crate::harness::Options::plain())
    };
    ($options:expr) => {
        match $crate::harness::Guest::start(&$options) {
            Ok(guest) => guest,
            Err(reason) => {
                eprintln!("SKIPPED, nothing shown: {reason}");
                return;
            }
        }
    };
}

/// A guest and the executor's end of its conversation.
pub(crate) struct Guest {
    pub(crate) report: ReadyReport,
    pub(crate) guest_id: u32,
    pub(crate) job_id: u32,
    link: Arc<Link>,
    frames: Receiver<Result<FromGuest, ProtocolError>>,
    exit_code: Receiver<Option<i32>>,
    /// Dropped at the end, which ends the thread that says "alive".
    _alive: mpsc::Sender<()>,
}

/// What the threads of one conversation share.
struct Link {
    stdin: Mutex<Option<ChildStdin>>,
    session: Mutex<GuestSession>,
}

/// Everything that a job came to.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// What became of the process that waited, where the job was started.
    pub(crate) warm: Option<WarmUse>,
    pub(crate) end: Result<Exit, Refused>,
}

impl Told {
    pub(crate) fn exit(&self) -> &Exit {
        self.end.as_ref().unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    pub(crate) fn refused(&self) -> &Refused {
        self.end.as_ref().expect_err("the job should have been refused")
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// Why no guest can be had on this machine.
pub(crate) fn obstacle() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t0\t")) {
        return Some("these tests need root".to_owned());
    }
    for (tool, args) in [
        (
            "unshare",
            ["--fork", "--pid", "--mount", "--net", "true"].as_slice(),
        ),
        ("setpriv", &["--no-new-privs", "true"]),
        ("/usr/bin/python3", &["-c", "pass"]),
    ] {
        match Command::new(tool).args(args).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                return Some(format!("{tool} doesn't work here: {why}"));
            }
            Err(error) => return Some(format!("{tool} can't be run: {error}")),
        }
    }
    None
}

/// The command that starts a guest with the capabilities that a sandbox gives it.
fn command(options: &Options, guest_id: u32, job_id: u32) -> Command {
    let script = format!(
        "set -e; mount -t tmpfs -o mode=0700,uid={job_id},gid={job_id},nosuid,nodev,{work} work {WORK}
         {prelude}
         exec setpriv --bounding-set -all,+setuid,+setgid,+kill,+setpcap \
             --inh-caps -all --ambient-caps -all --no-new-privs \
             {guest} --guest-uid {guest_id} --job-uid {job_id} --work {WORK} --alive-limit-ms {alive}",
        work = options.work_options,
        prelude = options.prelude,
        guest = env!("CARGO_BIN_EXE_mayfly-guest"),
        alive = options.alive_limit_ms,
    );
    let mut command = Command::new("unshare");
    command.args([
        "--fork",
        "--kill-child",
        "--pid",
        "--mount",
        "--mount-proc",
        "--net",
    ]);
    command.args(["--ipc", "--uts", "--", "/bin/sh", "-c", &script]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

impl Guest {
    /// Starts a guest and waits until it is ready.
    pub(crate) fn start(options: &Options) -> Result<Self, String> {
        if let Some(obstacle) = obstacle() {
            return Err(obstacle);
        }
        // Unique on the machine while this test lives, as an executor has to choose them.
        let guest_id = 100_000 + 2 * std::process::id();
        let job_id = guest_id + 1;
        let mut child = command(options, guest_id, job_id)
            .spawn()
            .expect("unshare was there before");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let link = Arc::new(Link {
            stdin: Mutex::new(Some(stdin)),
            session: Mutex::new(GuestSession::new()),
        });
        let (alive, silence) = mpsc::channel();
        if options.send_alive {
            say_alive(Arc::clone(&link), silence);
        }
        let frames = read_frames(Arc::clone(&link), stdout);
        let exit_code = await_exit(child);
        let ready = frames.recv_timeout(PATIENCE).expect("a guest becomes ready");
        let Ok(FromGuest::Ready(report)) = ready else {
            panic!("not ready: {ready:?}")
        };
        Ok(Self {
            report: *report,
            guest_id,
            job_id,
            link,
            frames,
            exit_code,
            _alive: alive,
        })
    }

    /// Sends a frame, and minds the order.
    pub(crate) fn send(&self, frame: &ToGuest) {
        self.link.send(frame);
    }

    /// Sends bytes that need not be frames.
    pub(crate) fn send_raw(&self, bytes: &[u8]) {
        self.link.write(bytes);
    }

    /// Goes away, as an executor does that dies.
    pub(crate) fn hang_up(&self) {
        self.link.stdin.lock().unwrap().take();
    }

    pub(crate) fn stdin_credit(&self) -> usize {
        self.link
            .session
            .lock()
            .unwrap()
            .stdin_credit()
            .try_into()
            .unwrap()
    }

    pub(crate) fn grant(&self, stream: StreamId, bytes: u32) {
        self.send(&ToGuest::Credit { stream, bytes });
    }

    /// The next frame, which has passed the order check.
    pub(crate) fn next(&self) -> FromGuest {
        let next = self
            .frames
            .recv_timeout(PATIENCE)
            .expect("another frame within the bound");
        next.expect("a frame in order")
    }

    /// Whether no frame comes within a short while.
    pub(crate) fn is_silent(&self) -> bool {
        let next = self.frames.recv_timeout(Duration::from_millis(300));
        matches!(next, Err(RecvTimeoutError::Timeout))
    }

    /// Sends a job with its files up to `Start`.
    pub(crate) fn submit(&self, job: Job, files: &[(&str, u32, &[u8])]) {
        self.send(&ToGuest::Job(job));
        for (path, mode, content) in files {
            let (path, size) = ((*path).to_owned(), content.len() as u64);
            self.send(&ToGuest::File(FileHeader {
                path,
                mode: *mode,
                size,
            }));
            for chunk in content.chunks(60_000) {
                self.send(&ToGuest::FileData(chunk.to_vec()));
            }
            self.send(&ToGuest::FileEnd);
        }
        self.send(&ToGuest::Start);
    }

    /// Runs a job to its end with all the credit that it needs.
    pub(crate) fn run(&self, job: Job, files: &[(&str, u32, &[u8])]) -> Told {
        self.submit(job, files);
        self.collect()
    }

    /// Takes all frames up to the last one, with all the credit that they need.
    pub(crate) fn collect(&self) -> Told {
        for stream in [StreamId::STDOUT, StreamId::STDERR] {
            self.grant(stream, 256 * 1024);
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut warm = None;
        loop {
            match self.next() {
                FromGuest::Stdout(data) => {
                    self.grant(StreamId::STDOUT, data.len().try_into().unwrap());
                    stdout.extend(data);
                }
                FromGuest::Stderr(data) => {
                    self.grant(StreamId::STDERR, data.len().try_into().unwrap());
                    stderr.extend(data);
                }
                FromGuest::Exit(exit) => {
                    return Told {
                        stdout,
                        stderr,
                        warm,
                        end: Ok(exit),
                    };
                }
                FromGuest::Refused(refused) => {
                    return Told {
                        stdout,
                        stderr,
                        warm,
                        end: Err(refused),
                    };
                }
                FromGuest::Started(started) => warm = Some(started.warm),
                FromGuest::Ready(_)
                | FromGuest::Credit { .. }
                | FromGuest::Warmed(_)
                | FromGuest::WarmFailed(_)
                | FromGuest::Artifact(_)
                | FromGuest::ArtifactData(_)
                | FromGuest::ArtifactEnd(_)
                | FromGuest::LeftOut(_)
                | FromGuest::TunnelOpen { .. }
                | FromGuest::Tunnel { .. }
                | FromGuest::Collected(_) => {}
            }
        }
    }

    /// Gives all the credit that there is use for, until the guest ends.
    pub(crate) fn feed_until_gone(&self) {
        self.grant(StreamId::STDOUT, 64 * 1024);
        let begun = Instant::now();
        loop {
            match self.frames.recv_timeout(PATIENCE) {
                Ok(Ok(FromGuest::Stdout(data))) => {
                    self.grant(StreamId::STDOUT, data.len().try_into().unwrap());
                }
                Ok(frame) => drop(frame),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the guest does nothing"),
            }
            assert!(begun.elapsed() < PATIENCE, "the guest lives on");
        }
    }

    /// Waits for the guest's own end and checks that nothing of it is left.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let code = self
            .exit_code
            .recv_timeout(PATIENCE)
            .expect("the guest ends within the bound");
        assert_eq!(
            self.processes_of(self.job_id),
            [0; 0],
            "a process of the job outlived pid 1"
        );
        assert_eq!(self.processes_of(self.guest_id), [0; 0]);
        code
    }

    /// Pids, as the host sees them, of a user's processes.
    pub(crate) fn processes_of(&self, id: u32) -> Vec<u32> {
        let of_user = format!("\nUid:\t{id}\t");
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.contains(&of_user).then_some(pid)
        });
        pids.collect()
    }

    /// Waits until the job has no process, or has one.
    pub(crate) fn wait_for_processes(&self, some: bool) {
        let begun = Instant::now();
        while self.processes_of(self.job_id).is_empty() == some {
            assert!(begun.elapsed() < PATIENCE, "processes of the job: {}", !some);
            thread::yield_now();
        }
    }
}

impl Guest {
    /// Waits until the job's one process sleeps, which a program that only writes does when its
    /// pipe is full.
    pub(crate) fn wait_until_blocked(&self) {
        let begun = Instant::now();
        loop {
            if let [pid] = self.processes_of(self.job_id)[..] {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                if stat.contains(") S ") {
                    return;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "the job is never blocked");
            thread::yield_now();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.hang_up();
        // Its cgroup can be removed only after it. An error means that its end was seen before.
        let _ = self.exit_code.recv_timeout(PATIENCE);
    }
}

impl Link {
    fn send(&self, frame: &ToGuest) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes).unwrap();
        // Held over the write, so that frames go out in the order in which they were checked.
        let mut session = self.session.lock().unwrap();
        session.send(frame).unwrap();
        self.write(&bytes);
    }

    /// A guest that is gone shows in what it sent, and not here.
    fn write(&self, bytes: &[u8]) {
        if let Some(stdin) = self.stdin.lock().unwrap().as_mut() {
            let _ = stdin.write_all(bytes);
        }
    }
}

fn say_alive(link: Arc<Link>, silence: Receiver<()>) {
    thread::spawn(move || {
        link.send(&ToGuest::Alive);
        while silence.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            link.send(&ToGuest::Alive);
        }
    });
}

fn read_frames(link: Arc<Link>, mut stdout: ChildStdout) -> Receiver<Result<FromGuest, ProtocolError>> {
    // Of no size, so that a test that takes no frame takes no bytes either.
    let (sender, frames) = mpsc::sync_channel(0);
    thread::spawn(move || {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(got @ 1..) = stdout.read(&mut buffer) {
            let mut bytes = &buffer[..got];
            loop {
                let decoded = decoder.decode(&mut bytes);
                let checked = match decoded {
                    Ok(None) => break,
                    Ok(Some(frame)) => link.session.lock().unwrap().receive(&frame).map(|()| frame),
                    Err(error) => Err(error),
                };
                let failed = checked.is_err();
                if sender.send(checked).is_err() || failed {
                    return;
                }
            }
        }
    });
    frames
}

fn await_exit(mut child: Child) -> Receiver<Option<i32>> {
    let (sender, exit_code) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait().unwrap().code()));
    exit_code
}

/// A job that runs `argv`.
pub(crate) fn job(argv: &[&str], files: u32) -> Job {
    Job {
        version: VERSION,
        argv: argv.iter().map(|part| (*part).to_owned()).collect(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: WORK.to_owned(),
        deadline_ms: 60_000,
        rlimits: vec![],
        files,
        stdin: false,
        warm: false,
        collects: false,
        egress: false,
    }
}

pub(crate) fn shell(script: &str) -> Job {
    job(&["sh", "-c", script], 0)
}

pub(crate) fn python(script: &str) -> Job {
    job(&["/usr/bin/python3", "-c", script], 0)
}

/// A cgroup of the machine's, removed again; `None` where this test may not make one.
pub(crate) struct TestCgroup {
    folder: PathBuf,
}

impl TestCgroup {
    /// A cgroup for `controller` with these files set.
    pub(crate) fn make(controller: &str, v1: &[(&str, &str)], v2: &[(&str, &str)]) -> Option<Self> {
        let name = format!("mayfly-guest-test-{}", std::process::id());
        let v1_root = PathBuf::from("/sys/fs/cgroup").join(controller);
        let (root, settings) = if v1_root.join("cgroup.procs").exists() {
            (v1_root, v1)
        } else {
            (PathBuf::from("/sys/fs/cgroup"), v2)
        };
        let cgroup = Self {
            folder: root.join(name),
        };
        fs::create_dir(&cgroup.folder).ok()?;
        for (file, value) in settings {
            fs::write(cgroup.folder.join(file), value).ok()?;
        }
        Some(cgroup)
    }

    /// What puts a guest into it before it starts.
    pub(crate) fn prelude(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.folder.display())
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // Refused while a process is in it, which the test has then already complained of.
        let _ = fs::remove_dir(&self.folder);
    }
}
