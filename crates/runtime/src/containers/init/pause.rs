//! The first process of a pod whose containers share their processes: it adopts and reaps them.

use super::failure::during;
use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

/// Reaps until the process is killed.
pub fn reap() -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(during("start"))?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child()).map_err(during("wait for processes"))?;
        loop {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            ended.recv().await.ok_or("no more signals come")?;
        }
    })
}
