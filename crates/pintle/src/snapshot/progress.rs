//! The progress of a long copy, on a terminal.

use env::World;
use std::io::{IsTerminal, Write as _, stderr};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(250);

/// A line that says how far a copy is, drawn again four times a second.
pub struct Progress {
    verb: &'static str,
    count: u64,
    unit: &'static str,
    drawn: Option<Duration>,
    is_shown: bool,
    world: World,
}

impl Progress {
    pub fn new(verb: &'static str, unit: &'static str, world: &World) -> Self {
        let is_shown = stderr().is_terminal();
        Self { verb, count: 0, unit, drawn: None, is_shown, world: world.clone() }
    }

    pub fn add(&mut self, count: u64) {
        self.count += count;
        let now = self.world.elapsed();
        if self.is_shown && self.drawn.is_none_or(|at| now.saturating_sub(at) >= INTERVAL) {
            self.drawn = Some(now);
            let _ = write!(stderr(), "\r{} {} {}", self.verb, self.count, self.unit);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
