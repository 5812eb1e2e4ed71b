//! A resolver, a dialler and servers that are nowhere but here.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_egress::{
    Caps, CheckedAddress, Credentials, Decision, Dialler, HostName, Outgoing, Policy, Proxy, Reason, Resolver,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::timeout,
};
use tokio_util::task::TaskTracker;

/// Longest wait for anything that has to come.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Names and their addresses: each question gets the next answer, and the last one again.
#[derive(Default)]
struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_string());
        let mut answers = self.answers.lock().unwrap();
        let answers = answers.get_mut(name.as_str()).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 {
            answers.remove(0)
        } else {
            answers[0].clone()
        })
    }
}

/// Hands each connection to the test.
struct Switchboard {
    dialled: mpsc::UnboundedSender<(SocketAddr, DuplexStream)>,
    dead: Mutex<Vec<IpAddr>>,
}

#[async_trait]
impl Dialler for Switchboard {
    async fn dial(&self, address: CheckedAddress) -> io::Result<Box<dyn Outgoing>> {
        if self.dead.lock().unwrap().contains(&address.get().ip()) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, servers) = duplex(64 * 1024);
        self.dialled
            .send((address.get(), servers))
            .map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(Box::new(ours))
    }
}

pub(crate) struct World {
    pub(crate) proxy: Arc<Proxy>,
    names: Arc<Names>,
    switchboard: Arc<Switchboard>,
    dialled: mpsc::UnboundedReceiver<(SocketAddr, DuplexStream)>,
    pub(crate) tasks: TaskTracker,
}

impl World {
    /// With these rules and the usual bounds.
    pub(crate) fn new(rules: &[&str]) -> Self {
        Self::with(rules, |_| ())
    }

    pub(crate) fn with(rules: &[&str], change: impl FnOnce(&mut Caps)) -> Self {
        let mut caps = Caps::usual();
        change(&mut caps);
        let own = vec!["198.41.0.0/24".parse().unwrap()];
        let policy = Policy::parse(rules.iter().copied(), own).unwrap();
        let names = Arc::new(Names::default());
        let (sender, dialled) = mpsc::unbounded_channel();
        let switchboard = Arc::new(Switchboard {
            dialled: sender,
            dead: Mutex::default(),
        });
        let proxy = Proxy::new(
            policy,
            caps,
            Arc::clone(&names) as _,
            Arc::clone(&switchboard) as _,
        );
        Self {
            proxy: Arc::new(proxy),
            names,
            switchboard,
            dialled,
            tasks: TaskTracker::new(),
        }
    }

    /// And with all of these credentials but those that the run may not use.
    pub(crate) fn with_credentials(mut self, credentials: &Credentials, not: &[&str]) -> Self {
        let proxy = Arc::into_inner(self.proxy).expect("nobody has connected");
        self.proxy = Arc::new(proxy.with_credentials(credentials, |name| !not.contains(&name)));
        self
    }

    /// This name has these addresses.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let mut answers = self.names.answers.lock().unwrap();
        answers.entry(name.to_owned()).or_default().push(addresses);
    }

    /// Nobody answers at this address.
    pub(crate) fn dead(&self, address: &str) {
        self.switchboard
            .dead
            .lock()
            .unwrap()
            .push(address.parse().unwrap());
    }

    /// A connection of the job's.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (job, ours) = duplex(64 * 1024);
        let proxy = Arc::clone(&self.proxy);
        self.tasks.spawn(async move { proxy.serve(ours).await });
        job
    }

    /// Says this on a connection of its own, and gives all that is answered.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut job = self.connect();
        job.write_all(request.as_bytes()).await.unwrap();
        rest(&mut job).await
    }

    /// The next connection that is dialled.
    pub(crate) async fn server(&mut self) -> (String, DuplexStream) {
        let (address, stream) = timeout(SOON, self.dialled.recv()).await.unwrap().unwrap();
        (address.to_string(), stream)
    }

    /// The addresses that were dialled and that nobody has asked about.
    pub(crate) fn dialled(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.dialled.try_recv().ok())
            .map(|(address, _)| address.to_string())
            .collect()
    }

    /// The names that were looked up.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.names.asked.lock().unwrap().clone()
    }

    /// All decisions, once every connection has ended.
    pub(crate) async fn decisions(&self) -> Vec<Decision> {
        self.tasks.close();
        timeout(SOON, self.tasks.wait()).await.unwrap();
        self.tasks.reopen();
        self.proxy.record().decisions
    }

    pub(crate) async fn reasons(&self) -> Vec<Reason> {
        let decisions = self.decisions().await;
        decisions.iter().map(|decision| decision.reason).collect()
    }
}

/// All that comes up to the end.
pub(crate) async fn rest(from: &mut DuplexStream) -> String {
    let mut all = Vec::new();
    timeout(SOON, from.read_to_end(&mut all)).await.unwrap().unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// What comes up to this, at least.
pub(crate) async fn until(from: &mut DuplexStream, end: &str) -> String {
    let mut all = Vec::new();
    let reading = async {
        while !all.ends_with(end.as_bytes()) {
            all.push(from.read_u8().await.unwrap());
        }
    };
    timeout(SOON, reading).await.unwrap();
    String::from_utf8(all).unwrap()
}

/// Says what is missing, also to whoever counts that.
pub(crate) fn skip(why: &str) {
    use std::io::Write as _;
    let mut said: Box<dyn io::Write> = match std::env::var_os("MAYFLY_SKIP_LOG") {
        Some(log) => Box::new(
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(log)
                .unwrap(),
        ),
        None => Box::new(io::stderr()),
    };
    writeln!(said, "{}: {why}", env!("CARGO_CRATE_NAME")).unwrap();
}
