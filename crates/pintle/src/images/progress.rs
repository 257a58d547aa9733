//! Progress on a terminal: one bar for all layers of a pull, one line for an import or an export.

use parking_lot::Mutex;
use runtime::images::{Digest, PullEvent};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};

const WIDTH: u64 = 30;

/// A line that changes. Without a terminal nothing is shown.
pub struct ProgressLine {
    is_terminal: bool,
    shown: Mutex<String>,
}

/// The bar of a pull.
pub struct ProgressBars {
    line: ProgressLine,
    state: Mutex<PullState>,
}

#[derive(Default)]
struct PullState {
    /// Bytes that are there, and bytes of the layer.
    layers: BTreeMap<Digest, (u64, u64)>,
    unpacked: usize,
}

impl ProgressLine {
    pub fn new() -> Self {
        ProgressLine { is_terminal: stderr().is_terminal(), shown: Mutex::default() }
    }

    pub fn show(&self, line: &str) {
        let mut shown = self.shown.lock();
        if self.is_terminal && line != *shown {
            // the rest of a longer line is erased
            let _ = write!(stderr(), "\r{line}\x1b[K");
            line.clone_into(&mut shown);
        }
    }

    /// Ends the line.
    pub fn finish(&self) {
        if !self.shown.lock().is_empty() {
            let _ = writeln!(stderr());
        }
    }
}

impl ProgressBars {
    pub fn new() -> Self {
        ProgressBars { line: ProgressLine::new(), state: Mutex::default() }
    }

    pub fn show(&self, event: &PullEvent) {
        let mut state = self.state.lock();
        match event {
            PullEvent::Downloaded { digest, bytes, size } => {
                state.layers.insert(digest.clone(), (*bytes, *size));
            }
            PullEvent::Unpacked { .. } => state.unpacked += 1,
        }
        self.line.show(&state.line());
    }

    /// Ends the line.
    pub fn finish(&self) {
        self.line.finish();
    }
}

impl PullState {
    fn line(&self) -> String {
        let (bytes, total) = self.layers.values().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let filled = (bytes * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH) as usize;
        let bar = format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH as usize - filled));
        let (unpacked, layers) = (self.unpacked, self.layers.len());
        format!("[{bar}] {} of {}, {unpacked} of {layers} layers unpacked", size(bytes), size(total))
    }
}

/// The line of an import or an export.
pub fn copied(action: &str, done: u64, all: Option<u64>) -> String {
    match all {
        Some(all) => format!("{} of {} {action}", size(done), size(all)),
        None => format!("{} {action}", size(done)),
    }
}

/// Bytes for readers: `1.2 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_sums_all_layers() {
        let bars = ProgressBars::new();
        let downloaded = |name: &str, bytes: u64| PullEvent::Downloaded {
            digest: Digest::of(name.as_bytes()),
            bytes,
            size: 1_000_000,
        };
        bars.show(&downloaded("a", 1_000_000));
        bars.show(&downloaded("b", 0));
        bars.show(&PullEvent::Unpacked { digest: Digest::of(b"a") });
        let line = bars.state.lock().line();
        assert_eq!(
            line,
            format!("[{}{}] 1.0 MB of 2.0 MB, 1 of 2 layers unpacked", "#".repeat(15), "-".repeat(15))
        );
        assert_eq!(copied("read", 1500, Some(2_000_000)), "1.5 kB of 2.0 MB read");
        assert_eq!(copied("written", 7, None), "7 B written");
        assert_eq!([size(7), size(1500), size(2_000_000_000)], ["7 B", "1.5 kB", "2.0 GB"]);
    }
}
