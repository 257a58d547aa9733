//! One stream of a connection.

use super::frame::{self, Headers};
use super::shared::Shared;
use bytes::{Buf, Bytes};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// The largest data frame that is sent.
const DATA_LIMIT: usize = 16 << 10;

type Sending = Pin<Box<dyn Future<Output = Result<(), mpsc::error::SendError<Bytes>>> + Send + Sync>>;

/// Both directions of a stream. Dropping it resets a stream that is not complete.
pub struct Stream {
    id: u32,
    headers: Headers,
    received: mpsc::Receiver<Bytes>,
    current: Bytes,
    shared: Arc<Shared>,
    sending: Option<Sending>,
    is_write_closed: bool,
    is_read_closed: bool,
}

impl Stream {
    pub(super) fn new(
        id: u32,
        headers: Headers,
        received: mpsc::Receiver<Bytes>,
        shared: Arc<Shared>,
    ) -> Self {
        Stream {
            id,
            headers,
            received,
            current: Bytes::new(),
            shared,
            sending: None,
            is_write_closed: false,
            is_read_closed: false,
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// The headers that the opening side sent.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Ok(())) };
        let sent = ready!(sending.as_mut().poll(cx));
        self.sending = None;
        Poll::Ready(sent.map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    fn send(&mut self, bytes: &[u8], is_last: bool) {
        let mut message = Vec::with_capacity(8 + bytes.len());
        message.extend_from_slice(&frame::data_head(self.id, is_last, bytes.len()));
        message.extend_from_slice(bytes);
        let frames = self.shared.frames.clone();
        self.sending = Some(Box::pin(async move { frames.send(message.into()).await }));
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() && !self.is_read_closed {
            match ready!(self.received.poll_recv(cx)) {
                Some(bytes) => self.current = bytes,
                None => self.is_read_closed = true,
            }
        }
        let count = self.current.len().min(into.remaining());
        into.put_slice(&self.current[..count]);
        self.current.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_write_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_sent(cx))?;
        let count = bytes.len().min(DATA_LIMIT);
        if count > 0 {
            self.send(&bytes[..count], false);
            // begins the send; its end is awaited by the next call
            if let Poll::Ready(Err(why)) = self.poll_sent(cx) {
                return Poll::Ready(Err(why));
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        if !self.is_write_closed {
            self.is_write_closed = true;
            self.send(&[], true);
        }
        self.poll_sent(cx)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // further data of the peer is discarded
        self.shared.streams.lock().remove(&self.id);
        if !self.is_write_closed || self.sending.is_some() {
            let reset = frame::control(frame::RST_STREAM, 0, &[self.id, frame::CANCEL], &[]);
            // a full queue belongs to a connection that is about to break
            let _ = self.shared.frames.try_send(reset.into());
        }
    }
}
