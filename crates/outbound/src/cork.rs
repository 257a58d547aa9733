//! Write coalescing of an HTTP/2 connection: the head and the body of a request are sent together.
//!
//! The HTTP/2 library may send the body of a request only after the connection has taken its head, and flushes after the
//! head: a request would cost two system calls, two TLS records and two wakes of the server. So the first flush after a
//! write yields once to the end of the run queue, where the body and ready requests of other tasks are, and the second
//! one sends all. No timer is involved.
//!
//! Invariants: bytes keep their order; at most [`LIMIT`] of them are buffered; large writes are passed on without a copy;
//! no byte stays behind a flush that has completed.

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The size of one TLS record.
const LIMIT: usize = 16 * 1024;
/// Writes from this size on are passed on.
const LARGE: usize = 4 * 1024;

/// See the module.
pub(crate) struct Cork<S> {
    inner: S,
    bytes: BytesMut,
    /// Whether a flush has yielded since the first byte was buffered.
    has_yielded: bool,
}

impl<S> Cork<S> {
    pub(crate) fn new(inner: S) -> Self {
        Cork { inner, bytes: BytesMut::new(), has_yielded: false }
    }
}

impl<S: Write + Unpin> Cork<S> {
    fn release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.advance(written);
        }
        self.has_yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: Read + Unpin> Read for Cork<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, into)
    }
}

impl<S: Write + Unpin> Write for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_passed_on = total >= LARGE;
        if is_passed_on || this.bytes.len() + total > LIMIT {
            ready!(this.release(context))?;
        }
        if is_passed_on {
            return Pin::new(&mut this.inner).poll_write_vectored(context, slices);
        }
        for slice in slices {
            this.bytes.extend_from_slice(slice);
        }
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.bytes.is_empty() && !this.has_yielded {
            this.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.release(context))?;
        Pin::new(&mut this.inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.release(context))?;
        Pin::new(&mut this.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Counts the writes that reach it, and takes no more than `most` bytes of each.
    struct CountingWriter {
        inner: TokioIo<DuplexStream>,
        writes: Arc<AtomicUsize>,
        most: usize,
    }

    impl Read for CountingWriter {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_read(context, into)
        }
    }

    impl Write for CountingWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            let most = self.most.min(bytes.len());
            Pin::new(&mut self.inner).poll_write(context, &bytes[..most])
        }
        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(context)
        }
        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(context)
        }
    }

    fn corked(most: usize) -> (TokioIo<Cork<CountingWriter>>, DuplexStream, Arc<AtomicUsize>) {
        let (near, far) = duplex(1 << 20);
        let writes = Arc::new(AtomicUsize::new(0));
        let writer = CountingWriter { inner: TokioIo::new(near), writes: writes.clone(), most };
        (TokioIo::new(Cork::new(writer)), far, writes)
    }

    #[tokio::test]
    async fn writes_of_ready_tasks_are_sent_together() {
        let (stream, mut far, writes) = corked(usize::MAX);
        let stream = Arc::new(tokio::sync::Mutex::new(stream));
        stream.lock().await.write_all(b"head").await.unwrap();
        let (flushed, body) = (stream.clone(), stream.clone());
        let flush = async {
            // the lock is free between the polls, as the connection is between those of its task
            std::future::poll_fn(|context| {
                let mut stream = flushed.try_lock().unwrap();
                tokio::io::AsyncWrite::poll_flush(Pin::new(&mut *stream), context)
            })
            .await
        };
        let body = async { body.lock().await.write_all(b"body").await };
        let (flushed, written) = tokio::join!(flush, body);
        flushed.and(written).unwrap();
        let mut got = [0; 8];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!((&got, writes.load(Ordering::Relaxed)), (b"headbody", 1));
        // the next write waits for the next flush
        let mut stream = stream.lock().await;
        stream.write_all(b"next").await.unwrap();
        assert_eq!(writes.load(Ordering::Relaxed), 1);
        stream.flush().await.unwrap();
        assert_eq!(writes.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn bytes_keep_their_order_whatever_their_number() {
        let (mut stream, mut far, _) = corked(1000);
        let mut expected = Vec::new();
        for (size, byte) in [3, 5000, LARGE, 100, LIMIT * 2, 7].into_iter().zip(1u8..) {
            let piece = vec![byte; size];
            stream.write_all(&piece).await.unwrap();
            assert!(stream.inner().bytes.len() <= LIMIT);
            expected.extend(piece);
        }
        for byte in 0..=u8::MAX {
            stream.write_all(&[byte; 999]).await.unwrap();
            assert!(stream.inner().bytes.len() <= LIMIT);
            expected.extend([byte; 999]);
        }
        stream.shutdown().await.unwrap();
        drop(stream);
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
    }

    #[tokio::test]
    async fn a_flush_of_a_broken_stream_fails() {
        let (mut stream, far, _) = corked(usize::MAX);
        drop(far);
        stream.write_all(b"into the void").await.unwrap();
        assert!(stream.flush().await.is_err());
    }
}
