//! A netlink socket to the packet filter of this network namespace.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::net::{RecvFlags, sockopt};

use super::attribute::{
    self, Attributes, DONE, DUMP, DUMP_INTERRUPTED, ERROR, Encoder, Header, Message, REQUEST,
};
use super::batch::{Batch, Change};
use super::rule::prefix;

/// How often a transaction or a dump is repeated that the kernel interrupted.
const MAX_ATTEMPTS: usize = 10;

/// Answers to a dump come in datagrams of up to this size.
const RECEIVE_SIZE: usize = 64 << 10;

/// Room in the socket's buffer beside the message itself.
const SEND_OVERHEAD: usize = 4 << 10;

/// Time for which an answer may be missing. The kernel answers within the system call.
const TIMEOUT: Duration = Duration::from_secs(10);

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOENT: i32 = 2;
const ERESTART: i32 = 85;
const ENOBUFS: i32 = 105;

/// Attributes of an error: a text about its cause.
const ERROR_TEXT: u16 = 1;

/// The number of the ruleset's state, which every transaction of any program raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub(super) u32);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// Nothing of the batch was applied.
    #[error("{}", describe(.0))]
    Changes(Vec<ChangeError>),
    /// The kernel refused a request.
    #[error("{}{}", io::Error::from_raw_os_error(*.code), suffix(.text.as_deref()))]
    Request { code: i32, text: Option<String> },
    #[error("the ruleset was changed by another program in the meantime")]
    GenerationChanged,
    #[error("the kernel did not confirm the transaction")]
    NoAnswer,
}

/// The kernel's error for one change of a batch.
#[derive(Debug, Clone)]
pub struct ChangeError {
    /// The index of the change, unless the error is about the batch as a whole.
    pub index: Option<usize>,
    pub change: Option<Box<Change>>,
    pub code: i32,
    pub text: Option<String>,
}

fn suffix(text: Option<&str>) -> String {
    text.map(|text| format!(": {text}")).unwrap_or_default()
}

fn describe(errors: &[ChangeError]) -> String {
    let Some(first) = errors.first() else { return "the transaction failed".to_owned() };
    let error = io::Error::from_raw_os_error(first.code);
    let mut text = format!("{error}{}", suffix(first.text.as_deref()));
    if let Some(change) = &first.change {
        let debug = format!("{change:?}");
        text.push_str(" at ");
        text.push_str(prefix(&debug, 300));
    }
    match errors.len() {
        1 => text,
        count => format!("{text} (and {} more errors)", count - 1),
    }
}

impl Error {
    /// Whether an object that a change refers to is absent.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Changes(errors) => errors.iter().any(|error| error.code == ENOENT),
            Self::Request { code, .. } => *code == ENOENT,
            _ => false,
        }
    }
}

/// A socket for requests to netfilter. It stays in the network namespace in which it was opened.
pub struct Connection {
    socket: Socket,
    sequence: u32,
    send_size: usize,
}

impl Connection {
    pub fn open() -> Result<Self, Error> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // an error repeats the header of the request alone, and says its cause
        socket.set_cap_ack(true)?;
        socket.set_ext_ack(true)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))
            .map_err(io::Error::from)?;
        let send_size = sockopt::socket_send_buffer_size(&socket).map_err(io::Error::from)?;
        Ok(Self { socket, sequence: 0, send_size })
    }

    /// Applies a batch as one transaction: all of it, or nothing.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), Error> {
        self.commit_at(batch, None)
    }

    /// Applies a batch if the ruleset is still that of a generation, see [`Connection::read`].
    pub fn commit_at(&mut self, batch: &Batch, generation: Option<Generation>) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        for _ in 0..MAX_ATTEMPTS {
            match self.try_commit(batch, generation) {
                // a signal interrupted the transaction, which had no effect
                Err(Error::Changes(errors)) if errors.iter().all(|error| error.code == EINTR) => (),
                result => return result,
            }
        }
        Err(Error::NoAnswer)
    }

    fn try_commit(&mut self, batch: &Batch, generation: Option<Generation>) -> Result<(), Error> {
        self.drain()?;
        let encoded = batch.encode(self.sequence, generation.map(|generation| generation.0));
        self.sequence = encoded.last_sequence().wrapping_add(2) & 0x3fff_ffff;
        self.send(&encoded.bytes)?;
        let mut errors = Vec::new();
        let mut is_confirmed = false;
        let mut is_overrun = false;
        // the kernel has answered everything when the system call returns
        let mut buffer = Vec::with_capacity(RECEIVE_SIZE);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, RecvFlags::DONTWAIT.bits() as i32) {
                Err(error) if error.raw_os_error() == Some(EINTR) => continue,
                Err(error) if error.raw_os_error() == Some(EAGAIN) => break,
                // more errors than the buffer has room for: the first ones are there
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => is_overrun = true,
                Err(error) => return Err(error.into()),
                Ok(_) => (),
            }
            for message in attribute::messages(&buffer).filter(|message| message.kind == ERROR) {
                let (code, text) = read_error(&message);
                match code {
                    0 => is_confirmed |= message.sequence == encoded.last_sequence(),
                    ERESTART => return Err(Error::GenerationChanged),
                    code => {
                        let index = encoded.change_of(message.sequence);
                        let change = index.map(|index| Box::new(batch.changes[index].clone()));
                        errors.push(ChangeError { index, change, code, text });
                    }
                }
            }
        }
        match (errors.is_empty(), is_confirmed && !is_overrun) {
            (true, true) => Ok(()),
            (true, false) => Err(Error::NoAnswer),
            (false, _) => Err(Error::Changes(errors)),
        }
    }

    /// Discards answers to earlier requests that were not read to the end.
    fn drain(&mut self) -> Result<(), Error> {
        let mut buffer = Vec::with_capacity(RECEIVE_SIZE);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, RecvFlags::DONTWAIT.bits() as i32) {
                Err(error) if error.raw_os_error() == Some(EAGAIN) => return Ok(()),
                Err(error) if !matches!(error.raw_os_error(), Some(EINTR | ENOBUFS)) => {
                    return Err(error.into());
                }
                _ => (),
            }
        }
    }

    /// A transaction is one message to the kernel, so the socket's buffer must have room for all of it.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let size = bytes.len() + SEND_OVERHEAD;
        if size > self.send_size {
            // beyond the system's limit, which the plain option observes, for programs that may configure networks
            let forced = sockopt::set_socket_send_buffer_size_force(&self.socket, size);
            forced
                .or_else(|_| sockopt::set_socket_send_buffer_size(&self.socket, size))
                .map_err(io::Error::from)?;
            self.send_size = sockopt::socket_send_buffer_size(&self.socket).map_err(io::Error::from)?;
        }
        self.socket.send(bytes, 0)?;
        Ok(())
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1) & 0x3fff_ffff;
        self.sequence
    }

    /// Sends a request that is no part of a transaction, and passes the messages of its answer to `each`.
    pub(super) fn request(
        &mut self,
        header: Header,
        body: impl FnOnce(&mut Encoder),
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<Answer, Error> {
        self.drain()?;
        let sequence = self.next_sequence();
        let mut encoder = Encoder::default();
        encoder.message(Header { flags: header.flags | REQUEST, ..header }, sequence, body);
        self.send(&encoder.into_bytes())?;
        let is_dump = header.flags & DUMP == DUMP;
        let mut answer = Answer::Complete;
        let mut buffer = Vec::with_capacity(RECEIVE_SIZE);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, 0) {
                Err(error) if error.raw_os_error() == Some(EINTR) => continue,
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    answer = Answer::Interrupted;
                    continue;
                }
                Err(error) if error.raw_os_error() == Some(EAGAIN) => return Err(Error::NoAnswer),
                Err(error) => return Err(error.into()),
                Ok(_) => (),
            }
            for message in attribute::messages(&buffer).filter(|message| message.sequence == sequence) {
                if message.flags & DUMP_INTERRUPTED != 0 {
                    answer = Answer::Interrupted;
                }
                match message.kind {
                    ERROR => match read_error(&message) {
                        (0, _) => return Ok(answer),
                        (code, text) => return Err(Error::Request { code, text }),
                    },
                    DONE => match read_error(&message) {
                        (0, _) => return Ok(answer),
                        (EINTR, _) => return Ok(Answer::Interrupted),
                        (code, text) => return Err(Error::Request { code, text }),
                    },
                    _ => {
                        each(&message);
                        if !is_dump {
                            return Ok(answer);
                        }
                    }
                }
            }
        }
    }

    /// Lists objects; a list that changes meanwhile is read again.
    pub(super) fn dump<T>(
        &mut self,
        kind: u16,
        family: u8,
        body: impl Fn(&mut Encoder),
        mut parse: impl FnMut(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..MAX_ATTEMPTS {
            let mut items = Vec::new();
            let header = Header { kind, flags: DUMP, family, resource: 0 };
            let answer = self.request(header, &body, |message| items.extend(parse(message.attributes())))?;
            if answer == Answer::Complete {
                return Ok(items);
            }
        }
        Err(Error::GenerationChanged)
    }
}

/// Whether a list is consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Complete,
    Interrupted,
}

/// The error number of an error or of the end of a list, and the kernel's text about it.
fn read_error(message: &Message<'_>) -> (i32, Option<String>) {
    let code = attribute::array(message.body, 0).map_or(0, i32::from_ne_bytes);
    // the number, then the header of the request
    let attributes = Attributes(message.body.get(attribute::HEADER..).unwrap_or_default());
    let text = (message.kind == ERROR).then(|| attributes.text(ERROR_TEXT)).flatten();
    (code.saturating_neg(), text.map(str::to_owned))
}
