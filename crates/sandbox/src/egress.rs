//! The job's connections: from the guest's frames to the proxy that decides about them.
//!
//! One task carries each connection:
//!
//! ```text
//! Tunnels::take -- what the job said --> carry -- duplex -- Proxy::serve -- the server
//! next_frame   <-- frames for the guest --
//! ```
//!
//! The tasks live in this struct and end with it: when the run is over, or whoever awaits it is gone, nothing is dialled
//! any more.

use std::{collections::HashMap, sync::Arc};

use mayfly_egress::Proxy;
use mayfly_protocol::{MAX_DATA, StreamId, TUNNEL_WINDOW, ToGuest, Tunnel};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::{Semaphore, mpsc},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

/// Bytes between a connection's task and the proxy.
const PIPE: usize = 64 * 1024;
/// Frames of all connections that wait for the guest; each is at most [`MAX_DATA`].
const FRAMES: usize = 4;
/// Bytes that the proxy took for which it is worth granting more.
const GRANT_FROM: u32 = TUNNEL_WINDOW / 4;

/// All connections of one run.
pub(crate) struct Tunnels {
    proxy: Arc<Proxy>,
    /// Those that a task carries, or carried a moment ago.
    open: HashMap<StreamId, Job>,
    tasks: JoinSet<StreamId>,
    frames: mpsc::Sender<ToGuest>,
    waiting: mpsc::Receiver<ToGuest>,
    next: Option<ToGuest>,
}

/// What the job says on one connection, on its way to the task that carries it.
struct Job {
    /// Unbounded: the conversation lets no more in than the window.
    said: mpsc::UnboundedSender<Said>,
    credit: Arc<Semaphore>,
    /// The job's side is gone.
    gone: CancellationToken,
}

enum Said {
    Data(Vec<u8>),
    End,
}

impl Tunnels {
    pub(crate) fn new(proxy: Arc<Proxy>) -> Self {
        let (frames, waiting) = mpsc::channel(FRAMES);
        Self {
            proxy,
            open: HashMap::new(),
            tasks: JoinSet::new(),
            frames,
            waiting,
            next: None,
        }
    }

    /// The job has made a connection.
    pub(crate) fn open(&mut self, stream: StreamId) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Some(ended) = look_at(ended) {
                self.open.remove(&ended);
            }
        }
        let (said, heard) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(TUNNEL_WINDOW as usize));
        let carrier = Carrier {
            stream,
            credit: Arc::clone(&credit),
            frames: self.frames.clone(),
            gone: CancellationToken::new(),
        };
        let gone = carrier.gone.clone();
        self.open.insert(stream, Job { said, credit, gone });
        self.tasks.spawn(carrier.carry(Arc::clone(&self.proxy), heard));
    }

    /// A frame of one, which the conversation has passed.
    pub(crate) fn take(&mut self, stream: StreamId, frame: Tunnel) {
        let Some(job) = self.open.get(&stream) else { return };
        let said = match frame {
            Tunnel::Credit(bytes) => return job.credit.add_permits(bytes as usize),
            Tunnel::Data(bytes) => Said::Data(bytes),
            Tunnel::End => Said::End,
            Tunnel::Reset => return job.gone.cancel(),
        };
        // A task that is done has said so to the guest, which stops then.
        let _: Result<(), _> = job.said.send(said);
    }

    /// Whether a frame waits for the guest.
    pub(crate) const fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Waits until one does. Cancel safe.
    pub(crate) async fn next_frame(&mut self) {
        // There is always a sender: this struct's own.
        self.next = self.waiting.recv().await;
    }

    /// Takes it.
    pub(crate) fn take_next(&mut self) -> Option<ToGuest> {
        self.next.take()
    }

    /// From now on nothing is dialled, and what is open ends.
    pub(crate) fn close(&mut self) {
        self.proxy.close();
    }

    /// Ends all of them. What was decided is on the proxy's record then.
    pub(crate) async fn end(mut self) {
        self.proxy.close();
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            look_at(ended);
        }
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.proxy.close();
    }
}

/// Which connection a task has carried to its end.
fn look_at(ended: Result<StreamId, JoinError>) -> Option<StreamId> {
    ended
        .inspect_err(|error| {
            if error.is_panic() {
                tracing::error!(%error, "a connection's task has panicked");
            }
        })
        .ok()
}

/// What carries one connection.
struct Carrier {
    stream: StreamId,
    credit: Arc<Semaphore>,
    frames: mpsc::Sender<ToGuest>,
    gone: CancellationToken,
}

impl Carrier {
    async fn carry(self, proxy: Arc<Proxy>, mut heard: mpsc::UnboundedReceiver<Said>) -> StreamId {
        let (ours, theirs) = duplex(PIPE);
        let (from_proxy, mut to_proxy) = split(ours);
        let served = proxy.serve(theirs);
        let answered = async {
            tokio::join!(served, self.answer(from_proxy));
        };
        let mut ended = false;
        let heard = self.hear(&mut heard, &mut to_proxy, &mut ended);
        tokio::select! {
            biased;
            () = self.gone.cancelled() => self.say(Tunnel::Reset).await,
            () = answered => {
                if !ended {
                    // Nobody takes what the job still says.
                    self.say(Tunnel::Reset).await;
                }
            }
            () = heard => {}
        }
        self.stream
    }

    /// Gives the proxy what the job says, for as long as anybody is there.
    async fn hear(
        &self,
        heard: &mut mpsc::UnboundedReceiver<Said>,
        to_proxy: &mut WriteHalf<DuplexStream>,
        ended: &mut bool,
    ) {
        let mut owed = 0;
        while let Some(said) = heard.recv().await {
            match said {
                Said::Data(bytes) => {
                    // A proxy that takes nothing more is about to end, and the connection with it.
                    if to_proxy.write_all(&bytes).await.is_ok() {
                        owed += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    }
                    if owed >= GRANT_FROM {
                        self.say(Tunnel::Credit(std::mem::take(&mut owed))).await;
                    }
                }
                Said::End => {
                    *ended = true;
                    // The same.
                    let _: std::io::Result<()> = to_proxy.shutdown().await;
                }
            }
        }
        std::future::pending().await
    }

    /// Gives the job what the proxy says, to its end.
    async fn answer(&self, mut from_proxy: ReadHalf<DuplexStream>) {
        let mut data = vec![0; MAX_DATA];
        loop {
            let Ok(permit) = self.credit.acquire().await else {
                return;
            };
            drop(permit);
            let most = self.credit.available_permits().min(MAX_DATA);
            match from_proxy.read(&mut data[..most]).await {
                Ok(0) | Err(_) => return self.say(Tunnel::End).await,
                Ok(got) => {
                    // This task alone takes any, so that they are there.
                    self.credit.forget_permits(got);
                    self.say(Tunnel::Data(data[..got].to_vec())).await;
                }
            }
        }
    }

    async fn say(&self, frame: Tunnel) {
        let stream = self.stream;
        // Whoever hears it is gone together with this task.
        let _: Result<(), _> = self.frames.send(ToGuest::Tunnel { stream, frame }).await;
    }
}
