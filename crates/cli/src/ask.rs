//! `mayfly ask`: a language model solves a task with programs, which run as jobs where `mayfly run` runs them.
//!
//! The model's key goes to the client of its provider and to nothing else: jobs, records, log lines, the transcript and the
//! API never see it. Every job has the label `run` with the run's id, and the transcript has the id of each job.

mod approve;
mod show;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use mayfly_agent::{
    bounds::Bounds,
    model::{
        DEFAULT_MODEL, DotEnv, Environment, ModelClient, ModelName, Place, ProviderClient, ProviderConfig,
    },
    record::{End, Run},
    run::Agent,
    tool::Approval,
    toolbox::{self, GivenFile},
};
use mayfly_client::Client;
use mayfly_core::image::ImageName;
use mayfly_settings::Surroundings;
use mayfly_tools::{Options, Toolbox, USUAL_CHARACTERS};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::approve::Asker;
use crate::{
    args::{Common, ask::AskArgs},
    artifacts::Saving,
    backend::Backend,
    context::surroundings,
    embedded::Requests,
    exit,
    failure::Failure,
    remote::AtServer,
    run::{input_file, read},
    terminal::{print, say},
};

/// What is asked where nothing is.
const USUAL_TASK: &str = "What is the 30th Fibonacci number, where the first two are 1 and 1? Use code.";
/// The variable that names a model.
const MODEL: &str = "MODEL";
/// The file with variables.
const ENV_FILE: &str = ".env";
/// Most calls that run beside each other.
const PARALLEL_CALLS: usize = 4;
/// The label by which jobs of a run are found.
const RUN_LABEL: &str = "run";

pub(crate) async fn ask(common: &Common, args: AskArgs) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    // What is wrong with the question is said before an engine is asked for anything, and before anything is paid for.
    let model = model(&args, surroundings(common))?;
    if args.approve && args.task.as_deref() == Some("-") {
        return Err(Failure::usage(
            "the task and what is said to its programs can't both be on standard input",
        ));
    }
    let task = task(args.task.as_deref())?;
    let files = files(&args.files)?;
    let bounds = bounds(&args);
    let transcript = args.transcript.as_deref().map(Transcript::open).transpose()?;
    let mut saving = args.out.as_deref().map(Saving::into).transpose()?;
    let id = Uuid::now_v7().to_string();
    let backend = tokio::select! {
        backend = Backend::of(common) => backend?,
        () = requests.next() => return Ok(ExitCode::from(exit::STOPPED)),
    };
    let run = async {
        let tools = if args.no_tools {
            Vec::new()
        } else {
            toolbox::tools(
                &Toolbox::new(backend.client.clone(), options(&args, &backend, &id)?),
                files,
            )
        };
        if !args.quiet {
            say(&format!("mayfly: run {id} asks {} at {}", model.name, model.host));
        }
        let agent = Agent {
            model: Arc::clone(&model.client),
            tools,
            bounds,
            price: args.price,
            approval: args
                .approve
                .then(|| Arc::new(Asker::default()) as Arc<dyn Approval>),
        };
        Ok(until_stopped(&agent, &task, args.quiet, &mut requests).await)
    };
    let run: Result<Option<Run>, Failure> = run.await;
    // While there is somebody to ask for them.
    let saved = match (&run, &mut saving) {
        (Ok(Some(run)), Some(saving)) => save(run, &backend.client, saving).await,
        _ => Ok(()),
    };
    backend.stop().await;
    let Some(run) = run? else {
        return Ok(ExitCode::from(exit::STOPPED));
    };
    let code = report(&args, Document { id, run }, transcript)?;
    saved?;
    match saving {
        Some(saving) if !saving.is_empty() || !args.quiet => {
            let told = saving.told();
            // An answer without its files is not all that was asked for.
            Ok(if code == ExitCode::SUCCESS { told } else { code })
        }
        _ => Ok(code),
    }
}

/// Writes what the programs of a run have kept, first to last.
async fn save(run: &Run, client: &Client, saving: &mut Saving) -> Result<(), Failure> {
    for job in run.jobs() {
        saving.job(&AtServer::new(client.clone(), job)).await?;
    }
    Ok(())
}

/// A run with the id that its jobs have as their label.
#[derive(Serialize)]
struct Document {
    id: String,
    #[serde(flatten)]
    run: Run,
}

/// A model, ready to be asked.
struct Model {
    client: Arc<dyn ModelClient>,
    name: ModelName,
    host: String,
}

fn model(args: &AskArgs, surroundings: Surroundings) -> Result<Model, Failure> {
    let path = args.env_file.as_deref();
    let file = DotEnv::read(path.unwrap_or(Path::new(ENV_FILE)))
        .map_err(|error| Failure::new(exit::NO_INPUT, error))?;
    if let (Some(path), None) = (path, &file) {
        return Err(Failure::new(
            exit::NO_INPUT,
            anyhow::anyhow!("--env-file: {} is not there", path.display()),
        ));
    }
    let environment = Environment {
        process: surroundings.variables,
        file,
    };
    let named = args.model.as_deref().or_else(|| environment.get(MODEL));
    let name: ModelName = named.unwrap_or(DEFAULT_MODEL).parse().map_err(Failure::usage)?;
    let place = Place::of(name.provider(), &environment).map_err(|error| Failure::new(exit::USAGE, error))?;
    let host = place.host();
    let client = ProviderClient::new(ProviderConfig {
        model: name.clone(),
        place,
        timeout: args.answer_time.as_duration(),
        // The run's own time is the bound.
        patience: args.time.as_duration(),
    })
    .map_err(|error| Failure::new(exit::INTERNAL, error))?;
    Ok(Model {
        client: Arc::new(client),
        name,
        host,
    })
}

fn task(given: Option<&str>) -> Result<String, Failure> {
    let task = match given {
        None => USUAL_TASK.to_owned(),
        Some("-") => String::from_utf8(read(Path::new("-"))?)
            .map_err(|_| Failure::usage("the task on standard input is no text (UTF-8)"))?,
        Some(task) => task.to_owned(),
    };
    if task.trim().is_empty() {
        return Err(Failure::usage("the task is empty: say what you want to know"));
    }
    Ok(task)
}

fn files(given: &[String]) -> Result<Vec<GivenFile>, Failure> {
    let files = given.iter().map(|text| {
        let file = input_file(text)?;
        Ok(GivenFile {
            path: file.path,
            content: file.content.as_bytes().to_vec(),
        })
    });
    files.collect()
}

fn bounds(args: &AskArgs) -> Bounds {
    Bounds {
        steps: args.steps,
        tokens: args.tokens,
        wall: args.time.as_duration(),
        cost: args.cost,
        answer_tokens: args.answer_tokens,
        parallel_calls: PARALLEL_CALLS,
    }
}

fn options(args: &AskArgs, backend: &Backend, id: &str) -> Result<Options, Failure> {
    let image = match &args.image {
        Some(image) => image.clone(),
        None => backend
            .settings
            .image
            .default
            .parse::<ImageName>()
            .map_err(Failure::usage)?,
    };
    Ok(Options {
        image,
        shell: args.shell,
        // Whoever asks waits; the time of the run ends its jobs.
        answer_within: args.time.as_duration(),
        progress_every: toolbox::PROGRESS_EVERY,
        characters: USUAL_CHARACTERS,
        egress: args.allow_host.clone(),
        labels: [(RUN_LABEL.to_owned(), id.to_owned())].into(),
    })
}

/// The run, to its end. Whoever asks for the end gets the record of what was done; who asks twice leaves at once.
async fn until_stopped(agent: &Agent, task: &str, quiet: bool, requests: &mut Requests) -> Option<Run> {
    let stop = CancellationToken::new();
    let steps = show::Steps::new(quiet);
    let listener = |event: mayfly_agent::run::Event<'_>| steps.show(event);
    let run = agent.run(task, &stop, &listener);
    let mut run = std::pin::pin!(run);
    tokio::select! {
        run = &mut run => return Some(run),
        () = requests.next() => stop.cancel(),
    }
    tokio::select! {
        run = run => Some(run),
        () = requests.next() => None,
    }
}

fn report(args: &AskArgs, document: Document, transcript: Option<Transcript>) -> Result<ExitCode, Failure> {
    let json = serde_json::to_string(&document).map_err(|error| Failure::new(exit::INTERNAL, error))?;
    // First what can fail: the answer is shown all the same.
    let kept = transcript.map_or(Ok(()), |transcript| transcript.write(&json));
    let run = &document.run;
    let shown = if args.json {
        print(&format!("{json}\n"))
    } else {
        run.answer
            .as_deref()
            .map_or(Ok(()), |answer| print(&format!("{answer}\n")))
    };
    if !args.quiet {
        say(&show::summary(run));
    }
    if run.end != End::Answered {
        say(&format!(
            "mayfly: error: {}",
            crate::terminal::shown(&run.end.to_string())
        ));
    }
    kept.and(shown)?;
    Ok(ExitCode::from(match run.end {
        End::Answered => exit::OK,
        End::Stopped => exit::STOPPED,
        _ => exit::SOME_FAILED,
    }))
}

/// The file for the transcript, opened before anything is paid for.
struct Transcript {
    path: PathBuf,
    file: fs::File,
}

impl Transcript {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = fs::File::create(path).map_err(|error| unwritable(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn write(mut self, json: &str) -> Result<(), Failure> {
        writeln!(self.file, "{json}").map_err(|error| unwritable(&self.path, error))
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Failure {
    let error =
        anyhow::Error::new(error).context(format!("--transcript: {} can't be written", path.display()));
    Failure::new(exit::NO_OUTPUT, error)
}
