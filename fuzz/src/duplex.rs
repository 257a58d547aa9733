//! A connection with a peer that has sent all of its bytes, and that reads without end.

use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
pub struct Sent(io::Cursor<Vec<u8>>);

impl Sent {
    pub fn new(bytes: &[u8]) -> Self {
        Sent(io::Cursor::new(bytes.to_vec()))
    }
}

impl AsyncRead for Sent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Sent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs a future to its end, with timers and tasks on this thread.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        // the process ends with it, and with the servers of targets in it
        static RUNTIME: ManuallyDrop<tokio::runtime::Runtime> = ManuallyDrop::new(
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
