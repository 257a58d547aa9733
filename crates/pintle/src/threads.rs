//! The threads of the process.

use anyhow::Context as _;
use env::Paused;
use std::sync::Arc;

/// The runtime of a command: a worker thread per core.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        // deep recursion needs it in debug builds; unused stack takes no memory
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// The runtime of a cluster with a manual clock: one thread, so that the order of its work follows from the requests, which
/// moves the clock when it has nothing left to do.
pub fn paused(clock: &Arc<Paused>) -> anyhow::Result<tokio::runtime::Runtime> {
    let clock = clock.clone();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || clock.on_idle())
        .build()
        .context("cannot start threads")
}

/// The runtime of an agent: one thread, and others for work that blocks. Its tasks wait for the container runtime and the
/// API server nearly all of the time; on one thread they wake each other without a switch between cores.
pub fn single() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")
}
