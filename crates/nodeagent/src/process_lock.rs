//! The file of `--lock-file`: an agent waits until it holds the lock, and may end when another one waits for it.

use crate::file_watch::FileWatch;
use env::World;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The time between attempts to take the lock.
const RETRY: Duration = Duration::from_secs(1);

/// The lock. It is released when this is dropped.
pub struct ProcessLock {
    /// Processes that want the lock, too.
    others: FileWatch,
    _file: OwnedFd,
}

impl ProcessLock {
    /// Waits for the lock.
    pub async fn acquire(path: &Path, world: &World) -> io::Result<Self> {
        let mode = Mode::RUSR | Mode::WUSR;
        let file = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, mode)?;
        while let Err(why) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if why != rustix::io::Errno::WOULDBLOCK {
                return Err(why.into());
            }
            env::sleep(world, RETRY).await;
        }
        Ok(ProcessLock { others: FileWatch::of_opens(path)?, _file: file })
    }

    /// Waits until another process opens the file.
    pub async fn contention(&mut self) -> io::Result<()> {
        self.others.changed().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn one_agent_holds_the_lock_and_notices_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let clock = Simulated::new(0, 1);
        let world: World = clock.clone();
        let mut first = ProcessLock::acquire(&path, &world).await.unwrap();
        assert!(first.contention().now_or_never().is_none());
        let mut second = Box::pin(ProcessLock::acquire(&path, &world));
        assert!((&mut second).now_or_never().is_none());
        first.contention().await.unwrap();
        drop(first);
        clock.advance(RETRY);
        second.await.unwrap();
    }
}
