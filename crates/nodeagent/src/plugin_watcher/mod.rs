//! Plugins that register themselves with the agent: CSI drivers and device plugins.
//!
//! A plugin creates a socket below the directory `plugins_registry` and serves the registration API there. The agent calls
//! `GetInfo` for its type, name and endpoint, passes it to the handler of its type, and reports the result with
//! `NotifyRegistrationStatus`. A plugin is registered as long as its socket exists; a socket that is created again is
//! another plugin. Each socket has a task of its own, so that a plugin that hangs delays no other.
//!
//! | module | what it is |
//! |---|---|
//! | [`handler`] | the handlers of types |
//! | `registration` | one registration over gRPC |
//! | `sockets` | the sockets in the directory |

pub mod handler;
mod registration;
mod sockets;
#[cfg(test)]
mod tests;

pub use handler::{Handlers, PluginHandler, RegisteredPlugin};

use client::Backoff;
use env::World;
use futures_util::FutureExt;
use futures_util::future::select_all;
use sockets::{Scan, SocketId, scan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::file_watch::FileWatch;

/// The directory of sockets below the agent's.
const DIRECTORY: &str = "plugins_registry";
/// Waits between attempts to register a plugin.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(122));
/// How often the directory is read although no change was announced, with and without watches of the kernel.
const WATCHED_PERIOD: Duration = Duration::from_secs(60);
const UNWATCHED_PERIOD: Duration = Duration::from_secs(1);

/// See the module. Its tasks end with it.
pub struct PluginWatcher {
    directory: PathBuf,
    handlers: Arc<Handlers>,
    world: World,
    sockets: BTreeMap<PathBuf, Follower>,
    watches: BTreeMap<PathBuf, FileWatch>,
}

/// The task of a socket.
struct Follower {
    /// Absent once the socket has gone.
    id: Option<SocketId>,
    /// Ends the registration when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Drop for PluginWatcher {
    fn drop(&mut self) {
        self.sockets.values().filter_map(|it| it.task.as_ref()).for_each(JoinHandle::abort);
    }
}

impl PluginWatcher {
    /// `root` is the agent's directory.
    pub fn new(root: &Path, handlers: Handlers, world: World) -> Self {
        PluginWatcher {
            directory: root.join(DIRECTORY),
            handlers: Arc::new(handlers),
            world,
            sockets: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Follows the sockets until it is dropped.
    pub async fn run(mut self) {
        loop {
            let is_watched = self.reconcile();
            let period = if is_watched { WATCHED_PERIOD } else { UNWATCHED_PERIOD };
            let world = self.world.clone();
            tokio::select! {
                is_lost = changed(&mut self.watches) => if is_lost { self.watches.clear() },
                () = env::sleep(&world, period) => {}
            }
        }
    }

    /// Brings tasks and watches in line with the directory. Says whether the kernel will announce all changes.
    fn reconcile(&mut self) -> bool {
        let Some(found) = self.scan_watched() else { return false };
        for (path, follower) in &mut self.sockets {
            if follower.id != found.sockets.get(path).copied() {
                (follower.id, follower.stop) = (None, None);
            }
        }
        for (path, id) in &found.sockets {
            let current = self.sockets.get_mut(path);
            if current.as_ref().is_some_and(|it| it.id.is_some()) {
                continue;
            }
            let previous = current.and_then(|it| it.task.take());
            let (stop, gone) = oneshot::channel();
            let follow = follow(path.clone(), self.handlers.clone(), self.world.clone(), previous, gone);
            let task = Some(tokio::spawn(follow));
            self.sockets.insert(path.clone(), Follower { id: Some(*id), stop: Some(stop), task });
        }
        self.sockets.retain(|_, it| it.id.is_some() || it.task.as_ref().is_some_and(|it| !it.is_finished()));
        found.directories.iter().all(|path| self.watches.contains_key(path))
    }

    /// Reads the directory after all of it is watched, as far as possible.
    fn scan_watched(&mut self) -> Option<Scan> {
        if let Err(why) = sockets::create(&self.directory) {
            tracing::warn!(%why, directory = %self.directory.display(), "plugins cannot register");
            return None;
        }
        loop {
            let found = scan(&self.directory);
            self.watches.retain(|path, _| found.directories.contains(path));
            let mut is_new = false;
            for path in &found.directories {
                if !self.watches.contains_key(path)
                    && let Ok(watch) = FileWatch::new(path)
                {
                    self.watches.insert(path.clone(), watch);
                    is_new = true;
                }
            }
            if !is_new {
                return Some(found);
            }
        }
    }
}

/// Waits for a change. Says whether a watch was lost.
async fn changed(watches: &mut BTreeMap<PathBuf, FileWatch>) -> bool {
    if watches.is_empty() {
        return std::future::pending().await;
    }
    select_all(watches.values_mut().map(|watch| watch.changed().boxed())).await.0.is_err()
}

/// Registers the plugin behind a socket, again after each failure, until the socket is gone.
async fn follow(
    socket: PathBuf,
    handlers: Arc<Handlers>,
    world: World,
    previous: Option<JoinHandle<()>>,
    mut gone: oneshot::Receiver<()>,
) {
    // the handler deregisters the previous plugin before it registers the next
    if let Some(previous) = previous {
        let _ = previous.await;
    }
    let mut backoff = RETRIES;
    loop {
        match registration::register(&socket, &handlers).await {
            Ok((plugin, handler)) => {
                tracing::info!(plugin = plugin.name, socket = %socket.display(), "a plugin is registered");
                let _ = gone.await;
                tracing::info!(plugin = plugin.name, socket = %socket.display(), "a plugin has gone");
                return handler.deregister(&plugin).await;
            }
            Err(why) => tracing::warn!(%why, "a plugin was not registered"),
        }
        tokio::select! {
            _ = &mut gone => return,
            () = env::sleep(&world, backoff.pause()) => {}
        }
    }
}
