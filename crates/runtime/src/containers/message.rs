//! Messages between agent, monitor and new processes: JSON lines over a Unix socket, with file descriptors beside them.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The largest message; an environment can be long.
const LIMIT: usize = 8 * 1024 * 1024;
const DESCRIPTORS: usize = 5;
/// Bytes that are read at once. The buffer is on the stack: a process that reads one message gets no fresh memory for it.
const PIECE: usize = 16 * 1024;

/// Makes reads and writes of a descriptor return at once.
pub fn set_nonblocking(file: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

/// Sends a message with descriptors.
pub fn send(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("a message has too many descriptors"));
    }
    let mut rest = &text[..];
    while !rest.is_empty() {
        let sent = sendmsg(&socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL);
        match sent {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::INTR) => continue,
            Err(why) => return Err(why.into()),
        }
        control.clear();
    }
    Ok(())
}

/// Sends a message by plain writes, which filters of system calls let pass.
pub fn write(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    let mut rest = &text[..];
    while !rest.is_empty() {
        rest = &rest[rustix::io::retry_on_intr(|| rustix::io::write(&socket, rest))?..];
    }
    Ok(())
}

/// Gathers the messages of one socket.
#[derive(Default)]
pub struct Inbox {
    text: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// Reads to the end of a message, so that nothing of a later one is taken.
    is_exact: bool,
}

/// The state of a socket after a read.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketState {
    Data,
    Idle,
    Closed,
}

impl Inbox {
    /// For one short message, when others may follow that something else reads.
    pub fn of_one_message() -> Self {
        Inbox { is_exact: true, ..Inbox::default() }
    }

    /// Reads the bytes and descriptors that have arrived.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<SocketState> {
        let mut buffer = [0; PIECE];
        let count = if self.is_exact { message_end(&socket, &mut buffer)? } else { PIECE };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            match recvmsg(&socket, &mut [IoSliceMut::new(&mut buffer[..count])], &mut control, flags) {
                Ok(received) => received,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(SocketState::Idle),
                Err(rustix::io::Errno::CONNRESET) => return Ok(SocketState::Closed),
                Err(why) => return Err(why.into()),
            };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.text.extend_from_slice(&buffer[..received.bytes]);
        if self.text.len() > LIMIT {
            return Err(io::Error::other("a message is too long"));
        }
        Ok(if received.bytes == 0 { SocketState::Closed } else { SocketState::Data })
    }

    /// The last descriptor that has come.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop()
    }

    /// The next whole message, with all descriptors that have come.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let Some(end) = self.text.iter().position(|it| *it == b'\n') else { return Ok(None) };
        let rest = self.text.split_off(end + 1);
        let line = std::mem::replace(&mut self.text, rest);
        Ok(Some((serde_json::from_slice(&line)?, std::mem::take(&mut self.descriptors))))
    }
}

/// The number of bytes that are there, up to the end of the first message; one if there are none or an error.
fn message_end(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    match recv(socket, &mut *buffer, RecvFlags::PEEK) {
        Ok((count, _)) => {
            let there = &buffer[..count];
            Ok(there.iter().position(|it| *it == b'\n').map_or(count, |end| end + 1).max(1))
        }
        // the read that follows has the same error
        Err(_) => Ok(1),
    }
}

/// Waits for one message on a blocking socket; `None` if the other side closed it.
pub fn wait_for<T: DeserializeOwned>(
    socket: impl AsFd,
    inbox: &mut Inbox,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    loop {
        if let Some(found) = inbox.next()? {
            return Ok(Some(found));
        }
        if inbox.receive(&socket)? == SocketState::Closed {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (one, two) = UnixStream::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let long = "x".repeat(300_000);
        let sent = std::thread::spawn({
            let long = long.clone();
            move || {
                send(&one, &long, &[writer.as_fd()]).unwrap();
                send(&one, &"second", &[]).unwrap();
            }
        });
        let mut inbox = Inbox::default();
        let (text, descriptors) = wait_for::<String>(&two, &mut inbox).unwrap().unwrap();
        assert_eq!((text, descriptors.len()), (long, 1));
        rustix::io::write(&descriptors[0], b"hello").unwrap();
        drop(descriptors);
        sent.join().unwrap();
        assert_eq!(wait_for::<String>(&two, &mut inbox).unwrap().unwrap().0, "second");
        assert!(wait_for::<String>(&two, &mut inbox).unwrap().is_none());
        let mut text = String::new();
        std::fs::File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn one_message_is_taken_and_the_next_one_stays() {
        let (one, mut two) = UnixStream::pair().unwrap();
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let long = "x".repeat(3 * PIECE);
        let sent = std::thread::spawn({
            let long = long.clone();
            move || {
                send(&one, &long, &[writer.as_fd()]).unwrap();
                send(&one, &"second", &[]).unwrap();
            }
        });
        let mut inbox = Inbox::of_one_message();
        let (text, descriptors) = wait_for::<String>(&two, &mut inbox).unwrap().unwrap();
        assert_eq!((text, descriptors.len()), (long, 1));
        sent.join().unwrap();
        let mut rest = String::new();
        two.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "\"second\"\n");
    }
}
