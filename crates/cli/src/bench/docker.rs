//! The engine's command line as a process.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use mayfly_sandbox::floor::DockerRun;
use tokio::process::Command;

use super::ground::Ground;
use crate::{exit, failure::Failure, terminal::shown};

/// Where the engine's command line would look; it is always told, so that no context of its own leads it elsewhere.
const USUAL_ENGINE: &str = "unix:///var/run/docker.sock";
/// How long a run may take beyond the program's wall limit, which nobody enforces here.
const MARGIN: Duration = Duration::from_secs(30);
/// How long the command line may take to tell its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// The command line, and the engine that it is told to use.
#[derive(Debug)]
pub(crate) struct Docker {
    program: PathBuf,
    engine: String,
    filter: PathBuf,
    pub(crate) version: String,
}

impl Docker {
    /// Looks for it. What comes instead is why this way is skipped.
    pub(crate) async fn find(program: PathBuf, ground: &Ground) -> Result<Self, String> {
        let Some(filter) = ground.filter.clone() else {
            return Err(
                "the engine is Podman, which docker's client can't give the syscall filter".to_owned(),
            );
        };
        let mut found = Self {
            program,
            engine: ground
                .engine_address
                .clone()
                .unwrap_or_else(|| USUAL_ENGINE.to_owned()),
            filter,
            version: String::new(),
        };
        let asked = found.output(["version", "--format", "{{.Client.Version}}"], VERSION_LIMIT);
        let output = asked.await?;
        if !output.status.success() {
            return Err(format!(
                "{} version: {}",
                found.program.display(),
                complaint(&output)
            ));
        }
        found.version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(found)
    }

    /// Runs the program once: from right before the process is made until it has ended. It removes its container before
    /// that. Says what it took, and how much the program printed.
    pub(crate) async fn run(&self, ground: &Ground) -> Result<(Duration, u64), Failure> {
        let run = ground.floor.docker_run(&self.filter)?;
        let limit = ground.job.limits.wall.as_duration() + MARGIN;
        let begun = Instant::now();
        let output = self.output(run.arguments(), limit).await;
        let took = begun.elapsed();
        let failed = |why: String| Failure::new(exit::INTERNAL, anyhow::anyhow!("`docker run`: {why}"));
        let output = output.map_err(failed)?;
        if !output.status.success() {
            return Err(failed(format!("{}: {}", output.status, complaint(&output))));
        }
        DockerRun::removed(run);
        Ok((took, output.stdout.len() as u64))
    }

    async fn output<Arg: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = Arg>,
        limit: Duration,
    ) -> Result<Output, String> {
        let mut command = Command::new(&self.program);
        command
            .arg("--host")
            .arg(&self.engine)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // A Ctrl-C is for us: it would end the run in the middle.
        #[cfg(unix)]
        command.process_group(0);
        match tokio::time::timeout(limit, command.output()).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) => Err(format!("{} can't be run: {error}", self.program.display())),
            Err(_) => Err(format!("it did not end within {} s", limit.as_secs())),
        }
    }
}

/// What it said, in one line that is fit for a terminal.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text: String = text.trim().chars().take(500).collect();
    shown(&text)
}
