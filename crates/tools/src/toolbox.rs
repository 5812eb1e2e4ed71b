//! The tools, over one client.

use std::{collections::BTreeMap, time::Duration};

use mayfly_client::{ApiKey, Client};
use mayfly_core::{id::JobId, image::ImageName};
use mayfly_wire::job::State;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    answer::Answer,
    arguments::{self, GetArtifactArguments, JobArguments, ReadOutputArguments, WaitArguments},
    definition::{self, Definition},
    kept::{self, Content},
    refusal,
    run::{self, Program},
};

/// What is decided about tools by whoever offers them, and by no model.
#[derive(Debug, Clone)]
pub struct Options {
    /// The image that programs run in.
    pub image: ImageName,
    /// Whether `run_shell` is there.
    pub shell: bool,
    /// Longest time until a call is answered: with the result, or with the job to wait for.
    pub answer_within: Duration,
    /// How often a call that goes on says that it does.
    pub progress_every: Duration,
    /// Characters of each stream that an answer holds: the first ones and the last ones.
    pub characters: usize,
    /// Hosts that each job asks to reach, as rules; the policy of where they run has to cover them.
    pub egress: Vec<String>,
    /// Labels of each job, beside `tool`.
    pub labels: BTreeMap<String, String>,
}

/// What a call has beside its arguments.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Cancels the call, and with it the job that it waits for.
    pub stop: &'a CancellationToken,
    /// Hears that the call goes on.
    pub progress: &'a (dyn Fn(Progress) + Send + Sync),
}

/// A call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The job that it waits for.
    pub job: JobId,
    /// Where that stands.
    pub state: State,
    /// Since the beginning of the call.
    pub elapsed: Duration,
}

/// Tools that run programs at one server, as whoever its client's key stands for.
#[derive(Debug, Clone)]
pub struct Toolbox {
    pub(crate) client: Client,
    pub(crate) options: Options,
}

impl Toolbox {
    /// Tools over a client.
    #[must_use]
    pub const fn new(client: Client, options: Options) -> Self {
        Self { client, options }
    }

    /// The same tools, whose calls are by somebody else.
    #[must_use]
    pub fn with_key(&self, key: ApiKey) -> Self {
        Self {
            client: self.client.with_key(key),
            options: self.options.clone(),
        }
    }

    /// The tools that there are.
    #[must_use]
    pub fn definitions(&self) -> Vec<Definition> {
        definition::all(&self.options)
    }

    /// Asks for a job's end, and waits for it a while.
    pub async fn cancel(&self, job: JobId) -> Answer {
        run::cancel_and_wait(self, job)
            .await
            .unwrap_or_else(|answer| *answer)
    }

    /// All of a file that was kept of a job, where it has at most so many bytes.
    ///
    /// # Errors
    /// Why not, as a call of a tool says it.
    pub async fn content(&self, job: JobId, index: u32, most: u64) -> Result<Content, Box<Answer>> {
        kept::content(self, job, index, most).await
    }

    /// Calls a tool by its name. Whatever is wrong is an answer too, from which a model can repair its call.
    ///
    /// # Cancel safety
    /// A call that is dropped leaves its job running; to end both, cancel [`Call::stop`].
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>, call: Call<'_>) -> Answer {
        let called = match (tool, self.options.shell) {
            ("run_python", _) => match arguments::read(tool, arguments).and_then(Program::python) {
                Ok(program) => run::program(self, program, call).await,
                Err(wrong) => Err(wrong),
            },
            ("run_shell", true) => match arguments::read(tool, arguments).and_then(Program::shell) {
                Ok(program) => run::program(self, program, call).await,
                Err(wrong) => Err(wrong),
            },
            ("wait", _) => match arguments::read::<WaitArguments>(tool, arguments) {
                Ok(asked) => run::wait(self, asked, call).await,
                Err(wrong) => Err(wrong),
            },
            ("read_output", _) => match arguments::read::<ReadOutputArguments>(tool, arguments) {
                Ok(asked) => run::read_output(self, asked).await,
                Err(wrong) => Err(wrong),
            },
            ("list_artifacts", _) => match arguments::read::<JobArguments>(tool, arguments) {
                Ok(asked) => kept::list_artifacts(self, asked.job).await,
                Err(wrong) => Err(wrong),
            },
            ("get_artifact", _) => match arguments::read::<GetArtifactArguments>(tool, arguments) {
                Ok(asked) => kept::get_artifact(self, asked).await,
                Err(wrong) => Err(wrong),
            },
            ("cancel", _) => match arguments::read::<JobArguments>(tool, arguments) {
                Ok(asked) => run::cancel(self, asked).await,
                Err(wrong) => Err(wrong),
            },
            _ => Err(refusal::no_such_tool(tool, &self.definitions())),
        };
        called.unwrap_or_else(|answer| *answer)
    }
}
