//! A connection of the agent to a monitor.

use crate::containers::message::{Inbox, SocketState};
use crate::containers::protocol::Request;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub struct Connection {
    pub socket: UnixStream,
    inbox: Inbox,
    /// It gets the ends of containers.
    pub is_watch: bool,
    is_broken: bool,
}

impl Connection {
    pub fn new(socket: UnixStream) -> Self {
        Connection { socket, inbox: Inbox::default(), is_watch: false, is_broken: false }
    }

    /// Reads the bytes that have arrived. Returns whether the connection is still open.
    pub fn receive(&mut self) -> bool {
        match self.inbox.receive(&self.socket) {
            Ok(SocketState::Closed) | Err(_) => false,
            Ok(_) => !self.is_broken,
        }
    }

    /// The requests that have come; one that cannot be read ends the connection.
    pub fn requests(&mut self) -> Vec<(Request, Vec<OwnedFd>)> {
        let mut found = Vec::new();
        loop {
            match self.inbox.next() {
                Ok(Some(request)) => found.push(request),
                Ok(None) => return found,
                Err(_) => self.is_broken = true,
            }
        }
    }
}
