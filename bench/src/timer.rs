//! Wall clock and CPU time of a program with one thread.

use crate::print_line;
use anyhow::Context;
use std::time::{Duration, Instant};

/// See the module.
pub struct Timer {
    wall: Instant,
    cpu: Duration,
}

impl Timer {
    pub fn start() -> anyhow::Result<Self> {
        Ok(Timer { wall: Instant::now(), cpu: cpu_time()? })
    }

    pub fn report(&self, label: &str) -> anyhow::Result<()> {
        self.report_each(label, 1, None)
    }

    /// Prints the time of one of several, and that of the slowest.
    pub fn report_each(&self, label: &str, times: u32, slowest: Option<Duration>) -> anyhow::Result<()> {
        let wall = self.wall.elapsed() / times;
        let cpu = cpu_time()?.saturating_sub(self.cpu) / times;
        let [wall, cpu] = [wall, cpu].map(milliseconds);
        let slowest = slowest.map(|it| format!("   slowest {:.2} ms", milliseconds(it))).unwrap_or_default();
        print_line!("{label:<34} {wall:>10.2} ms   {cpu:>10.2} ms of CPU{slowest}");
        Ok(())
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn cpu_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("no CPU time")?;
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanos.context("no CPU time")?))
}
