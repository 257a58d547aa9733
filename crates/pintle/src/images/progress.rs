//! Progress of a pull on a terminal: one bar for all layers.

use parking_lot::Mutex;
use runtime::images::{Digest, PullEvent};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};

const WIDTH: u64 = 30;

/// See the module. Without a terminal nothing is shown.
pub struct ProgressBars {
    is_terminal: bool,
    state: Mutex<PullState>,
}

#[derive(Default)]
struct PullState {
    /// Bytes that are there, and bytes of the layer.
    layers: BTreeMap<Digest, (u64, u64)>,
    unpacked: usize,
    shown: String,
}

impl ProgressBars {
    pub fn new() -> Self {
        ProgressBars { is_terminal: stderr().is_terminal(), state: Mutex::default() }
    }

    pub fn show(&self, event: &PullEvent) {
        let mut state = self.state.lock();
        match event {
            PullEvent::Downloaded { digest, bytes, size } => {
                state.layers.insert(digest.clone(), (*bytes, *size));
            }
            PullEvent::Unpacked { .. } => state.unpacked += 1,
        }
        let line = state.line();
        if self.is_terminal && line != state.shown {
            let _ = write!(stderr(), "\r{line}");
            state.shown = line;
        }
    }

    /// Ends the line.
    pub fn finish(&self) {
        if self.is_terminal && !self.state.lock().shown.is_empty() {
            let _ = writeln!(stderr());
        }
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
        let bars = ProgressBars { is_terminal: false, state: Mutex::default() };
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
        assert_eq!([size(7), size(1500), size(2_000_000_000)], ["7 B", "1.5 kB", "2.0 GB"]);
    }
}
