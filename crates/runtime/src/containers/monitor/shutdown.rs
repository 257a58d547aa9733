//! The end of a monitor: its processes are killed and reaped.

use super::Monitor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time after which adopted processes are looked for; their ends are no events.
const ADOPTED_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

impl Monitor {
    pub(super) fn shut_down(&mut self) {
        let starting: Vec<u64> =
            self.processes.iter().filter(|it| it.1.is_external_start()).map(|it| *it.0).collect();
        for id in starting {
            // an external runtime that is interrupted leaves its container half made
            while self.processes.get(&id).is_some_and(|it| it.control.is_some()) {
                self.continue_start(id);
            }
        }
        for process in self.processes.values_mut() {
            process.kill();
        }
        // the first process of a namespace ends when all others in it are reaped, so none is waited for alone
        while self.processes.values().any(|it| it.exit_code.is_none()) {
            for id in self.wait_for_ends() {
                self.end(id);
            }
            self.reap_adopted();
        }
        self.spawner.end();
        self.is_ended = true;
    }

    /// The processes that have ended and are not reaped, after a moment of waiting.
    fn wait_for_ends(&self) -> Vec<u64> {
        let running: Vec<_> = self.processes.iter().filter(|it| it.1.exit_code.is_none()).collect();
        let mut polled: Vec<_> =
            running.iter().map(|it| PollFd::new(&it.1.descriptor, PollFlags::IN)).collect();
        // an interruption is a moment, too
        let _ = poll(&mut polled, Some(&ADOPTED_INTERVAL));
        let ended = running.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        ended.map(|(process, _)| *process.0).collect()
    }

    /// Reaps adopted processes that have ended, unless a process is about to be known.
    pub(super) fn reap_adopted(&self) {
        if self.processes.values().all(|it| it.control.is_none()) {
            self.spawner.reap_adopted(|pid| self.processes.values().any(|it| it.has_pid(pid)));
        }
    }
}
