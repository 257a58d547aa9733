//! Pipes and terminals as streams of bytes.

use super::message::set_nonblocking;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// See the module. `shutdown` closes it.
pub struct DescriptorStream {
    file: Option<AsyncFd<OwnedFd>>,
}

/// Waits until a read of a descriptor returns at once, as that of a process does when it has ended.
#[expect(
    deprecated,
    reason = "it is unsound with types that give out another descriptor later, which this one is not"
)]
pub async fn wait_until_readable(file: OwnedFd) -> io::Result<()> {
    AsyncFd::with_interest(file, Interest::READABLE)?.readable().await.map(drop)
}

impl DescriptorStream {
    #[expect(
        deprecated,
        reason = "it is unsound with types that give out another descriptor later, which this one is not"
    )]
    pub fn new(file: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&file)?;
        Ok(DescriptorStream { file: Some(AsyncFd::new(file)?) })
    }
}

impl AsyncRead for DescriptorStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(file) = &self.get_mut().file else { return Poll::Ready(Ok(())) };
        loop {
            let mut guard = ready!(file.poll_read_ready(context))?;
            let read = guard.try_io(|file| Ok(rustix::io::read(file, buffer.initialize_unfilled())?));
            match read {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // a terminal says so when its last user is gone
                Ok(Err(why)) if why.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(why)) => return Poll::Ready(Err(why)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for DescriptorStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let Some(file) = &self.get_mut().file else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            let mut guard = ready!(file.poll_write_ready(context))?;
            if let Ok(written) = guard.try_io(|file| Ok(rustix::io::write(file, data)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().file = None;
        Poll::Ready(Ok(()))
    }
}
