//! Write coalescing: frames of concurrent requests of one connection are sent together.
//!
//! An event of a watch is a frame of a kilobyte or two, and one change makes such a frame on every watch of a
//! connection. The HTTP/2 library flushes after each frame, which would cost a TLS record and a system call
//! each. So a flush is deferred to the end of the turn of the task that drives the connection. Before it
//! flushes, that task yields once to the end of the run queue, so that ready tasks of other requests add
//! their frames. No timer is involved, and an idle connection loses nothing.
//!
//! Invariants: bytes keep their order; at most [`LIMIT`] of them are buffered; large writes are passed on
//! without a copy; backpressure of the client still stops the writer.

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of a few TLS records.
const LIMIT: usize = 64 * 1024;
/// Writes from this size on get a record of their own.
const LARGE: usize = 16 * 1024;

/// The HTTP library's end of the stream.
pub(super) struct Cork<S>(Arc<Mutex<WriteBuffer<S>>>);

/// The connection task's end of the same stream. That one task uses both, so the lock is never contended.
pub(super) struct Release<S>(Arc<Mutex<WriteBuffer<S>>>);

struct WriteBuffer<S> {
    inner: S,
    bytes: BytesMut,
    /// Whether the task has yielded since the first byte was buffered.
    yielded: bool,
}

/// Both ends of a corked stream.
pub(super) fn cork<S>(inner: S) -> (Cork<S>, Release<S>) {
    let buffered = Arc::new(Mutex::new(WriteBuffer { inner, bytes: BytesMut::new(), yielded: false }));
    (Cork(buffered.clone()), Release(buffered))
}

impl<S: AsyncWrite + Unpin> WriteBuffer<S> {
    fn release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.advance(written);
        }
        self.yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Release<S> {
    /// Drives `connection` and flushes its writes at the end of each turn. A broken stream ends it. `crowded`
    /// tells whether other tasks may add frames, so that yielding is worthwhile.
    pub async fn after_each_turn<T>(
        &self,
        mut connection: Pin<&mut impl Future<Output = T>>,
        crowded: impl Fn() -> bool,
        broken: impl Fn(io::Error) -> T,
    ) -> T {
        poll_fn(|cx| {
            let turn = connection.as_mut().poll(cx);
            let mut buffered = self.0.lock();
            if turn.is_pending() && !buffered.bytes.is_empty() && !buffered.yielded && crowded() {
                buffered.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match (turn, buffered.release(cx)) {
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(broken(error)),
                (Poll::Pending, Poll::Ready(Ok(()))) => {
                    let flushed = Pin::new(&mut buffered.inner).poll_flush(cx);
                    if let Poll::Ready(Err(error)) = flushed {
                        Poll::Ready(broken(error))
                    } else {
                        Poll::Pending
                    }
                }
                (turn, _) => turn,
            }
        })
        .await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut buffered = self.0.lock();
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total >= LARGE || buffered.bytes.len() + total > LIMIT {
            ready!(buffered.release(cx))?;
        }
        if total >= LARGE {
            return Pin::new(&mut buffered.inner).poll_write_vectored(cx, slices);
        }
        for slice in slices {
            buffered.bytes.extend_from_slice(slice);
        }
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Deferred to the end of the turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffered = self.0.lock();
        ready!(buffered.release(cx))?;
        Pin::new(&mut buffered.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Counts the writes that reach it.
    struct CountingWriter {
        inner: DuplexStream,
        writes: Arc<Mutex<usize>>,
    }

    impl AsyncWrite for CountingWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            *self.writes.lock() += 1;
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
    async fn small_writes_of_a_turn_go_out_together_and_in_order() {
        let (near, mut far) = duplex(1 << 20);
        let writes = Arc::new(Mutex::new(0));
        let (mut stream, release) = cork(CountingWriter { inner: near, writes: writes.clone() });
        let mut expected = Vec::new();
        let turn = async {
            for n in 0..100u32 {
                let piece = n.to_le_bytes().repeat(50);
                stream.write_all(&piece).await.unwrap();
                stream.flush().await.unwrap();
                expected.extend(piece);
            }
            // the turn ends here, and the bytes are flushed
            let mut got = vec![0; expected.len()];
            far.read_exact(&mut got).await.unwrap();
            assert_eq!(got, expected);
            assert_eq!(*writes.lock(), 1);
            let large = vec![7; LARGE * 2];
            stream.write_all(b"small").await.unwrap();
            stream.write_all(&large).await.unwrap();
            stream.shutdown().await.unwrap();
            Ok(())
        };
        release.after_each_turn(pin!(turn), || true, Err).await.unwrap();
        drop((stream, release));
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!((&rest[..5], rest.len()), (&b"small"[..], 5 + LARGE * 2));
    }

    #[tokio::test]
    async fn no_more_than_the_limit_is_held_and_a_full_stream_stops_the_writer() {
        let (near, mut far) = duplex(8192);
        let (mut stream, release) = cork(near);
        let writer = async {
            for _ in 0..100 {
                stream.write_all(&[1; 4096]).await.unwrap();
                assert!(stream.0.lock().bytes.len() <= LIMIT);
            }
            stream.shutdown().await
        };
        let reader = async {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            got.len()
        };
        let writer = pin!(writer);
        let (wrote, got) = tokio::join!(release.after_each_turn(writer, || true, Err), reader);
        wrote.unwrap();
        assert_eq!(got, 100 * 4096);
    }

    #[tokio::test]
    async fn a_broken_stream_ends_the_connection() {
        let (near, far) = duplex(64);
        let (mut stream, release) = cork(near);
        drop(far);
        let turn = async {
            stream.write_all(b"into the void").await.unwrap();
            std::future::pending::<()>().await;
            Ok(())
        };
        assert!(release.after_each_turn(pin!(turn), || true, Err).await.is_err());
    }
}
