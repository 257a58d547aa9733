//! When the last graceful shutdown began and ended: kept in a file, because the agent ends with the machine, and shown in
//! metrics.

use metrics::{Descriptor, Gauge, Registry};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "graceful_node_shutdown_state";

/// Seconds since the epoch; zero for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    start: i64,
    end: i64,
}

/// See the module.
pub struct ShutdownTimes {
    file: PathBuf,
    times: Arc<Mutex<Times>>,
}

impl ShutdownTimes {
    pub fn new(root_dir: &Path, registry: &Registry) -> Self {
        let file = root_dir.join(FILE);
        let times = Arc::new(Mutex::new(read(&file)));
        for (name, help, pick) in [
            (
                "kubelet_graceful_shutdown_start_time_seconds",
                "When the last graceful shutdown began, as a Unix time.",
                (|it| it.start) as fn(&Times) -> i64,
            ),
            (
                "kubelet_graceful_shutdown_end_time_seconds",
                "When the last graceful shutdown had ended its pods, as a Unix time.",
                |it| it.end,
            ),
        ] {
            let times = times.clone();
            registry.callback::<Gauge>(Descriptor::alpha(name, help), move |samples| {
                samples.add(&[], pick(&times.lock()) as f64);
            });
        }
        ShutdownTimes { file, times }
    }

    pub fn begin(&self, now: i64) {
        self.set(Times { start: now, end: 0 });
    }

    pub fn end(&self, now: i64) {
        let start = self.times.lock().start;
        self.set(Times { start, end: now });
    }

    fn set(&self, times: Times) {
        *self.times.lock() = times;
        let shown = |seconds: i64| match seconds {
            0 => Value::Null,
            seconds => Value::from(schema::time::format_time(seconds)),
        };
        let text = json!({"startTime": shown(times.start), "endTime": shown(times.end)});
        if let Err(why) = durable_file::replace(&self.file, text.to_string(), durable_file::READABLE) {
            tracing::warn!(%why, file = %self.file.display(), "the times of the shutdown were not kept");
        }
    }
}

fn read(file: &Path) -> Times {
    let text = std::fs::read(file).unwrap_or_default();
    let value: Value = serde_json::from_slice(&text).unwrap_or_default();
    let time = |field: &str| value[field].as_str().and_then(schema::time::to_unix).unwrap_or(0);
    Times { start: time("startTime"), end: time("endTime") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::default();
        let times = ShutdownTimes::new(folder.path(), &registry);
        assert!(registry.text().contains("kubelet_graceful_shutdown_start_time_seconds 0"));
        times.begin(1_700_000_000);
        times.end(1_700_000_030);
        let registry = Registry::default();
        let _again = ShutdownTimes::new(folder.path(), &registry);
        let text = registry.text();
        assert!(text.contains("kubelet_graceful_shutdown_start_time_seconds 1.7e+09"), "{text}");
        assert!(text.contains("kubelet_graceful_shutdown_end_time_seconds 1.70000003e+09"), "{text}");
    }
}
