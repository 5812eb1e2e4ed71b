//! One run's proxy.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Caps, Credentials, EgressRecord, Policy, Reason, connect,
    head::{self, RequestHead},
    outgoing::Shared,
    plain,
    record::Entry,
    reply,
    seams::{Dialler, Resolver},
};

/// Bytes that are read from the job at once.
const BUFFER: usize = 32 * 1024;
/// What a job that is still talking may say and how long, after it was refused: a connection that is closed at once
/// takes the answer with it.
const LINGER_BYTES: u64 = 64 * 1024;
const LINGER: Duration = Duration::from_secs(1);
/// How long a connection waits for one of the others to end, where there are as many as there may be: whoever closes one
/// and opens the next at once is not one too many.
const PLACE: Duration = Duration::from_secs(1);

/// What one run may reach, and what it has reached.
///
/// A proxy is made for one run and closed with it: [`Proxy::close`] ends every connection, and nothing is looked up or
/// dialled from then on.
pub struct Proxy {
    shared: Shared,
    connections: Arc<Semaphore>,
    over: CancellationToken,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("caps", &self.shared.caps)
            .finish_non_exhaustive()
    }
}

/// The job's side of a connection.
pub(crate) struct Client<S> {
    pub(crate) reader: BufReader<ReadHalf<S>>,
    pub(crate) writer: WriteHalf<S>,
}

impl Proxy {
    /// A proxy that lets through what the policy names.
    #[must_use]
    pub fn new(policy: Policy, caps: Caps, resolver: Arc<dyn Resolver>, dialler: Arc<dyn Dialler>) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(caps.connections)),
            shared: Shared::new(policy, caps, resolver, dialler),
            over: CancellationToken::new(),
        }
    }

    /// The same, with those of an executor's credentials that the run may use, by their names.
    #[must_use]
    pub fn with_credentials(mut self, credentials: &Credentials, may_use: impl Fn(&str) -> bool) -> Self {
        self.shared.credentials = Some(credentials.pick(may_use));
        self
    }

    /// Serves one connection of the job's, to its end or the run's.
    ///
    /// # Cancel safety
    /// Dropped, it dials nothing more, and what it was at is on the record as cut.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(&self, stream: S) {
        let (reader, writer) = split(stream);
        let client = Client {
            reader: BufReader::with_capacity(BUFFER, reader),
            writer,
        };
        // Nobody waits for what a run that is over still had to say.
        self.over.run_until_cancelled(self.converse(client)).await;
    }

    /// The run is over: every connection ends, and nothing is dialled from now on.
    pub fn close(&self) {
        self.over.cancel();
    }

    /// All that was decided by now. A connection that still runs is on it once it has ended.
    #[must_use]
    pub fn record(&self) -> EgressRecord {
        self.shared.ledger.record()
    }

    async fn converse<S: AsyncRead + AsyncWrite + Send + Unpin>(&self, mut client: Client<S>) {
        let shared = &self.shared;
        let Ok(Ok(_place)) = timeout(PLACE, self.connections.acquire()).await else {
            let entry = shared.ledger.begin();
            return client.refuse(entry, Reason::TooManyConnections, "").await;
        };
        loop {
            let mut bytes = Vec::new();
            let reading = head::read(&mut client.reader, shared.caps.head_bytes, &mut bytes);
            let whole = match timeout(shared.caps.head_time, reading).await {
                Ok(Ok(true)) => true,
                // The job is done with this connection, or keeps it for nothing.
                Ok(Ok(false)) => return,
                Err(_) if bytes.is_empty() => return,
                Ok(Err(_)) | Err(_) => false,
            };
            let mut entry = shared.ledger.begin();
            let head = match RequestHead::parse(&bytes) {
                Ok(head) if whole => head,
                _ => return client.refuse(entry, Reason::BadRequest, "").await,
            };
            entry.asks(&head.method, &head.target, None);
            if let Err(reason) = shared.count_request() {
                return client.refuse(entry, reason, "").await;
            }
            if head.method == "CONNECT" {
                return connect::serve(shared, client, &head, entry).await;
            }
            match plain::serve(shared, client, &head, entry).await {
                Some(next) => client = next,
                None => return,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Client<S> {
    /// Says why not, and ends the connection.
    pub(crate) async fn refuse(self, mut entry: Entry, reason: Reason, target: &str) {
        entry.is(reason);
        drop(entry);
        self.end_with(&reply::refusal(reason, target)).await;
    }

    /// Says this, and ends the connection.
    pub(crate) async fn end_with(mut self, last_words: &[u8]) {
        let said = async {
            self.writer.write_all(last_words).await?;
            self.writer.shutdown().await?;
            let mut ignored = [0; 1024];
            let mut reader = self.reader.take(LINGER_BYTES);
            while reader.read(&mut ignored).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        // A job that doesn't listen has the record's word alone.
        let _: Result<_, _> = timeout(LINGER, said).await;
    }
}
