//! `prove`: runs a server under load and kills, and checks what clients saw.

use anyhow::Context;
use clap::Parser;
use proof::cluster::campaign::{self, Seeds};
use proof::report::Report;
use proof::{crashes, etcd_faults};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Kills a server under load, again and again, and checks that nothing acknowledged is lost and no client saw what cannot
/// have been
#[derive(Debug, Parser)]
struct Arguments {
    /// The program; else that of the variable PINTLE, or pintle in PATH
    #[arg(long, value_name = "FILE")]
    pintle: Option<PathBuf>,
    /// The number of kills
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Clients that write and read, for each of three resources
    #[arg(long, default_value_t = 3)]
    clients: u32,
    /// Clients that watch, for each of three resources; if there are several, one of them does not go on where it was, but
    /// begins anew each time
    #[arg(long, default_value_t = 3)]
    watchers: u32,
    /// The longest life of a server, in milliseconds after its start
    #[arg(long, default_value_t = 300, value_name = "MILLISECONDS")]
    life: u64,
    /// The seed of all choices; drawn from the time if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// Whether values are encrypted at rest: true, false, or both after each other
    #[arg(long, default_value = "both", value_parser = ["true", "false", "both"])]
    encryption: String,
    /// Instead of kills of one server: two servers on three members of an etcd that fail. The number of faults is that of
    /// --kills
    #[arg(long)]
    etcd: bool,
    /// Instead of kills of one server: whole clusters under a simulated clock, each with the next seed
    #[arg(long, conflicts_with = "etcd")]
    cluster: bool,
    /// With --cluster: the clusters of the seeds that once broke an invariant, instead of those from --seed on
    #[arg(long, requires = "cluster", conflicts_with_all = ["seed", "hours"])]
    named: bool,
    /// The hours of cluster time that are simulated, with --cluster
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// The minutes of cluster time in which a cluster works, before it rests, with --cluster. With --named, whose clusters
    /// have times of their own: the longest that is run
    #[arg(long, default_value_t = 40)]
    minutes: u64,
    /// Write the traces of all clusters into the report, with --cluster
    #[arg(long, requires = "cluster")]
    traces: bool,
    /// Clusters that run side by side, with --cluster
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// The program of etcd
    #[arg(long, default_value = "etcd", value_name = "FILE")]
    etcd_program: PathBuf,
    /// A file for the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    if arguments.cluster {
        return simulate(&arguments).await;
    }
    let seed = arguments.seed();
    let variable = || std::env::var_os("PINTLE").map(PathBuf::from);
    let binary = arguments.pintle.or_else(variable).unwrap_or_else(|| "pintle".into());
    let encryption: &[bool] = match &*arguments.encryption {
        "true" => &[true],
        "false" => &[false],
        _ => &[false, true],
    };
    let mut reports: Vec<(String, Report)> = Vec::new();
    let mut out = stdout();
    for is_encrypted in encryption {
        let title = format!("encryption at rest: {is_encrypted}");
        let report = if arguments.etcd {
            let plan = etcd_faults::Plan {
                pintle: binary.clone(),
                etcd: arguments.etcd_program.clone(),
                seed,
                faults: arguments.kills,
                loaders: arguments.clients,
                watchers: arguments.watchers,
                is_encrypted: *is_encrypted,
            };
            writeln!(out, "faults of an etcd under load, {title}, seed {seed}")?;
            etcd_faults::run(&plan).await?
        } else {
            let plan = crashes::Plan {
                binary: binary.clone(),
                seed,
                kills: arguments.kills,
                loaders: arguments.clients,
                watchers: arguments.watchers,
                longest_life: Duration::from_millis(arguments.life),
                is_encrypted: *is_encrypted,
            };
            writeln!(out, "kills under load, {title}, seed {seed}")?;
            crashes::run(&plan).await?
        };
        writeln!(out, "{report}")?;
        reports.push((title, report));
    }
    let is_correct = reports.iter().all(|(_, report)| report.is_correct());
    if let Some(file) = &arguments.report {
        let text: String = reports.iter().map(|(title, report)| format!("{title}\n{report}\n")).collect();
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if is_correct { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Arguments {
    fn seed(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.seed.unwrap_or(now.as_secs())
    }
}

/// Runs whole clusters.
async fn simulate(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let seeds = match arguments.named {
        true => Seeds::Named,
        false => Seeds::From {
            seed: arguments.seed(),
            total: Duration::from_secs_f64(arguments.hours.max(0.0) * 3600.0),
        },
    };
    let plan = campaign::Plan {
        seeds,
        round: Duration::from_secs(arguments.minutes * 60),
        jobs: arguments.jobs,
        traces_all: arguments.traces,
    };
    println(&format!("whole clusters: {:?}", plan.seeds));
    let report = campaign::run(&plan, |line| println(&line)).await;
    println(&report.to_string());
    if let Some(file) = &arguments.report {
        let text = format!("{report}\n{}", report.traces());
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if report.is_correct() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn println(line: &str) {
    // a closed terminal is not an error
    let _ = writeln!(stdout(), "{line}");
}
