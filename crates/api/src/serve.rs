//! Connections: accepted up to a bound, with TLS where it is configured, and ended in order.
//!
//! A client that is slow with its handshake or its headers holds its own connection and nothing else, and not for long.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use mayfly_core::chain::Chain;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::app::Shared;

/// Longest TLS handshake, and longest wait for a request's headers.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
const HEADER_TIME: Duration = Duration::from_secs(30);
/// Most bytes of the headers of a request, and their most number.
const HEADER_BYTES: usize = 32 << 10;
const HEADERS: usize = 100;
/// Requests of one HTTP/2 connection at once.
const STREAMS: u32 = 128;
/// How long what is under way may take once the server is asked to stop.
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// A pause after a connection that could not be accepted: most often the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Failures to accept in a row after which the listener is given up.
const ACCEPT_TRIES: u32 = 600;

/// A server that has ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No connection can be accepted any more.
    #[error("the API can't accept connections")]
    Accept(#[source] std::io::Error),
    /// The part that wakes whoever waits, or the one that writes submissions, has panicked.
    #[error("a part of the API has ended")]
    Part(#[source] tokio::task::JoinError),
}

/// A certificate or key that TLS can't be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is no PEM.
    #[error("the {what} is not readable as PEM")]
    Pem {
        /// Certificate chain or key.
        what: &'static str,
        /// Why not.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// There is none in the file.
    #[error("there is no certificate in the certificate chain")]
    NoCertificate,
    /// They don't fit each other, or TLS can't use them.
    #[error("TLS can't be served with this certificate and key")]
    Unusable(#[source] rustls::Error),
}

/// TLS 1.2 and 1.3 with a certificate chain and its key, both PEM.
///
/// # Errors
/// [`TlsError`]; it never holds any of the key.
pub fn tls_config(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |what| move |source| TlsError::Pem { what, source };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(pem("certificate chain"))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(pem("private key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves until it is asked to stop.
pub(crate) async fn run(
    app: &Shared,
    router: Router,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let waking = Arc::clone(app);
    let stop_waking = CancellationToken::new();
    let asked = stop_waking.clone();
    let tasks = TaskTracker::new();
    let waiters = tasks.spawn(async move { waking.waiters.run(asked).await });
    let connections = Connections {
        router,
        tls: tls.map(TlsAcceptor::from),
        tasks: TaskTracker::new(),
        graceful: GracefulShutdown::new(),
        stop: stop.clone(),
    };
    let accepted = connections.accept(&listener, app).await;
    drop(listener);
    // What waits and what streams ends; the rest is finished.
    app.stop.cancel();
    stop.cancel();
    stop_waking.cancel();
    connections.end().await;
    app.cleaning.close();
    if tokio::time::timeout(DRAIN_TIME, app.cleaning.wait())
        .await
        .is_err()
    {
        tracing::warn!("what requests that were cut off have left is swept by another replica");
    }
    accepted.and(waiters.await.map_err(ServeError::Part))
}

struct Connections {
    router: Router,
    tls: Option<TlsAcceptor>,
    tasks: TaskTracker,
    graceful: GracefulShutdown,
    stop: CancellationToken,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener, app: &Shared) -> Result<(), ServeError> {
        let room = Arc::new(Semaphore::new(app.parts.limits.connections));
        let mut failures = 0;
        loop {
            let next = async {
                // Whoever comes while all places are taken waits in the listener's queue.
                let place = Arc::clone(&room).acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                next = next => next,
                () = self.stop.cancelled() => return Ok(()),
            };
            match accepted {
                Ok((stream, _)) => {
                    failures = 0;
                    let serving = self.connection(stream);
                    self.tasks.spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
                Err(error) if failures >= ACCEPT_TRIES => return Err(ServeError::Accept(error)),
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %Chain(&error), "a connection could not be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection, from its handshake to its end.
    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + use<> {
        let (router, tls) = (self.router.clone(), self.tls.clone());
        let watcher = self.graceful.watcher();
        let stop = self.stop.clone();
        async move {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(error = %Chain(&error), "a connection will be slower than it could be");
            }
            let Some(tls) = tls else {
                return http(router, stream, watcher).await;
            };
            let handshake = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream));
            let handshake = tokio::select! {
                done = handshake => done,
                () = stop.cancelled() => return,
            };
            match handshake {
                Ok(Ok(stream)) => http(router, stream, watcher).await,
                Ok(Err(error)) => tracing::debug!(error = %Chain(&error), "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        }
    }

    /// Waits until every connection has finished what it does, up to a bound.
    async fn end(self) {
        self.tasks.close();
        let finished = async {
            self.graceful.shutdown().await;
            self.tasks.wait().await;
        };
        if tokio::time::timeout(DRAIN_TIME, finished).await.is_err() {
            tracing::warn!("some requests took too long to be finished before the end");
        }
    }
}

async fn http(
    router: Router,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let service = TowerToHyperService::new(service.map_err(|error: Infallible| match error {}));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(HEADER_TIME))
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX));
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error = %Chain(&*error), "a connection ended in the middle");
    }
}
