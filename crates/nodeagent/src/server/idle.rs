//! The end of connections without data.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A time is checked in this many parts.
const PARTS: u32 = 4;

/// Whether data has passed since the last check.
#[derive(Clone, Default)]
pub struct Activity(Arc<AtomicBool>);

impl Activity {
    fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Completes after `timeout` without data; never if it is zero.
    pub async fn idle(&self, timeout: Duration) {
        if timeout.is_zero() {
            return std::future::pending().await;
        }
        let mut quiet_parts = 0;
        while quiet_parts < PARTS {
            env::io::sleep(timeout / PARTS).await;
            quiet_parts = if self.0.swap(false, Ordering::Relaxed) { 0 } else { quiet_parts + 1 };
        }
    }
}

/// A connection that marks its activity.
pub struct ActiveIo<T> {
    io: T,
    activity: Activity,
}

impl<T> ActiveIo<T> {
    pub fn new(io: T) -> (Self, Activity) {
        let activity = Activity::default();
        (ActiveIo { io, activity: activity.clone() }, activity)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ActiveIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, into);
        if read.is_ready() {
            self.activity.mark();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ActiveIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if written.is_ready() {
            self.activity.mark();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn data_keeps_a_connection_open() {
        let (io, _peer) = tokio::io::duplex(64);
        let (mut io, activity) = ActiveIo::new(io);
        let timeout = Duration::from_secs(8);
        let idle = activity.idle(timeout);
        tokio::pin!(idle);
        for _ in 0..4 {
            io.write_all(b"x").await.unwrap();
            assert!(env::io::timeout(timeout - Duration::from_secs(1), &mut idle).await.is_err());
        }
        assert!(env::io::timeout(timeout * 2, &mut idle).await.is_ok());
    }
}
