//! The threads of the process.

use anyhow::Context as _;
use env::Paused;
use std::sync::Arc;
use std::time::Duration;

/// The runtime of a command: a worker thread per core.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        // deep recursion needs it in debug builds; unused stack takes no memory
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    threads.spawn(release_start_pages());
    Ok(threads)
}

/// The runtime of a cluster with a manual clock: one thread, so that the order of its work follows from the requests, which
/// moves the clock when it has nothing left to do. If no one outside sends requests (`is_alone`), connections wait until
/// then, too: when they get their turn would depend on how many tasks have run before, some of them by real time.
pub fn paused(clock: &Arc<Paused>, is_alone: bool) -> anyhow::Result<tokio::runtime::Runtime> {
    let clock = clock.clone();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().on_thread_park(move || clock.on_idle());
    if is_alone {
        builder.event_interval(u32::MAX).global_queue_interval(u32::MAX);
    }
    builder.build().context("cannot start threads")
}

/// The runtime of an agent: one thread, and others for work that blocks. Its tasks wait for the container runtime and the
/// API server nearly all of the time; on one thread they wake each other without a switch between cores.
pub fn single() -> anyhow::Result<tokio::runtime::Runtime> {
    let threads = of_cluster()?;
    threads.spawn(release_start_pages());
    Ok(threads)
}

/// The runtime of a cluster beside others in one process: one thread.
pub fn of_cluster() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")
}

/// The code that has run in this time is mostly that of the start.
const START: Duration = Duration::from_secs(20);

/// Gives back the pages of the program that a start has left.
async fn release_start_pages() {
    env::io::sleep(START).await;
    // reads tables of the kernel, for some milliseconds
    match tokio::task::spawn_blocking(program_pages::release).await {
        Ok(Ok(bytes)) => tracing::debug!(bytes, "pages of the program were released"),
        Ok(Err(error)) => tracing::debug!(%error, "pages of the program were not released"),
        // the process ends
        Err(_) => {}
    }
}
