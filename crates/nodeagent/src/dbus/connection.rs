//! A connection to a bus over its socket. Calls block: they are few, and short.

use super::message::{Message, MessageKind, Method, Value, decode, encode_call};
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The socket of the system bus.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// The bus itself.
pub const BUS: Method<'static> = Method {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    member: "",
};
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest message that is read.
const MAX_MESSAGE: usize = 1 << 20;
/// The longest line of the authentication.
const MAX_LINE: usize = 4096;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the bus cannot be used: {0}")]
    Io(#[from] io::Error),
    #[error("{name}: {message}")]
    Refused { name: String, message: String },
}

impl CallError {
    /// Whether it is the error of this name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, CallError::Refused { name: it, .. } if it == name)
    }
}

/// See the module.
pub struct Bus {
    stream: UnixStream,
    /// Bytes that were received and not read.
    bytes: VecDeque<u8>,
    /// Descriptors that were received and not taken.
    descriptors: VecDeque<OwnedFd>,
    serial: u32,
}

impl Bus {
    /// Connects as the user of this process.
    pub fn connect(socket: &Path) -> Result<Self, CallError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut bus = Bus::new(stream);
        // the user id in decimal digits, each as two hexadecimal ones
        let uid = rustix::process::getuid().as_raw().to_string();
        let id: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
        let line = bus.command(&format!("\0AUTH EXTERNAL {id}\r\n"))?;
        if !line.starts_with("OK ") {
            let refused =
                io::Error::new(io::ErrorKind::PermissionDenied, format!("refused: {}", line.trim()));
            return Err(refused.into());
        }
        // a bus that passes no descriptors answers with an error, and the call that needs one fails
        bus.command("NEGOTIATE_UNIX_FD\r\n")?;
        bus.send(b"BEGIN\r\n")?;
        bus.call(Method { member: "Hello", ..BUS }, &[])?;
        Ok(bus)
    }

    pub(super) fn new(stream: UnixStream) -> Self {
        Bus { stream, bytes: VecDeque::new(), descriptors: VecDeque::new(), serial: 0 }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// A command of the authentication, and the line that answers it.
    fn command(&mut self, text: &str) -> io::Result<String> {
        self.send(text.as_bytes())?;
        self.read_line()
    }

    pub(super) fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.bytes.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.bytes.len() > MAX_LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.receive()?;
        }
    }

    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// Calls a method. Returns the first value of the answer.
    pub fn call(&mut self, method: Method<'_>, arguments: &[Value]) -> Result<Option<Value>, CallError> {
        let serial = self.next_serial();
        self.send(&encode_call(serial, method, arguments))?;
        loop {
            let message = self.next_message()?;
            if message.reply_to != Some(serial) {
                continue;
            }
            match message.kind {
                MessageKind::Return => return Ok(message.value),
                MessageKind::Error => {
                    let text = match message.value {
                        Some(Value::Text(text)) => text,
                        _ => String::new(),
                    };
                    return Err(CallError::Refused { name: message.error, message: text });
                }
                MessageKind::Call | MessageKind::Signal => {}
            }
        }
    }

    /// Calls a method that answers with a descriptor.
    pub fn call_for_descriptor(
        &mut self,
        method: Method<'_>,
        arguments: &[Value],
    ) -> Result<OwnedFd, CallError> {
        let value = self.call(method, arguments)?;
        let descriptor = self.descriptors.pop_front();
        let is_one = matches!(value, Some(Value::Descriptor(_)));
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "the answer has no descriptor");
        Ok(descriptor.filter(|_| is_one).ok_or_else(missing)?)
    }

    /// Waits for messages without a limit, as a connection for signals does.
    pub fn wait_long(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    /// Another handle of the connection, by which another thread can close it.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// The next message.
    pub fn next_message(&mut self) -> io::Result<Message> {
        const FIXED: usize = 16;
        while self.bytes.len() < FIXED {
            self.receive()?;
        }
        let at = |index: usize| u32::from(self.bytes[index]);
        let length = |index: usize| {
            (at(index) | at(index + 1) << 8 | at(index + 2) << 16 | at(index + 3) << 24) as usize
        };
        let whole = length(12).next_multiple_of(8).saturating_add(length(4)).saturating_add(FIXED);
        if whole > MAX_MESSAGE || self.bytes[0] != b'l' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        while self.bytes.len() < whole {
            self.receive()?;
        }
        let message: Vec<u8> = self.bytes.drain(..whole).collect();
        decode(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Receives some bytes, and the descriptors beside them.
    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut chunk)];
            match recvmsg(&self.stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.extend(&chunk[..received.bytes]);
        Ok(())
    }
}
