//! The warm command: a process that is started in a sandbox before its job is known (docs/warm-sandboxes.md).
//!
//! A job runs in it only where a cold start would read the same: that is decided here for what the executor knows, by
//! the guest for how the process is made, and by the process for what it has imported. Whatever fails on the way, the
//! job is started cold in the same sandbox, and the record says why.

use std::time::Duration;

use mayfly_core::{
    job::{Language, ResolvedJob},
    run::WarmFacts,
};
use mayfly_protocol::{FromGuest, ToGuest, WarmOrder, WarmUse};

use crate::{
    baseline::{GUEST_MOUNT, WORK, job_environment},
    channel::Channel,
    error::{EngineError, chain},
    guest_binary::HOOK_FOLDER,
    seam::SandboxRequest,
};

/// How long the process may take until it waits.
const BOOT_LIMIT: Duration = Duration::from_secs(10);
/// How long the guest may take beyond that to clear a process away that was too slow, and to say so.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// What is started before the job is known. A part of what sandboxes are told apart by: a job runs in a sandbox with
/// the very command that it would start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WarmCommand {
    argv: Vec<String>,
    imports: Vec<String>,
}

/// A name that Python could not import.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not the name of a Python module")]
pub struct NotAModule(String);

impl WarmCommand {
    /// The interpreter of Python sources, booted, with these modules imported.
    ///
    /// # Errors
    /// [`NotAModule`] for a name that is not made of identifiers and dots.
    pub fn python(imports: Vec<String>) -> Result<Self, NotAModule> {
        let is_module = |name: &String| name.split('.').all(is_identifier);
        if let Some(bad) = imports.iter().find(|name| !is_module(name)) {
            return Err(NotAModule(bad.clone()));
        }
        let (program, file) = Language::Python.interpreter();
        Ok(Self {
            argv: vec![program.to_owned(), format!("{WORK}/{file}")],
            imports,
        })
    }

    /// Whether a job runs this command, whatever arguments it adds.
    #[must_use]
    pub fn suits(&self, job: &ResolvedJob) -> bool {
        job.argv.starts_with(&self.argv)
    }

    /// What is imported.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    fn order(&self, environment: &[(String, String)]) -> WarmOrder {
        const SEARCH: &str = "PYTHONPATH";
        let mut env = environment.to_vec();
        let hook = format!("{GUEST_MOUNT}/{HOOK_FOLDER}");
        match env.iter_mut().find(|(name, _)| name == SEARCH) {
            Some((_, folders)) => *folders = format!("{hook}:{folders}"),
            None => env.push((SEARCH.to_owned(), hook)),
        }
        env.push(("MAYFLY_WARM_IMPORTS".to_owned(), self.imports.join(",")));
        WarmOrder {
            argv: self.argv.clone(),
            env,
            cwd: WORK.to_owned(),
            limit_ms: u64::try_from(BOOT_LIMIT.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let starts = letters
        .next()
        .is_some_and(|letter| letter == '_' || letter.is_alphabetic());
    starts && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
}

/// What came of a sandbox's warm command.
#[derive(Debug)]
pub(crate) struct Warmth {
    command: WarmCommand,
    /// What the process was started with, without what is the hook's.
    environment: Vec<(String, String)>,
    boot: Result<u64, String>,
    /// Whether the kernel killed something for memory before any job was there.
    pub(crate) killed_for_memory: bool,
}

/// Has the process of a request started, if it asks for one, and waits until that has worked or failed.
///
/// # Errors
/// A guest that died or broke the protocol.
pub(crate) async fn boot(
    channel: &mut Channel,
    request: &SandboxRequest,
    image_env: &[String],
) -> Result<Option<Warmth>, EngineError> {
    let Some(command) = request.warm.clone() else {
        return Ok(None);
    };
    let environment = job_environment(&request.limits, request.loopback, image_env, []);
    let order = ToGuest::Warm(command.order(&environment));
    let failed = |what: String| EngineError::Guest(format!("{what}, as it was to start the warm command"));
    channel.send(&order).map_err(|error| failed(chain(&error)))?;
    let answer = tokio::time::timeout(BOOT_LIMIT + ANSWER_MARGIN, channel.receive()).await;
    let (boot, killed_for_memory) = match answer {
        Ok(Ok(FromGuest::Warmed(warmed))) => (Ok(warmed.boot_us), false),
        Ok(Ok(FromGuest::WarmFailed(warm))) => (Err(warm.reason), warm.out_of_memory),
        // The conversation refuses any other frame first; this is how a new kind would show.
        Ok(Ok(frame)) => return Err(failed(format!("it said {}", frame.name()))),
        Ok(Err(error)) => return Err(failed(chain(&error))),
        Err(_) => return Err(failed("it did not answer".to_owned())),
    };
    Ok(Some(Warmth {
        command,
        environment,
        boot,
        killed_for_memory,
    }))
}

impl Warmth {
    /// What the record says of it before there is a job.
    pub(crate) fn facts(&self) -> WarmFacts {
        WarmFacts {
            imports: self.command.imports.clone(),
            boot_us: self.boot.as_ref().ok().copied(),
            used: false,
            why_cold: self.boot.as_ref().err().cloned(),
        }
    }

    /// Whether a job may run in the process, by all that can be told before it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admits(&self, job: &ResolvedJob, environment: &[(String, String)]) -> Result<(), String> {
        if let Err(why) = &self.boot {
            return Err(why.clone());
        }
        if !self.command.suits(job) {
            return Err("the job runs another command".to_owned());
        }
        let read_early = |path: &str| {
            // Folders and files of the user's own, such as `.local`, from which `site` takes modules.
            path.split('/').any(|part| part.starts_with('.')) || path == "matplotlibrc"
        };
        if let Some(file) = job.files.iter().find(|file| read_early(&file.path)) {
            return Err(format!("the file {} would be read early", file.path));
        }
        let value = |environment: &[(String, String)], wanted: &str| {
            let found = environment.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let changed = self
            .environment
            .iter()
            .find(|(name, old)| value(environment, name).as_ref() != Some(old));
        if let Some((name, _)) = changed {
            return Err(format!("the job changes {name}"));
        }
        let added = environment.iter().find(|(name, _)| {
            let is_new = value(&self.environment, name).is_none();
            // A library may read any as it is imported.
            is_new && (!self.command.imports.is_empty() || is_read_at_start(name))
        });
        added.map_or(Ok(()), |(name, _)| Err(format!("the job sets {name}")))
    }
}

/// Whether the loader, the C library or the interpreter reads a variable before the program's first line.
fn is_read_at_start(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["PYTHON", "LD_", "LC_", "GLIBC_", "MALLOC_", "TZ"];
    const NAMES: [&str; 8] = [
        "GCONV_PATH",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOCPATH",
        "NLSPATH",
        "PATH",
        "SETUPTOOLS_USE_DISTUTILS",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// What became of the process, once a job has run or could not.
pub(crate) fn conclude(facts: &mut WarmFacts, admitted: Result<(), String>, came: Option<WarmUse>) {
    let lost = |why: &str| Some(why.to_owned());
    facts.used = came == Some(WarmUse::Used);
    facts.why_cold = match (admitted, came) {
        (Err(why), _) => Some(why),
        (Ok(()), Some(WarmUse::Used)) => None,
        (Ok(()), Some(WarmUse::Gone)) => lost("the process that waited had ended"),
        (Ok(()), Some(WarmUse::Unfit)) => lost("the process that waited was not made as the job's would be"),
        (Ok(()), Some(WarmUse::Wrote)) => lost("the process that waited had written something"),
        (Ok(()), Some(WarmUse::Silent)) => lost("the process that waited did not take the job in time"),
        (Ok(()), Some(WarmUse::Declined)) => lost(
            "the process that waited did not take the job: it brings a module of a name that was imported",
        ),
        (Ok(()), Some(WarmUse::NotAsked) | None) => lost("the job was not started"),
    };
}

#[cfg(test)]
mod tests;
