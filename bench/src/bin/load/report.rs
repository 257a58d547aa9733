//! What a run came to: figures per operation and second.

use std::fmt::{self, Display};
use std::time::Instant;

use anyhow::ensure;
use bench::process::{cpu_of, memory_of};
use serde_json::{Value, json};

#[derive(Default)]
pub struct Tally {
    pub took_ns: Vec<u64>,
    pub bytes: u64,
}

/// Clocks as they stood before a run.
pub struct Clocks {
    server: Option<u64>,
    client: Option<u64>,
    at: Instant,
}

impl Clocks {
    pub fn read(pids: &[u32]) -> anyhow::Result<Self> {
        Ok(Self { server: cpu_of(pids)?, client: cpu_of(&[std::process::id()])?, at: Instant::now() })
    }

    /// What has passed since.
    pub fn report(
        self,
        pids: &[u32],
        what: &'static str,
        (concurrency, connections): (usize, usize),
        mut all: Tally,
    ) -> anyhow::Result<Report> {
        let seconds = self.at.elapsed().as_secs_f64();
        let spent = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        let server_us = spent(self.server, cpu_of(pids)?);
        let client_us = spent(self.client, cpu_of(&[std::process::id()])?);
        ensure!(!all.took_ns.is_empty(), "no request was made");
        all.took_ns.sort_unstable();
        let memory = memory_of(pids)?;
        Ok(Report { what, concurrency, connections, seconds, all, server_us, client_us, memory, lost: None })
    }
}

/// What a run came to.
pub struct Report {
    what: &'static str,
    concurrency: usize,
    connections: usize,
    seconds: f64,
    /// Sorted.
    all: Tally,
    server_us: Option<u64>,
    client_us: Option<u64>,
    /// Of the server, in bytes.
    memory: Option<u64>,
    /// Events that never came, where there are any to wait for.
    pub lost: Option<u64>,
}

impl Report {
    pub fn ops(&self) -> f64 {
        self.all.took_ns.len() as f64
    }

    fn quantile_ms(&self, part: f64) -> f64 {
        let at = (self.ops() * part) as usize;
        let took = self.all.took_ns.get(at.min(self.all.took_ns.len().saturating_sub(1)));
        took.map_or(0.0, |ns| *ns as f64 / 1e6)
    }

    fn cores(&self, us: Option<u64>) -> Option<f64> {
        us.map(|us| us as f64 / 1e6 / self.seconds)
    }

    fn server_us_per_op(&self) -> Option<f64> {
        self.server_us.map(|us| us as f64 / self.ops())
    }

    pub fn json(&self) -> Value {
        json!({
            "what": self.what, "concurrency": self.concurrency, "connections": self.connections,
            "seconds": self.seconds, "ops": self.ops(), "ops_per_s": self.ops() / self.seconds,
            "p50_ms": self.quantile_ms(0.5), "p99_ms": self.quantile_ms(0.99),
            "bytes_per_op": self.all.bytes as f64 / self.ops(),
            "server_cpu_us_per_op": self.server_us_per_op(),
            "server_cores": self.cores(self.server_us), "client_cores": self.cores(self.client_us),
            "server_memory_mb": self.memory.map(|bytes| bytes as f64 / 1e6), "lost": self.lost,
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, bytes) = (self.ops(), self.all.bytes as f64);
        write!(f, "{}, C={}, connections {}", self.what, self.concurrency, self.connections)?;
        write!(f, ": {ops} ops in {:.1} s, {:.1} ops/s", self.seconds, ops / self.seconds)?;
        write!(f, ", p50 {:.2} ms, p99 {:.2} ms", self.quantile_ms(0.5), self.quantile_ms(0.99))?;
        write!(f, ", {:.2} kB/op, {:.1} MB/s", bytes / ops / 1e3, bytes / 1e6 / self.seconds)?;
        if let Some(lost) = self.lost {
            write!(f, ", {lost} lost")?;
        }
        match (self.server_us_per_op(), self.cores(self.server_us)) {
            (Some(us), Some(cores)) => write!(f, "; server CPU {us:.1} us/op, {cores:.2} cores")?,
            _ if cfg!(target_os = "linux") => write!(f, "; server CPU not measured, for want of --pid")?,
            _ => write!(f, "; server CPU not measured: that takes Linux")?,
        }
        self.cores(self.client_us).map_or(Ok(()), |cores| write!(f, "; client {cores:.2} cores"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_operation_and_second() {
        let all = Tally { took_ns: (1..=100).map(|ms| ms * 1_000_000).collect(), bytes: 50_000 };
        let report = Report {
            what: "get",
            concurrency: 32,
            connections: 4,
            seconds: 2.0,
            all,
            server_us: Some(6_000),
            client_us: None,
            memory: None,
            lost: None,
        };
        let json = report.json();
        assert_eq!((json["ops_per_s"].as_f64(), json["bytes_per_op"].as_f64()), (Some(50.0), Some(500.0)));
        assert_eq!(json["server_cpu_us_per_op"].as_f64(), Some(60.0));
        assert_eq!((json["p50_ms"].as_f64(), json["p99_ms"].as_f64()), (Some(51.0), Some(100.0)));
        assert!(report.to_string().contains("60.0 us/op"), "{report}");
    }
}
