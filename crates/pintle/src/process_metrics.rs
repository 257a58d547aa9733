//! Process metrics (`process_*`), read from `/proc`. A value that cannot be read is left out.

use metrics::{Counter, Descriptor, Gauge, Registry};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;

type Number = fn() -> Option<f64>;

const GAUGES: [(&str, &str, Number); 5] = [
    ("process_resident_memory_bytes", "Memory of the process that is in use.", || pages(1)),
    ("process_virtual_memory_bytes", "Virtual memory of the process.", || pages(0)),
    ("process_open_fds", "Open files and connections.", || {
        fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64)
    }),
    ("process_max_fds", "The most files and connections that may be open.", || limit("Max open files")),
    ("process_virtual_memory_max_bytes", "Limit of virtual memory.", || {
        Some(limit("Max address space").unwrap_or(-1.0))
    }),
];

/// Registers the metrics.
pub fn register(registry: &Registry) {
    for (name, help, number) in GAUGES {
        registry.callback::<Gauge>(Descriptor::alpha(name, help), move |out| {
            if let Some(number) = number() {
                out.add(&[], number);
            }
        });
    }
    let about = Descriptor::alpha("process_cpu_seconds_total", "Time that processors spent on the process.");
    registry.callback::<Counter>(about, |out| {
        if let Some(seconds) = cpu_seconds() {
            out.add(&[], seconds);
        }
    });
    let about = Descriptor::alpha("process_start_time_seconds", "When the process began.");
    let began = started();
    registry.callback::<Gauge>(about, move |out| out.add(&[], began));
}

/// The fields of a line of numbers.
fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect()
}

fn pages(at: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    numbers(&text).get(at).map(|pages| pages * rustix::param::page_size() as f64)
}

/// The fields after the name of the program, which may hold anything.
fn stat() -> Option<Vec<f64>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    Some(numbers(text.rsplit_once(") ")?.1))
}

fn cpu_seconds() -> Option<f64> {
    let stat = stat()?;
    Some((stat.get(11)? + stat.get(12)?) / TICKS)
}

fn limit(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The start time of the process, or now.
fn started() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let from_proc = || {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let boot = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<f64>().ok()?;
        Some(boot + stat()?.get(19)? / TICKS)
    };
    from_proc().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_described() {
        let registry = Registry::default();
        register(&registry);
        let text = registry.text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
        };
        assert!(value("process_start_time_seconds") > 1.7e9);
        if cfg!(target_os = "linux") {
            assert!(value("process_resident_memory_bytes") > 1e5);
            assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
            assert!(value("process_open_fds") >= 1.0 && value("process_max_fds") >= 1.0);
            assert!(value("process_cpu_seconds_total") >= 0.0);
        }
    }
}
