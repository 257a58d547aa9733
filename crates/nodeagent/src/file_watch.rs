//! A watch of a directory or file by the kernel's notifications (inotify).
//!
//! It says that something changed, not what: its user looks again. Without a watch (the path does not exist, or the
//! machine has no more watches) it says nothing, and its user looks in intervals.

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::io;
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

/// See the module. The watch ends with it.
pub struct FileWatch {
    /// It is read like a pipe.
    events: Receiver,
}

impl FileWatch {
    /// Watches a directory and the files directly in it, or one file.
    pub fn new(path: &Path) -> io::Result<Self> {
        let changes = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        Self::with(path, changes)
    }

    /// Watches for processes that open a file.
    pub fn of_opens(path: &Path) -> io::Result<Self> {
        Self::with(path, WatchFlags::OPEN | WatchFlags::DELETE_SELF)
    }

    fn with(path: &Path, changes: WatchFlags) -> io::Result<Self> {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        add_watch(&inotify, path, changes)?;
        Ok(FileWatch { events: Receiver::from_owned_fd_unchecked(inotify)? })
    }

    /// Waits for a change since the last call. All changes that wait count as one.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut is_changed = false;
        loop {
            match self.events.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => is_changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_changed => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.events.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn changes_of_files_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = FileWatch::new(dir.path()).unwrap();
        assert!(watch.changed().now_or_never().is_none());
        std::fs::write(dir.path().join("a"), "1").unwrap();
        watch.changed().await.unwrap();
        assert!(watch.changed().now_or_never().is_none());
        std::fs::remove_file(dir.path().join("a")).unwrap();
        watch.changed().await.unwrap();
        assert!(FileWatch::new(&dir.path().join("none")).is_err());
    }
}
