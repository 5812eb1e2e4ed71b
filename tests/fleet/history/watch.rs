//! Hears what the programs of a deployment say, through the engine.
//!
//! ```text
//! one thread: the engine's events, each container that is made
//!   one thread for each container: what it writes, until it ends
//! ```
//!
//! Requests are HTTP/1.0 over the engine's socket, so that answers come without chunks. An engine that ends is asked again
//! until it is back; what runs then is listed and listened to anew.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{CLOSES, OPENS, Start, now_ms, said};

/// How soon a thread that waits for bytes finds out that nobody listens any more.
const LOOK_UP: Duration = Duration::from_millis(200);
/// More than a line of a program's has.
const LONGEST_LINE: usize = 512;
/// An engine that is away is asked again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// Listens until it is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    events: Option<thread::JoinHandle<()>>,
}

struct Shared {
    socket: String,
    deployment: String,
    stop: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    containers: BTreeMap<String, Container>,
    /// By number.
    starts: BTreeMap<String, Start>,
}

#[derive(Default)]
struct Container {
    executor: String,
    session: String,
    listened_to: bool,
    gone_ms: Option<i64>,
}

impl Watch {
    /// On this engine, or the one of `DOCKER_HOST`.
    pub fn begin(engine: Option<&str>, deployment: &str) -> Self {
        let host = std::env::var_os("DOCKER_HOST").map(|host| host.to_string_lossy().into_owned());
        let host = engine.map(ToOwned::to_owned).or(host);
        let host = host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
        let shared = Arc::new(Shared {
            socket: host
                .strip_prefix("unix://")
                .expect("the engine has a socket on this host: DOCKER_HOST=unix://...")
                .to_owned(),
            deployment: deployment.to_owned(),
            stop: AtomicBool::new(false),
            heard: Mutex::default(),
        });
        let events = Arc::clone(&shared);
        Self {
            shared,
            events: Some(thread::spawn(move || events.follow())),
        }
    }

    /// Every program that was heard so far, in the order of their beginning.
    pub fn starts(&self) -> Vec<Start> {
        let heard = self.shared.heard();
        let mut starts: Vec<Start> = heard.starts.values().cloned().collect();
        for start in &mut starts {
            start.gone_ms = heard.containers.get(&start.container).and_then(|of| of.gone_ms);
        }
        starts.sort_by_key(|start| start.begun_ms);
        starts
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(events) = self.events.take() {
            let ended = events.join();
            assert!(ended.is_ok() || thread::panicking(), "the watcher has panicked");
        }
    }
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Follows the engine's events, through every life of the engine.
    fn follow(self: Arc<Self>) {
        while !self.stopped() {
            // Events from before the subscription are sent again: none falls between the list and the stream.
            let since = now_ms() / 1000;
            if let Some(()) = self.list()
                && let Some(mut events) = self.events(since)
            {
                while let Some(event) = self.next_line(&mut events) {
                    self.take(&event);
                }
            }
            thread::sleep(AGAIN);
        }
    }

    /// Sends a request and reads the answer's head; nothing where it isn't answered with success.
    fn ask(&self, request: &str) -> Option<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(LOOK_UP)).ok()?;
        write!(stream, "{request} HTTP/1.0\r\nHost: engine\r\n\r\n").ok()?;
        let mut answer = BufReader::new(stream);
        let status = self.next_line(&mut answer)?;
        if !status.contains(" 200 ") {
            return None;
        }
        while !self.next_line(&mut answer)?.trim_end().is_empty() {}
        Some(answer)
    }

    fn filters(&self, further: Value) -> String {
        let mut filters =
            json!({ "label": [format!("mayfly.deployment={}", self.deployment), "mayfly.sandbox"] });
        if let (Some(filters), Value::Object(further)) = (filters.as_object_mut(), further) {
            filters.extend(further);
        }
        let text = filters.to_string();
        text.bytes().map(|byte| format!("%{byte:02X}")).collect()
    }

    /// Listens to what is there already.
    fn list(self: &Arc<Self>) -> Option<()> {
        let request = format!("GET /containers/json?all=1&filters={}", self.filters(json!({})));
        let mut answer = self.ask(&request)?;
        let mut text = String::new();
        while let Some(line) = self.next_line(&mut answer) {
            text.push_str(&line);
        }
        let found: Value = serde_json::from_str(&text).ok()?;
        for container in found.as_array()? {
            self.listen(container["Id"].as_str()?, &container["Labels"]);
        }
        Some(())
    }

    fn events(&self, since: i64) -> Option<BufReader<UnixStream>> {
        let filters = self.filters(json!({ "type": ["container"], "event": ["create", "die"] }));
        self.ask(&format!("GET /events?since={since}&filters={filters}"))
    }

    fn take(self: &Arc<Self>, event: &str) {
        let Ok(event) = serde_json::from_str::<Value>(event) else {
            return;
        };
        let Some(id) = event.pointer("/Actor/ID").and_then(Value::as_str) else {
            return;
        };
        match event["Action"].as_str() {
            Some("create") => self.listen(id, &event["Actor"]["Attributes"]),
            Some("die") => {
                let at = event["timeNano"]
                    .as_i64()
                    .map_or_else(now_ms, |nanos| nanos / 1_000_000);
                self.heard()
                    .containers
                    .entry(id.to_owned())
                    .or_default()
                    .gone_ms
                    .get_or_insert(at);
            }
            _ => {}
        }
    }

    /// Listens to a container from here on, unless somebody does.
    fn listen(self: &Arc<Self>, id: &str, labels: &Value) {
        let label = |name: &str| labels[name].as_str().unwrap_or_default().to_owned();
        let mut heard = self.heard();
        let container = heard.containers.entry(id.to_owned()).or_default();
        container.executor = label("mayfly.executor");
        container.session = label("mayfly.session");
        if std::mem::replace(&mut container.listened_to, true) {
            return;
        }
        let (shared, id) = (Arc::clone(self), id.to_owned());
        thread::spawn(move || {
            shared.hear(&id);
            // An engine that begins anew has it again perhaps.
            if let Some(container) = shared.heard().containers.get_mut(&id) {
                container.listened_to = false;
            }
        });
    }

    /// Hears one container until its output ends.
    fn hear(&self, id: &str) {
        let request = format!("POST /containers/{id}/attach?stream=1&stdout=1");
        let Some(mut output) = self.ask(&request) else {
            return;
        };
        let (mut said_so_far, mut head) = (Vec::new(), [0; 8]);
        // The engine's own frames: a stream's number, three zeros, the length, the bytes.
        while self.fill(&mut output, &mut head).is_some() {
            let [_, _, _, _, length @ ..] = head;
            let mut bytes = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("32 bits fit")];
            if self.fill(&mut output, &mut bytes).is_none() {
                return;
            }
            said_so_far.extend(bytes);
            self.note(id, &said_so_far);
            // What may be the beginning of a line is kept: no line is longer.
            let whole = said_so_far
                .iter()
                .rposition(|byte| char::from(*byte) == CLOSES)
                .map_or(0, |at| at + 1);
            said_so_far.drain(..whole.max(said_so_far.len().saturating_sub(LONGEST_LINE)));
        }
    }

    fn note(&self, id: &str, bytes: &[u8]) {
        if !bytes.windows(OPENS.len()).any(|part| part == OPENS.as_bytes()) {
            return;
        }
        let mut heard = self.heard();
        let (executor, session) = heard
            .containers
            .get(id)
            .map(|of| (of.executor.clone(), of.session.clone()))
            .unwrap_or_default();
        for line in said(bytes) {
            let start = heard.starts.entry(line.number.clone()).or_insert_with(|| Start {
                token: line.token,
                number: line.number,
                container: id.to_owned(),
                executor: executor.clone(),
                session: session.clone(),
                begun_ms: line.begun_ms,
                last_ms: line.now_ms,
                over: false,
                gone_ms: None,
            });
            start.last_ms = start.last_ms.max(line.now_ms);
            start.over |= line.what == "over";
        }
    }

    /// Fills a buffer, however long that takes; nothing when the stream ends or nobody listens any more.
    fn fill(&self, stream: &mut BufReader<UnixStream>, buffer: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return None,
                Ok(count) => filled += count,
                Err(error) if is_a_pause(error.kind()) && !self.stopped() => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// The next line, however long it takes; nothing when the stream ends or nobody listens any more.
    fn next_line(&self, stream: &mut BufReader<UnixStream>) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match stream.read_until(b'\n', &mut line) {
                Ok(0) if line.is_empty() => return None,
                Ok(_) => return String::from_utf8(line).ok(),
                // What had come stays in `line`.
                Err(error) if is_a_pause(error.kind()) && !self.stopped() => {}
                Err(_) => return None,
            }
        }
    }
}

fn is_a_pause(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
