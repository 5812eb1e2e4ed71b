//! The engine's client: every call that we make, each with its own bound and what it was for.
//!
//! The rest of the crate never touches the client library's connection, so that no call can go without a bound, and
//! what the library logs at debug level (request bodies among it) is the composition root's to silence.

use std::{collections::HashMap, future::Future, pin::Pin, time::Duration};

use bollard::{
    Docker,
    container::LogOutput,
    errors::Error,
    models::{
        ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum as Status, ContainerSummary,
        ImageInspect, VolumeCreateRequest,
    },
    query_parameters as query,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWrite;

use crate::error::EngineError;

mod again;
mod details;
mod facts;

pub(crate) use again::EngineWord;

pub use details::EngineDetails;
pub use facts::{CgroupVersion, EngineFacts, Lack};

/// Bound of the first contact: version and information.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Bound of a call that only reads.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Bound of creating a container or a volume.
const CREATE_LIMIT: Duration = Duration::from_secs(30);
/// Bound of a start; gVisor takes half a second, a loaded host some.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Bound of an attach, which only has to be accepted.
const ATTACH_LIMIT: Duration = Duration::from_secs(10);
/// Bound of a kill.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Bound of a forced removal, which kills, waits for the end and unmounts.
const REMOVE_LIMIT: Duration = Duration::from_secs(30);
/// Bound of putting the guest into its volume, or of reading it back.
const ARCHIVE_LIMIT: Duration = Duration::from_secs(60);
/// How long after a container's end its engine may still say that the kernel killed in it for memory. The end and the
/// kill come to an engine by ways of their own, so that under load the end can come first.
const OOM_WORD_LIMIT: i64 = 2;
/// Most of an archive that is read back: the guest is far below it.
const ARCHIVE_BYTES: usize = 64 << 20;

/// Where an engine is that nobody says the place of (dockerd(8), `--host`).
pub const DEFAULT_ADDRESS: &str = "unix:///var/run/docker.sock";

/// A connection to a container engine. Clones share it.
#[derive(Debug, Clone)]
pub struct Engine {
    client: Docker,
    facts: std::sync::Arc<EngineFacts>,
}

/// Both directions of a container that was attached to before its start.
pub(crate) struct Attached {
    /// What the container writes, told apart by stream.
    pub(crate) output: Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>,
    /// The container's stdin.
    pub(crate) input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// What the engine says of a container's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerEnd {
    pub(crate) running: bool,
    pub(crate) exit_code: Option<i64>,
    pub(crate) oom_killed: Option<bool>,
    /// Whether the engine was told to remove it, which it says before it kills.
    pub(crate) being_removed: bool,
}

impl Engine {
    /// Connects to the engine at `unix:///path` or `tcp://host:port`, or where the engine's own client would look, and
    /// agrees on a version of the API.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`] where nothing answers as an engine, [`EngineError::TimedOut`] where it doesn't in
    /// time.
    pub async fn connect(address: Option<&str>) -> Result<Self, EngineError> {
        let shown = address.unwrap_or(DEFAULT_ADDRESS).to_owned();
        refuse_unknown_scheme(address)?;
        let unreachable = |source| EngineError::Unreachable {
            address: shown.clone(),
            source,
        };
        let client = match address {
            Some(address) => Docker::connect_with_host(address),
            None => Docker::connect_with_defaults(),
        }
        .map_err(unreachable)?;
        let contact = async {
            let client = client.negotiate_version().await?;
            let (version, info) = (client.version().await?, client.info().await?);
            Ok::<_, Error>((client, version, info))
        };
        let (client, version, info) = tokio::time::timeout(CONNECT_LIMIT, contact)
            .await
            .map_err(|_| timed_out("answer the first call", CONNECT_LIMIT))?
            .map_err(unreachable)?;
        let api = client.client_version().to_string();
        Ok(Self {
            client,
            facts: std::sync::Arc::new(EngineFacts::of(version, info, api)),
        })
    }

    /// What the engine says of itself and its host.
    #[must_use]
    pub fn facts(&self) -> &EngineFacts {
        &self.facts
    }

    /// The client itself, for calls that stream and bound themselves.
    pub(crate) fn client(&self) -> &Docker {
        &self.client
    }

    /// An image by its id or reference; `None` where the engine doesn't have it.
    pub(crate) async fn find_image(&self, reference: &str) -> Result<Option<ImageInspect>, EngineError> {
        let found = call(
            "inspect the image",
            READ_LIMIT,
            self.client.inspect_image(reference),
        )
        .await;
        absent_is_none(found)
    }

    /// Creates a container and returns its id.
    pub(crate) async fn create_container(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<String, EngineError> {
        let options = query::CreateContainerOptions {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        let created = self.client.create_container(Some(options), body);
        Ok(call("create the container", CREATE_LIMIT, created).await?.id)
    }

    /// Attaches to all three streams. Before the start, or the first bytes are lost.
    pub(crate) async fn attach(&self, container: &str) -> Result<Attached, EngineError> {
        let options = query::AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let attached = self.client.attach_container(container, Some(options));
        let attached = call("attach to the container", ATTACH_LIMIT, attached).await?;
        Ok(Attached {
            output: attached.output,
            input: attached.input,
        })
    }

    /// Starts a container.
    pub(crate) async fn start(&self, container: &str) -> Result<(), EngineError> {
        let started = self.client.start_container(container, None);
        call("start the container", START_LIMIT, started).await
    }

    /// All that the engine says of a container.
    pub(crate) async fn inspect(&self, container: &str) -> Result<ContainerInspectResponse, EngineError> {
        let inspected = self.client.inspect_container(container, None);
        call("inspect the container", READ_LIMIT, inspected).await
    }

    /// What the engine says of a container's end.
    pub(crate) async fn container_end(&self, container: &str) -> Result<ContainerEnd, EngineError> {
        let state = self.inspect(container).await?.state.unwrap_or_default();
        let removals = [Some(Status::REMOVING), Some(Status::DEAD)];
        Ok(ContainerEnd {
            running: state.running.unwrap_or(false),
            exit_code: state.exit_code,
            oom_killed: state.oom_killed,
            being_removed: removals.contains(&state.status),
        })
    }

    /// Whether the engine has said, or says up to 2 s after the container's end, that the kernel killed in it for
    /// memory. Engines before 24 keep of that only what came before the end, while their events tell it whenever it
    /// came; `false` too where the container has not ended.
    pub(crate) async fn said_oom(&self, container: &str) -> Result<bool, EngineError> {
        let Some(ended) = self.finished_at(container).await? else {
            return Ok(false);
        };
        let options = query::EventsOptions {
            // All that it still knows: a container's id is never used again.
            since: Some("1".to_owned()),
            // By the engine's clock, which need not be ours.
            until: Some((ended + OOM_WORD_LIMIT).to_string()),
            filters: Some(HashMap::from([
                ("container".to_owned(), vec![container.to_owned()]),
                ("event".to_owned(), vec!["oom".to_owned()]),
            ])),
        };
        let mut events = Box::pin(self.client.events(Some(options)));
        let first = async { events.next().await.transpose() };
        Ok(call("tell of kills for memory", READ_LIMIT, first)
            .await?
            .is_some())
    }

    /// Resolves when the container runs no more. The caller bounds it.
    pub(crate) async fn wait_until_ended(&self, container: &str) {
        let options = query::WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        // A non-zero exit is an error to this client; whatever comes, the end is then read by inspect.
        let mut wait = Box::pin(self.client.wait_container(container, Some(options)));
        wait.next().await;
    }

    /// A container's exit code, when it runs no more.
    pub(crate) async fn exit_code(&self, container: &str, limit: Duration) -> Result<i64, EngineError> {
        let options = query::WaitContainerOptions {
            condition: "not-running".to_owned(),
        };
        let mut wait = Box::pin(self.client.wait_container(container, Some(options)));
        let ended = async {
            match wait.next().await {
                Some(Ok(ended)) => Ok(ended.status_code),
                // A non-zero exit is an error to this client.
                Some(Err(Error::DockerContainerWaitError { code, .. })) => Ok(code),
                Some(Err(error)) => Err(error),
                None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            }
        };
        call("wait for the container's end", limit, ended).await
    }

    /// Kills a container; one that is gone or has ended is killed already.
    pub(crate) async fn kill(&self, container: &str) -> Result<(), EngineError> {
        let options = query::KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        let killed = self.client.kill_container(container, Some(options));
        done_already(call("kill the container", KILL_LIMIT, killed).await)
    }

    /// Removes a container with its anonymous volumes, whatever state it is in; one that is gone is removed already. One
    /// whose removal is under way may have processes still: that is [`EngineError::BeingRemoved`].
    pub(crate) async fn remove(&self, container: &str) -> Result<(), EngineError> {
        let options = query::RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        let removed = self.client.remove_container(container, Some(options));
        match call("remove the container", REMOVE_LIMIT, removed).await {
            Err(error) if status(&error) == Some(404) => Ok(()),
            Err(error) if status(&error) == Some(409) => Err(EngineError::BeingRemoved),
            done => done,
        }
    }

    /// All containers that have this label with this value, ended ones included.
    pub(crate) async fn containers_labelled(
        &self,
        label: &str,
        value: &str,
    ) -> Result<Vec<ContainerSummary>, EngineError> {
        let options = query::ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([(
                "label".to_owned(),
                vec![format!("{label}={value}")],
            )])),
            ..Default::default()
        };
        let listed = self.client.list_containers(Some(options));
        call("list the containers", READ_LIMIT, listed).await
    }

    /// How many processes the engine's host counts in a container; `None` where it does not count them.
    pub(crate) async fn count_processes(&self, container: &str) -> Result<Option<u64>, EngineError> {
        let options = query::StatsOptions {
            stream: false,
            one_shot: true,
        };
        let mut counts = Box::pin(self.client.stats(container, Some(options)));
        let first = async { counts.next().await.transpose() };
        let found = call("count the processes of a container", READ_LIMIT, first).await?;
        Ok(found.and_then(|counts| counts.pids_stats?.current))
    }

    /// When a container ended, in seconds since 1970 by the engine's clock; `None` where it has not.
    pub(crate) async fn finished_at(&self, container: &str) -> Result<Option<i64>, EngineError> {
        let state = self.inspect(container).await?.state.unwrap_or_default();
        Ok(seconds(state.finished_at.as_deref()))
    }

    /// The engine's clock, where it tells.
    pub(crate) async fn seconds_since_1970(&self) -> Result<Option<i64>, EngineError> {
        let info = call("tell the time", READ_LIMIT, self.client.info()).await?;
        Ok(seconds(info.system_time.as_deref()))
    }

    /// Creates a volume, or finds the one of this name, and returns the labels that it has.
    pub(crate) async fn ensure_volume(
        &self,
        name: &str,
        labels: HashMap<String, String>,
    ) -> Result<HashMap<String, String>, EngineError> {
        let created = self.client.create_volume(VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..Default::default()
        });
        Ok(call("create the guest's volume", CREATE_LIMIT, created)
            .await?
            .labels)
    }

    /// Puts an uncompressed archive below `path` of a container that has never run.
    pub(crate) async fn put_archive(
        &self,
        container: &str,
        path: &str,
        archive: Vec<u8>,
    ) -> Result<(), EngineError> {
        let options = query::UploadToContainerOptions {
            path: path.to_owned(),
            ..Default::default()
        };
        let put =
            self.client
                .upload_to_container(container, Some(options), bollard::body_full(archive.into()));
        call("put the guest into its volume", ARCHIVE_LIMIT, put).await
    }

    /// Reads a path of a container that has never run, as an archive; `None` where there is no such path.
    pub(crate) async fn get_archive(
        &self,
        container: &str,
        path: &str,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let options = query::DownloadFromContainerOptions {
            path: path.to_owned(),
        };
        let mut chunks = Box::pin(self.client.download_from_container(container, Some(options)));
        let read = async {
            let mut archive = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let chunk: Bytes = chunk?;
                if archive.len() + chunk.len() > ARCHIVE_BYTES {
                    return Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge).into());
                }
                archive.extend_from_slice(&chunk);
            }
            Ok(archive)
        };
        absent_is_none(call("read the guest's volume", ARCHIVE_LIMIT, read).await)
    }
}

/// Other schemes would be tried as if they were one of these, or not understood at all.
fn refuse_unknown_scheme(address: Option<&str>) -> Result<(), EngineError> {
    let known = |address: &str| {
        ["unix://", "tcp://"]
            .iter()
            .any(|scheme| address.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
    };
    match address {
        Some(address) if !known(address) => Err(EngineError::Address {
            address: address.to_owned(),
        }),
        _ => Ok(()),
    }
}

async fn call<T>(
    doing: &'static str,
    limit: Duration,
    reply: impl Future<Output = Result<T, Error>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(limit, reply).await {
        Ok(reply) => reply.map_err(|source| EngineError::Call { doing, source }),
        Err(_) => Err(timed_out(doing, limit)),
    }
}

/// Seconds since 1970 of a time as engines write it; the year 1 means never.
fn seconds(time: Option<&str>) -> Option<i64> {
    let time = chrono::DateTime::parse_from_rfc3339(time?).ok()?.timestamp();
    (time > 0).then_some(time)
}

fn timed_out(doing: &'static str, limit: Duration) -> EngineError {
    EngineError::TimedOut {
        doing,
        seconds: limit.as_secs(),
    }
}

fn status(error: &EngineError) -> Option<u16> {
    match error {
        EngineError::Call {
            source: Error::DockerResponseServerError { status_code, .. },
            ..
        } => Some(*status_code),
        _ => None,
    }
}

fn absent_is_none<T>(found: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Of a kill. 404: gone. 409: not running.
fn done_already(done: Result<(), EngineError>) -> Result<(), EngineError> {
    match done {
        Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
        done => done,
    }
}
