//! Bytes and time of one request.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use crate::{Caps, Reason, record::Counts, seams::Outgoing};

/// Looks at the counts in each of so many parts of the time without a byte.
const LOOKS: u32 = 4;

/// What a run may still move. Each connection may pass it by what it has in hand.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn spend(&self, bytes: u64) {
        // The function always gives a number, so that it never fails.
        let spent = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(bytes))
        });
        debug_assert!(spent.is_ok());
    }

    fn check(&self) -> io::Result<()> {
        if self.is_used_up() {
            Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the run has used up its bytes",
            ))
        } else {
            Ok(())
        }
    }
}

/// A connection to a server, whose bytes are counted.
pub(crate) struct Metered {
    io: Box<dyn Outgoing>,
    budget: Arc<Budget>,
    counts: Arc<Counts>,
}

impl Metered {
    pub(crate) const fn new(io: Box<dyn Outgoing>, budget: Arc<Budget>, counts: Arc<Counts>) -> Self {
        Self { io, budget, counts }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.budget.check()?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let bytes = (buf.filled().len() - before) as u64;
        self.counts.received.fetch_add(bytes, Ordering::Relaxed);
        self.budget.spend(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.budget.check()?;
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        self.counts.sent.fetch_add(written as u64, Ordering::Relaxed);
        self.budget.spend(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Does something for as long as bytes move, and no longer than a request may take.
///
/// # Errors
/// [`Reason::Idle`], [`Reason::TimeUp`].
pub(crate) async fn watched<T>(
    work: impl Future<Output = T>,
    counts: &Counts,
    caps: &Caps,
) -> Result<T, Reason> {
    let idle = async {
        let (mut last, mut still) = (counts.both(), 0);
        while still < LOOKS {
            sleep(caps.idle_time / LOOKS).await;
            let now = counts.both();
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = idle => Err(Reason::Idle),
        () = sleep(caps.request_time) => Err(Reason::TimeUp),
    }
}
