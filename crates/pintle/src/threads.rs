//! The threads of the process.

use anyhow::Context as _;

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
