//! Network namespaces: identity, and work inside of them.
//!
//! A thread is in a namespace, not a process. A socket and what is sent over it stay in the namespace in which the
//! socket was opened, so a namespace is entered only to open sockets and to read and write settings.

use super::netlink::{Netlink, NetlinkError};
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// An open network namespace.
pub struct Namespace {
    file: OwnedFd,
}

/// The identity of a namespace: its path can name another one later, for example when it has a process id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceId {
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
}

impl NamespaceId {
    /// Whether the namespace is still there.
    pub fn is_present(&self) -> bool {
        stat(&self.path).is_ok_and(|found| (found.st_dev, found.st_ino) == (self.device, self.inode))
    }
}

impl Namespace {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Namespace { file: open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Namespace::open(Path::new(OWN))
    }

    pub fn id(&self, path: &Path) -> io::Result<NamespaceId> {
        let found = fstat(&self.file)?;
        Ok(NamespaceId { path: path.to_owned(), device: found.st_dev, inode: found.st_ino })
    }

    /// Whether two open namespaces are one.
    pub fn is_same(&self, other: &Namespace) -> io::Result<bool> {
        let (one, two) = (fstat(&self.file)?, fstat(&other.file)?);
        Ok((one.st_dev, one.st_ino) == (two.st_dev, two.st_ino))
    }

    /// For messages that name a namespace by file descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Does work in the namespace and returns. If the thread cannot return, that is the error, and the thread must end.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let before = Namespace::current()?;
        self.enter()?;
        let done = work();
        before.enter()?;
        Ok(done)
    }

    /// Opens a netlink socket in the namespace.
    pub fn netlink(&self) -> Result<Netlink, NetlinkError> {
        self.run(Netlink::open).map_err(|why| NetlinkError::new("enter the network namespace", why))?
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
