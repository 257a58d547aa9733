//! A connection to a port of a pod that tells when the port has ended it.

use crate::PortStream;
use futures_util::FutureExt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// See the module.
struct PortConnection {
    stream: TcpStream,
    /// Dropped at the end of what the port sends.
    open: Option<oneshot::Sender<()>>,
}

/// The stream of a connection.
pub fn port_stream(stream: TcpStream) -> PortStream {
    let (open, ended) = oneshot::channel();
    let data = Box::new(PortConnection { stream, open: Some(open) });
    // the sender is only ever dropped
    PortStream { data, end: ended.map(|_| Ok(())).boxed() }
}

impl AsyncRead for PortConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            this.open = None;
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for PortConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_stream_ends_with_what_the_port_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let PortStream { mut data, mut end } = port_stream(client);
        data.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).await.unwrap();
        assert!((&mut end).now_or_never().is_none(), "the port has not ended it");
        server.write_all(b"bye").await.unwrap();
        drop(server);
        let mut text = String::new();
        data.read_to_string(&mut text).await.unwrap();
        end.await.unwrap();
        assert_eq!(text, "bye");
    }
}
