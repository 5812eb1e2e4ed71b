//! From a job's text to a process of the job's user.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mayfly_protocol::{Job, Refused, Stage};

use crate::args::Args;
use crate::identity;
use crate::sys::{self, Errno, Forked};

/// Where a program without a slash is looked for when the job's environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What the child writes right before `execve`. An end of the pipe without it means that the child
/// died on the way; what follows it is the failure of `execve` itself.
const ABOUT_TO_EXEC: u8 = b'R';

/// A job in the form that `execve` takes.
pub(crate) struct Program {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    job: Job,
}

/// A child on its way to `execve`, and the guest's ends of its pipes.
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Ends at the `execve`; what comes before goes to [`judge_exec`].
    pub(crate) exec: OwnedFd,
}

/// A child that will wait for its job, and what the guest speaks with it over.
pub(crate) struct Waiting {
    pub(crate) spawned: Spawned,
    /// What it reads from descriptor 3.
    pub(crate) orders: OwnedFd,
    /// What it writes to descriptor 4.
    pub(crate) answers: OwnedFd,
}

impl Program {
    /// Checks a job's text.
    ///
    /// # Errors
    /// A refusal at [`Stage::Job`] that names the rule, never the text.
    pub(crate) fn new(job: Job) -> Result<Self, Refused> {
        let refuse = |rule: &str| Refused::new(Stage::Job, None, rule);
        let c_string = |text: &str, what: &str| CString::new(text).map_err(|_| refuse(what));
        let argv = job
            .argv
            .iter()
            .map(|argument| c_string(argument, "an argument has a NUL"))
            .collect::<Result<Vec<_>, _>>()?;
        let name = job.argv.first().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| refuse("there is no program"))?;
        if !job.cwd.starts_with('/') {
            return Err(refuse("the working directory is not absolute"));
        }
        let mut env = Vec::with_capacity(job.env.len());
        for (name, value) in &job.env {
            if name.is_empty() || name.contains('=') {
                return Err(refuse("a name in the environment is empty or has a '='"));
            }
            env.push(c_string(&format!("{name}={value}"), "the environment has a NUL")?);
        }
        let candidates = if name.contains('/') {
            vec![argv[0].clone()]
        } else {
            let path = job.env.iter().find(|(name, _)| name == "PATH");
            path.map_or(DEFAULT_PATH, |(_, path)| path)
                .split(':')
                // Others would depend on the working directory, which the job can write to.
                .filter(|folder| folder.starts_with('/'))
                .map(|folder| c_string(&format!("{folder}/{name}"), "PATH has a NUL"))
                .collect::<Result<Vec<_>, _>>()?
        };
        if job.cwd.contains('\0') {
            return Err(refuse("the working directory has a NUL"));
        }
        Ok(Self {
            candidates,
            argv,
            env,
            job,
        })
    }

    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_millis(self.job.deadline_ms)
    }

    pub(crate) fn takes_stdin(&self) -> bool {
        self.job.stdin
    }

    /// Whether the executor found that the job may run in a process that waits.
    pub(crate) fn asks_for_warm(&self) -> bool {
        self.job.warm
    }

    /// Whether a process that was started as `waiting` is what this one would become, but for its last arguments and
    /// its environment.
    pub(crate) fn fits(&self, waiting: &Self) -> bool {
        self.job.argv.starts_with(&waiting.job.argv)
            && self.job.cwd == waiting.job.cwd
            && self.job.rlimits == waiting.job.rlimits
            && self.candidates == waiting.candidates
    }

    /// Arguments and environment as a waiting process takes them: two counts, then all of them, each ended by a NUL.
    pub(crate) fn hand_over(&self) -> Vec<u8> {
        let counts = [self.argv.len(), self.env.len()].map(|count| count.to_string().into_bytes());
        let texts = self
            .argv
            .iter()
            .chain(&self.env)
            .map(|text| text.to_bytes().to_vec());
        let mut bytes = Vec::new();
        for field in counts.into_iter().chain(texts) {
            bytes.extend(field);
            bytes.push(0);
        }
        bytes
    }

    /// Makes the pipes and forks.
    ///
    /// # Errors
    /// A refusal at [`Stage::Resources`]; there is no child then.
    pub(crate) fn spawn(&self, args: &Args) -> Result<Spawned, Refused> {
        self.fork(args, &[])
            .map_err(|errno| Refused::new(Stage::Resources, Some(errno.0), "fork"))
    }

    /// The same for a process that will wait, with its two pipes more.
    ///
    /// # Errors
    /// What the kernel refused; there is no child then.
    pub(crate) fn spawn_waiting(&self, args: &Args) -> sys::Result<Waiting> {
        let (orders, answers) = (sys::pipe()?, sys::pipe()?);
        sys::set_nonblocking(orders.1.as_fd())?;
        sys::set_nonblocking(answers.0.as_fd())?;
        Ok(Waiting {
            spawned: self.fork(args, &[&orders.0, &answers.1])?,
            orders: orders.1,
            answers: answers.0,
        })
    }

    /// `more` are the child's descriptors from 3 up.
    fn fork(&self, args: &Args, more: &[&OwnedFd]) -> sys::Result<Spawned> {
        // A pipe belongs to who makes it: the job may open /dev/stdout, and it can't if it's ours.
        let [stdin, stdout, stderr] = identity::as_job_files(args.guest_id, args.job_id, || {
            Ok([sys::pipe()?, sys::pipe()?, sys::pipe()?])
        })?;
        let exec = sys::pipe()?;
        for ours in [&stdin.1, &stdout.0, &stderr.0, &exec.0] {
            sys::set_nonblocking(ours.as_fd())?;
        }
        match sys::fork()? {
            Forked::Child => {
                let stdio = [&stdin.0, &stdout.1, &stderr.1];
                if more.is_empty() {
                    self.run_child(args.job_id, &stdio, &exec.1)
                }
                self.run_waiting_child(args.job_id, &[&stdio, more].concat(), &exec.1)
            }
            Forked::Parent { child } => Ok(Spawned {
                pid: child,
                stdin: stdin.1,
                stdout: stdout.0,
                stderr: stderr.0,
                exec: exec.0,
            }),
        }
    }

    /// The same as [`Self::run_child`] with its descriptors out of the way of the numbers that they are to have. The
    /// guest sees a child that died where that fails.
    fn run_waiting_child(&self, job_id: u32, given: &[&OwnedFd], tell: &OwnedFd) -> ! {
        let above = |fd: &OwnedFd| sys::copy_above(fd.as_fd(), given.len());
        let copies: sys::Result<Vec<OwnedFd>> = given.iter().map(|fd| above(fd)).collect();
        let (Ok(copies), Ok(tell)) = (copies, above(tell)) else {
            sys::exit_now(1)
        };
        self.run_child(job_id, &copies.iter().collect::<Vec<_>>(), &tell)
    }

    /// The child, from fork to exec. What it is given gets the numbers from 0 up; neither it nor `tell` has one of those.
    fn run_child(&self, job_id: u32, given: &[&OwnedFd], tell: &OwnedFd) -> ! {
        let refused = match self.prepare_child(job_id, given, tell) {
            Err(refused) => refused,
            Ok(()) => {
                // Should this fail, the guest sees a child that died on its way, and refuses.
                let told = sys::write(tell.as_fd(), &[ABOUT_TO_EXEC]);
                let errno = if told.is_ok() {
                    self.exec()
                } else {
                    Errno(libc::EIO)
                };
                let name = self.job.argv.first().map_or("", String::as_str);
                Refused::new(Stage::Exec, Some(errno.0), name)
            }
        };
        let text = serde_json::to_vec(&refused).unwrap_or_default();
        let told = sys::write(tell.as_fd(), &text);
        sys::exit_now(i32::from(told.is_err()))
    }

    fn prepare_child(&self, job_id: u32, given: &[&OwnedFd], tell: &OwnedFd) -> Result<(), Refused> {
        let at = |stage| move |errno: Errno| Refused::new(stage, Some(errno.0), "");
        identity::become_job(job_id).map_err(at(Stage::Identity))?;
        sys::setsid().map_err(at(Stage::Resources))?;
        // For a job these have numbers from 3 up, since the guest's own 0, 1 and 2 are open.
        let mut first_closed = 0;
        for fd in given {
            sys::inherit_as(fd.as_fd(), first_closed).map_err(at(Stage::Resources))?;
            first_closed += 1;
        }
        // `tell` closes itself; all others close themselves too, and this holds if one forgot.
        sys::close_all_from(first_closed, tell.as_fd()).map_err(at(Stage::Resources))?;
        sys::default_signals().map_err(at(Stage::Resources))?;
        sys::set_umask(0o022);
        for limit in &self.job.rlimits {
            sys::set_rlimit(limit.resource, limit.limit).map_err(|errno| {
                Refused::new(Stage::Rlimit, Some(errno.0), format!("{:?}", limit.resource))
            })?;
        }
        let cwd = &self.job.cwd;
        std::env::set_current_dir(cwd)
            .map_err(|error| Refused::new(Stage::Cwd, Some(Errno::from(error).0), cwd))
    }

    /// Tries each place of the program. Returns only when none works.
    fn exec(&self) -> Errno {
        let mut worst = Errno(libc::ENOENT);
        for candidate in &self.candidates {
            match sys::exec(candidate, &self.argv, &self.env) {
                Errno(libc::ENOENT | libc::ENOTDIR) => {}
                // As execvp(3): look on, and say so if nothing better is found.
                errno @ Errno(libc::EACCES) => worst = errno,
                errno => return errno,
            }
        }
        worst
    }
}

/// What a child's way to `execve` came to, from all that it told.
pub(crate) fn judge_exec(told: &[u8]) -> Result<(), Refused> {
    let (reached_exec, failure) = match told.split_first() {
        Some((&ABOUT_TO_EXEC, failure)) => (true, failure),
        _ => (false, told),
    };
    if reached_exec && failure.is_empty() {
        return Ok(());
    }
    Err(serde_json::from_slice(failure).unwrap_or_else(|_| {
        Refused::new(
            Stage::Resources,
            None,
            "the child died before the program was started",
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(argv: &[&str], env: &[(&str, &str)], cwd: &str) -> Job {
        Job {
            version: mayfly_protocol::VERSION,
            argv: argv.iter().map(|s| (*s).to_owned()).collect(),
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            cwd: cwd.to_owned(),
            deadline_ms: 1000,
            rlimits: vec![],
            files: 0,
            stdin: false,
            warm: false,
            collects: false,
            egress: false,
        }
    }

    #[test]
    fn a_text_that_execve_could_not_take_whole_is_refused() {
        for bad in [
            job(&[], &[], "/"),
            job(&[""], &[], "/"),
            job(&["a\0b"], &[], "/"),
            job(&["a"], &[("", "x")], "/"),
            job(&["a"], &[("x=y", "x")], "/"),
            job(&["a"], &[("x", "y\0z")], "/"),
            job(&["a"], &[], "work"),
            job(&["a"], &[], "/wo\0rk"),
        ] {
            let refused = Program::new(bad).err().unwrap();
            assert_eq!(refused.stage, Stage::Job);
        }
    }

    #[test]
    fn a_name_is_looked_up_in_absolute_places_only() {
        let program = Program::new(job(&["py"], &[("PATH", "/a:.::b:/c")], "/"))
            .ok()
            .unwrap();
        assert_eq!(program.candidates, [c"/a/py".to_owned(), c"/c/py".to_owned()]);
        let program = Program::new(job(&["./py"], &[("PATH", "/a")], "/")).ok().unwrap();
        assert_eq!(program.candidates, [c"./py".to_owned()]);
    }

    #[test]
    fn a_job_fits_what_waits_when_nothing_but_its_last_arguments_and_its_environment_differ() {
        let program =
            |argv: &[&str], env: &[(&str, &str)], cwd| Program::new(job(argv, env, cwd)).ok().unwrap();
        let waiting = program(&["py", "/w/main.py"], &[("PATH", "/a")], "/w");
        for (fits, other) in [
            (
                true,
                program(&["py", "/w/main.py", "x"], &[("PATH", "/a"), ("X", "1")], "/w"),
            ),
            (false, program(&["py"], &[("PATH", "/a")], "/w")),
            (
                false,
                program(&["py", "-u", "/w/main.py"], &[("PATH", "/a")], "/w"),
            ),
            (false, program(&["py", "/w/main.py"], &[("PATH", "/b")], "/w")),
            (false, program(&["py", "/w/main.py"], &[("PATH", "/a")], "/")),
        ] {
            assert_eq!(other.fits(&waiting), fits, "{:?}", other.argv);
        }
        let mut limited = job(&["py", "/w/main.py"], &[("PATH", "/a")], "/w");
        limited.rlimits.push(mayfly_protocol::JobRlimit {
            resource: mayfly_protocol::Resource::Nofile,
            limit: Some(9),
        });
        assert!(!Program::new(limited).ok().unwrap().fits(&waiting));
    }

    #[test]
    fn what_is_handed_over_is_two_counts_and_all_texts() {
        let program = Program::new(job(&["py", "", "\u{e9}"], &[("A", "1=2"), ("B", "")], "/"))
            .ok()
            .unwrap();
        assert_eq!(
            program.hand_over(),
            "3\x002\0py\0\0\u{e9}\0A=1=2\0B=\0".as_bytes()
        );
    }

    #[test]
    fn only_the_word_alone_counts_as_a_start() {
        assert_eq!(judge_exec(b"R"), Ok(()));
        assert_eq!(judge_exec(b"").unwrap_err().stage, Stage::Resources);
        let failure = Refused::new(Stage::Exec, Some(2), "python");
        let text = serde_json::to_vec(&failure).unwrap();
        assert_eq!(
            judge_exec(&[b"R".as_slice(), &text].concat()),
            Err(failure.clone())
        );
        assert_eq!(judge_exec(&text), Err(failure));
    }
}
