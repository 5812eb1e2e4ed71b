//! An engine that lies: a proxy in front of the real one that changes one value on its way.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use mayfly_protocol::{Decoder, FromGuest, HEADER_BYTES, ReadyReport, ToGuest};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream, unix},
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) type Change = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// What the proxy changes.
#[derive(Clone)]
pub(crate) enum Lie {
    /// Nothing: what is then refused is refused for the proxy's own faults.
    None,
    /// The request that creates a sandbox.
    Create(Change),
    /// What the engine says of a container.
    Inspect(Change),
    /// The guest's report.
    Ready(Change),
    /// All that the guest says: it never comes.
    Silence,
    /// The request, and then what the engine and the guest say of it.
    Weak {
        create: Change,
        inspect: Option<Change>,
        ready: Option<Change>,
    },
}

/// A running proxy.
pub(crate) struct Proxy {
    pub(crate) address: String,
    shared: Arc<Shared>,
    _folder: tempfile::TempDir,
    _stop: DropGuard,
}

struct Shared {
    engine: PathBuf,
    lie: Mutex<Lie>,
    /// What was last asked for, last said of it, and last reported: honest, before any change.
    seen: Mutex<Seen>,
    /// Bytes that went to guests.
    to_guests: Mutex<Vec<u8>>,
    /// Containers that the engine was asked to start.
    starts: AtomicUsize,
    /// Cuts the streams of attached containers.
    cut: CancellationToken,
}

#[derive(Default, Clone)]
pub(crate) struct Seen {
    pub(crate) create: Value,
    pub(crate) inspect: Value,
    pub(crate) ready: Value,
}

impl Proxy {
    /// Listens in a folder of its own, in front of the engine of the tests.
    pub(crate) async fn start() -> Self {
        let engine =
            std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
        Self::before(&engine).await
    }

    /// The same in front of this engine.
    pub(crate) async fn before(engine: &str) -> Self {
        let engine = engine
            .strip_prefix("unix://")
            .expect("the tests' engine has a socket")
            .into();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared {
            engine,
            lie: Mutex::new(Lie::None),
            seen: Mutex::default(),
            to_guests: Mutex::default(),
            starts: AtomicUsize::new(0),
            cut: CancellationToken::new(),
        });
        let stop = CancellationToken::new();
        let tasks = tokio_util::task::TaskTracker::new();
        let (serving, token) = (Arc::clone(&shared), stop.clone());
        tasks.clone().spawn(async move {
            while let Some(Ok((client, _))) = token.run_until_cancelled(listener.accept()).await {
                let shared = Arc::clone(&serving);
                tasks.spawn(async move {
                    if let Err(error) = serve(&shared, client).await {
                        eprintln!("proxy: {error}");
                    }
                });
            }
        });
        Self {
            address: format!("unix://{}", socket.display()),
            shared,
            _folder: folder,
            _stop: stop.drop_guard(),
        }
    }

    /// From now on this lie is told, and the log of what guests are sent begins anew.
    pub(crate) fn tell(&self, lie: Lie) {
        *self.shared.lie.lock().unwrap() = lie;
        self.shared.to_guests.lock().unwrap().clear();
        self.shared.starts.store(0, Ordering::SeqCst);
    }

    /// How many containers the engine was asked to start since the lie began.
    pub(crate) fn starts(&self) -> usize {
        self.shared.starts.load(Ordering::SeqCst)
    }

    /// Cuts the streams of all attached containers, from both ends.
    pub(crate) fn cut(&self) {
        self.shared.cut.cancel();
    }

    /// The truth about the last sandbox.
    pub(crate) fn seen(&self) -> Seen {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Names of the frames that guests were sent since the lie began, `alive` aside.
    pub(crate) fn frames_to_guests(&self) -> Vec<&'static str> {
        let bytes = self.shared.to_guests.lock().unwrap().clone();
        let (mut decoder, mut rest) = (Decoder::<ToGuest>::new(), &bytes[..]);
        let mut names = Vec::new();
        while let Some(frame) = decoder.decode(&mut rest).unwrap() {
            if frame != ToGuest::Alive {
                names.push(frame.name());
            }
        }
        names
    }
}

/// The head of a request or an answer, and its body without any encoding of the transfer.
struct Message {
    first_line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Message {
    fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self
            .headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    fn has_upgrade(&self) -> bool {
        self.header("upgrade").is_some()
    }

    /// As it goes on: with its length, and with this word about the connection.
    fn bytes(&self, connection: &str) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first_line);
        for (name, value) in &self.headers {
            let replaced = ["connection", "content-length", "transfer-encoding"];
            if !replaced.contains(&name.to_lowercase().as_str()) {
                text += &format!("{name}: {value}\r\n");
            }
        }
        text += &format!("Connection: {connection}\r\n");
        if !self.has_upgrade() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut bytes = (text + "\r\n").into_bytes();
        bytes.extend(&self.body);
        bytes
    }
}

/// Reads one message; `None` where the other end has nothing more to say.
async fn read_message(
    from: &mut (impl AsyncReadExt + Unpin),
    is_answer: bool,
) -> io::Result<Option<Message>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match from.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let mut lines = head.trim_end().lines();
    let mut message = Message {
        first_line: lines.next().unwrap_or_default().to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: Vec::new(),
    };
    if message.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut size = Vec::new();
            while !size.ends_with(b"\r\n") {
                size.push(from.read_u8().await?);
            }
            let size = String::from_utf8(size).map_err(io::Error::other)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            from.read_exact(&mut chunk).await?;
            message.body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = message.header("content-length") {
        message.body = vec![0; length.parse().map_err(io::Error::other)?];
        from.read_exact(&mut message.body).await?;
    } else if is_answer && !message.has_upgrade() && !message.first_line.contains(" 204 ") {
        from.read_to_end(&mut message.body).await?;
    }
    Ok(Some(message))
}

/// Serves one connection: each request on a connection of its own to the engine.
async fn serve(shared: &Shared, client: UnixStream) -> io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let mut from_client = BufReader::new(from_client);
    while let Some(mut request) = read_message(&mut from_client, false).await? {
        let upgrade = request.has_upgrade();
        shared.change_request(&mut request);
        let (from_engine, mut to_engine) = UnixStream::connect(&shared.engine).await?.into_split();
        let mut from_engine = BufReader::new(from_engine);
        let connection = if upgrade { "Upgrade" } else { "close" };
        to_engine.write_all(&request.bytes(connection)).await?;
        let Some(mut answer) = read_message(&mut from_engine, true).await? else {
            return Ok(());
        };
        if upgrade && answer.has_upgrade() {
            to_client.write_all(&answer.bytes("Upgrade")).await?;
            return shared.relay(from_client, to_client, from_engine, to_engine).await;
        }
        shared.change_answer(&request, &mut answer);
        to_client.write_all(&answer.bytes("keep-alive")).await?;
    }
    Ok(())
}

impl Shared {
    fn change_request(&self, request: &mut Message) {
        if request.first_line.contains("/start HTTP/") {
            self.starts.fetch_add(1, Ordering::SeqCst);
        }
        let creates = request.first_line.contains("/containers/create?name=mayfly-");
        if !creates || request.first_line.contains("name=mayfly-guest-holder") {
            return;
        }
        let mut body: Value = serde_json::from_slice(&request.body).unwrap();
        self.seen.lock().unwrap().create = body.clone();
        if let Lie::Create(change) | Lie::Weak { create: change, .. } = &*self.lie.lock().unwrap() {
            change(&mut body);
            request.body = serde_json::to_vec(&body).unwrap();
        }
    }

    fn change_answer(&self, request: &Message, answer: &mut Message) {
        let inspects = request.first_line.starts_with("GET ")
            && request.first_line.contains("/containers/")
            && request.first_line.contains("/json")
            // A list is nobody's inspect.
            && !request.first_line.contains("/containers/json")
            && answer.first_line.contains(" 200 ");
        if !inspects {
            return;
        }
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        self.seen.lock().unwrap().inspect = body.clone();
        if let Lie::Inspect(change)
        | Lie::Weak {
            inspect: Some(change),
            ..
        } = &*self.lie.lock().unwrap()
        {
            change(&mut body);
            answer.body = serde_json::to_vec(&body).unwrap();
        }
    }

    /// Both directions of an attached container, the guest's first frame changed.
    async fn relay(
        &self,
        mut from_client: BufReader<unix::OwnedReadHalf>,
        mut to_client: unix::OwnedWriteHalf,
        mut from_engine: BufReader<unix::OwnedReadHalf>,
        mut to_engine: unix::OwnedWriteHalf,
    ) -> io::Result<()> {
        let to_guest = async {
            let mut buffer = vec![0; 65_536];
            loop {
                let read = from_client.read(&mut buffer).await.unwrap_or(0);
                if read == 0 {
                    return;
                }
                self.to_guests.lock().unwrap().extend(&buffer[..read]);
                if to_engine.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        };
        let silence = matches!(&*self.lie.lock().unwrap(), Lie::Silence);
        let from_guest = async {
            if silence {
                std::future::pending::<()>().await;
            }
            if let Some(first) = self.changed_report(&mut from_engine).await
                && to_client.write_all(&first).await.is_ok()
            {
                tokio::io::copy(&mut from_engine, &mut to_client).await.ok();
            }
        };
        // Either end hangs up: so do we, at both.
        tokio::select! { () = to_guest => {}, () = from_guest => {}, () = self.cut.cancelled() => {} }
        Ok(())
    }

    /// The engine's frames that hold the guest's report, as one frame that holds what becomes of it.
    async fn changed_report(&self, from_engine: &mut BufReader<unix::OwnedReadHalf>) -> Option<Vec<u8>> {
        let mut stdout = Vec::new();
        let report = loop {
            let mut header = [0; 8];
            from_engine.read_exact(&mut header).await.ok()?;
            let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            from_engine.read_exact(&mut payload).await.ok()?;
            if header[0] != 1 {
                return Some([&header[..], &payload].concat());
            }
            stdout.extend(payload);
            let (mut decoder, mut rest) = (Decoder::<FromGuest>::new(), &stdout[..]);
            match decoder.decode(&mut rest).ok()? {
                Some(FromGuest::Ready(report)) => {
                    stdout = rest.to_vec();
                    break report;
                }
                Some(_) => return None,
                None => {}
            }
        };
        let mut document = serde_json::to_value(*report).unwrap();
        self.seen.lock().unwrap().ready = document.clone();
        if let Lie::Ready(change)
        | Lie::Weak {
            ready: Some(change), ..
        } = &*self.lie.lock().unwrap()
        {
            change(&mut document);
        }
        let report: ReadyReport = serde_json::from_value(document).unwrap();
        let mut frames = Vec::new();
        FromGuest::Ready(Box::new(report)).encode(&mut frames).unwrap();
        assert!(frames.len() > HEADER_BYTES);
        frames.extend(stdout);
        let length = u32::try_from(frames.len()).unwrap();
        Some([&[1, 0, 0, 0], &length.to_be_bytes()[..], &frames].concat())
    }
}
