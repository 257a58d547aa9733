//! Gathers small writes: what the requests of one connection have to say at the same time goes out together.
//!
//! An event of a watch is a frame of a kilobyte or two, and one change makes such a frame on every watch of a
//! connection. Each frame is asked to be flushed on its own; flushed on its own it would cost a TLS record and
//! a system call. So the first flush after a write only steps back once: the connection's task goes to the end
//! of the run queue, the tasks of the other requests that are ready run before it, and then all that has come
//! together is written at once. Nothing waits for time to pass, and an idle connection loses nothing.
//!
//! What always holds: bytes keep their order; at most [`LIMIT`] of them are held; large writes are passed on
//! without being copied.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// As much as a few TLS records.
const LIMIT: usize = 64 * 1024;
/// Writes from this size on are worth a record of their own.
const LARGE: usize = 16 * 1024;

pub(super) struct Cork<S> {
    inner: S,
    held: BytesMut,
    /// Whether the flush under way has stepped back already.
    stepped_back: bool,
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    pub fn new(inner: S) -> Self {
        Cork { inner, held: BytesMut::new(), stepped_back: false }
    }

    fn release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total >= LARGE || self.held.len() + total > LIMIT {
            ready!(self.release(cx))?;
        }
        if total >= LARGE {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        }
        for slice in slices {
            self.held.extend_from_slice(slice);
        }
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() && !self.stepped_back {
            self.stepped_back = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.release(cx))?;
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.stepped_back = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Counts the writes that reach it.
    struct Counted<S> {
        inner: S,
        writes: usize,
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.writes += 1;
            Pin::new(&mut self.inner).poll_write(cx, bytes)
        }
        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }
        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn small_writes_go_out_together_and_in_order() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut cork = Cork::new(Counted { inner: near, writes: 0 });
        let mut expected = Vec::new();
        for n in 0..100u32 {
            let piece = n.to_le_bytes().repeat(50);
            cork.write_all(&piece).await.unwrap();
            expected.extend(piece);
        }
        assert_eq!(cork.inner.writes, 0);
        cork.flush().await.unwrap();
        assert_eq!(cork.inner.writes, 1);
        let large = vec![7; LARGE * 2];
        cork.write_all(b"small").await.unwrap();
        cork.write_all(&large).await.unwrap();
        cork.shutdown().await.unwrap();
        expected.extend(b"small");
        expected.extend(&large);
        drop(cork);
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, expected);
    }

    #[tokio::test]
    async fn no_more_than_the_limit_is_held() {
        let (near, mut far) = tokio::io::duplex(1 << 22);
        let mut cork = Cork::new(near);
        for _ in 0..100 {
            cork.write_all(&[1; 4096]).await.unwrap();
            assert!(cork.held.len() <= LIMIT);
        }
        cork.flush().await.unwrap();
        drop(cork);
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len(), 100 * 4096);
    }
}
