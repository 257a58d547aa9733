//! Notifications of the kernel when the memory in use of a cgroup (v1) crosses a level.
//!
//! The level is computed from the memory that the node has left, so that the evictor looks when a threshold is
//! reached, and not up to ten seconds later. The kernel has no such notifications for cgroups v2.

use super::thresholds::{Observation, Signal, Threshold};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

const USAGE: &str = "memory.usage_in_bytes";
const CONTROL: &str = "cgroup.event_control";

/// A level of memory use that the kernel watches until this is dropped.
pub struct UsageLevel {
    /// A counter that is read like a pipe.
    events: Receiver,
}

impl UsageLevel {
    /// Watches the cgroup with this directory.
    pub fn new(cgroup: &Path, bytes: u64) -> io::Result<Self> {
        let usage = File::open(cgroup.join(USAGE))?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let mut control = OpenOptions::new().write(true).open(cgroup.join(CONTROL))?;
        // one write is one registration
        control.write_all(format!("{} {} {bytes}", event.as_raw_fd(), usage.as_raw_fd()).as_bytes())?;
        Ok(UsageLevel { events: Receiver::from_owned_fd_unchecked(event)? })
    }

    /// Waits until the level is crossed.
    pub async fn crossed(&mut self) -> io::Result<()> {
        let mut count = [0; 8];
        loop {
            match self.events.try_read(&mut count) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.events.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The memory in use of a cgroup.
pub fn usage(cgroup: &Path) -> Option<u64> {
    std::fs::read_to_string(cgroup.join(USAGE)).ok()?.trim().parse().ok()
}

/// The use at which the next threshold of memory is reached. `None` if all are passed already, or there is none.
pub fn next_level(thresholds: &[Threshold], memory: Observation, usage: u64) -> Option<u64> {
    let of_memory = thresholds.iter().filter(|it| it.signal == Signal::Memory);
    let left = of_memory.filter_map(|it| memory.available.checked_sub(it.amount.of(memory.capacity)));
    left.filter(|left| *left > 0).min().map(|left| usage.saturating_add(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::thresholds::Amount;

    fn threshold(signal: Signal, amount: Amount) -> Threshold {
        Threshold { signal, amount, grace: None, reclaim: None }
    }

    #[test]
    fn the_nearest_threshold_ahead_is_watched() {
        let memory = Observation { available: 600, capacity: 1000 };
        let hard = threshold(Signal::Memory, Amount::Absolute(100));
        let soft = threshold(Signal::Memory, Amount::Share(0.3));
        let passed = threshold(Signal::Memory, Amount::Absolute(700));
        let disk = threshold(Signal::NodeDisk, Amount::Absolute(599));
        assert_eq!(next_level(&[hard, soft, passed, disk], memory, 50), Some(350));
        assert_eq!(next_level(&[passed, disk], memory, 50), None);
        assert_eq!(next_level(&[hard], Observation { available: 100, ..memory }, 50), None);
    }

    /// Only where cgroups v1 can be changed: a cgroup of its own, filled by writing to a tmpfs of this process.
    #[tokio::test]
    async fn the_kernel_says_when_a_level_is_crossed() {
        let cgroup = Path::new("/sys/fs/cgroup/memory").join(format!("pintle-test-{}", std::process::id()));
        if std::fs::create_dir(&cgroup).is_err() || !cgroup.join(CONTROL).exists() {
            eprintln!("left out: there are no cgroups v1 of memory that can be changed");
            return;
        }
        let mut level = UsageLevel::new(&cgroup, 8 << 20).unwrap();
        let script = "echo $$ > \"$0/cgroup.procs\"; exec head -c 33554432 /dev/zero | tail -n 1 | wc -c";
        let mut command = tokio::process::Command::new("sh");
        let mut child = command.arg("-c").arg(script).arg(&cgroup).spawn().unwrap();
        level.crossed().await.unwrap();
        child.wait().await.unwrap();
        drop(level);
        std::fs::remove_dir(&cgroup).unwrap();
    }
}
