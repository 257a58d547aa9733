//! A server under more than it can do, with thousands of watches that say nothing, and with much for its loops to do.
//!
//! ```text
//! pressure --server URL --cert C --key K --pid PID idle --watches 10000
//! pressure --server URL --cert C --key K --pid PID overload --user-token T --seconds 60
//! ```
//!
//! What always holds: it ends with an error where the server does not hold what it should, and says what. Memory is the
//! server's resident set by `/proc`, on Linux only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::target::{Target, TargetArgs};
use clap::{Parser, Subcommand};

mod bulk;
mod heartbeats;
mod idle;
mod loops;
mod neighbour;
mod overload;
mod request;
mod soak;

use bulk::Flood;
use heartbeats::Heartbeats;
use neighbour::Neighbours;
use overload::Load;
use soak::Soak;

/// Puts a server under pressure, and says whether it held
#[derive(Parser)]
#[command(name = "pressure")]
struct Cli {
    #[command(flatten)]
    target: TargetArgs,
    /// The server's processes, to measure the memory of
    #[arg(long)]
    pid: Vec<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Open watches on which nothing happens, and tell what each costs in memory
    Idle {
        #[arg(long, default_value_t = 10_000)]
        watches: usize,
        /// Connections that they share
        #[arg(long, default_value_t = 100)]
        connections: usize,
        #[arg(long, default_value = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0")]
        path: String,
        /// The most that each may cost, in kilobytes
        #[arg(long, default_value_t = 12.0)]
        at_most: f64,
    },
    /// Ask for several times as much as the server can do, as a user without privileges, while the administrator goes on
    Overload {
        /// The token of that user, that may read the path
        #[arg(long)]
        user_token: String,
        #[arg(long, default_value = "/api/v1/namespaces")]
        path: String,
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// How many times as many requests at a time as are needed to keep the server busy
        #[arg(long, default_value_t = 5)]
        times: usize,
        /// How much memory it may take beyond what it had, in megabytes
        #[arg(long, default_value_t = 200.0)]
        at_most: f64,
    },
    /// A user lists much, many times at once, while the administrator opens connections: how long does that take?
    Bulk {
        /// The token of that user, who may read config maps
        #[arg(long)]
        user_token: String,
        /// The size of each list
        #[arg(long, default_value_t = 30)]
        megabytes: usize,
        #[arg(long, default_value_t = 2000)]
        at_a_time: usize,
        #[arg(long, default_value_t = 20)]
        connections: usize,
        #[arg(long, default_value_t = 20.0)]
        seconds: f64,
        /// The most that a connection and a GET may take, in milliseconds
        #[arg(long, default_value_t = 1000.0)]
        at_most: f64,
    },
    /// One user at a steady pace among others at their share, of whom one then wants ten times that: how much longer
    /// does the first one wait?
    Neighbour {
        /// The tokens of users that may read the path: the quiet one, the noisy one, others
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<String>,
        #[arg(long, default_value = "/api/v1/namespaces/default/configmaps")]
        path: String,
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Requests per second of the quiet one
        #[arg(long, default_value_t = 100.0)]
        rate: f64,
        /// Requests at a time of each of the others
        #[arg(long, default_value_t = 8)]
        share: usize,
        /// How many times that the noisy one wants
        #[arg(long, default_value_t = 10)]
        times: usize,
        /// How many times as long the quiet one may wait
        #[arg(long, default_value_t = 2.0)]
        at_most: f64,
    },
    /// Namespaces full of objects are deleted at once: how long until the last is gone?
    Namespaces {
        #[arg(long, default_value_t = 1_000)]
        count: usize,
        /// Objects in each
        #[arg(long, default_value_t = 20)]
        objects: usize,
        /// The most that it may take, in seconds
        #[arg(long, default_value_t = 60.0)]
        at_most: f64,
    },
    /// A large deployment is made: how long until its pods are in the API?
    Deployment {
        #[arg(long, default_value_t = 1_000)]
        replicas: usize,
        /// The most that it may take, in seconds
        #[arg(long, default_value_t = 5.0)]
        at_most: f64,
    },
    /// Nodes renew their leases: what does a renewal cost the server?
    Heartbeats {
        #[arg(long, default_value_t = 1_000)]
        nodes: usize,
        /// Connections that they share
        #[arg(long, default_value_t = 100)]
        connections: usize,
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        /// Seconds between two renewals of a lease
        #[arg(long, default_value_t = 10.0)]
        renewals: f64,
        /// Seconds between two writes of a node's status
        #[arg(long, default_value_t = 300.0)]
        statuses: f64,
        /// The most CPU time that one may cost, in milliseconds
        #[arg(long, default_value_t = 0.1)]
        at_most: f64,
    },
    /// A steady mix of everything for a long time: memory and the store must stay flat
    Soak {
        #[arg(long, default_value_t = 3600.0)]
        seconds: f64,
        /// Changes per second
        #[arg(long, default_value_t = 200.0)]
        rate: f64,
        /// The server's data directory, whose size to follow
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// By how much either may grow from the second fifth to the last
        #[arg(long, default_value_t = 0.1)]
        growth: f64,
    },
}

fn length(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).context("--seconds")
}

// one thread: on a small machine the server is to have the rest
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let target = Arc::new(Target::new(&cli.target)?);
    match cli.command {
        Command::Idle { watches, connections, path, at_most } => {
            idle::idle(&target, &cli.pid, watches, connections.clamp(1, watches.max(1)), &path, at_most).await
        }
        Command::Overload { user_token, path, seconds, times, at_most } => {
            let user = TargetArgs { token: Some(user_token), cert: None, key: None, ..cli.target };
            let load = Load { user: Arc::new(Target::new(&user)?), path, length: length(seconds)?, times };
            overload::overload(&target, &cli.pid, load, at_most).await
        }
        Command::Bulk { user_token, megabytes, at_a_time, connections, seconds, at_most } => {
            let user = TargetArgs { token: Some(user_token), cert: None, key: None, ..cli.target };
            let (user, at_most) = (Arc::new(Target::new(&user)?), length(at_most / 1e3)?);
            let length = length(seconds)?;
            let flood = Flood { user, megabytes, at_a_time, connections, length, at_most };
            bulk::bulk(&target, flood).await
        }
        Command::Neighbour { tokens, path, seconds, rate, share, times, at_most } => {
            let user = |token: &String| {
                let user =
                    TargetArgs { token: Some(token.clone()), cert: None, key: None, ..cli.target.clone() };
                Target::new(&user).map(Arc::new)
            };
            let mut others = tokens.iter().map(user).collect::<anyhow::Result<Vec<_>>>()?;
            ensure!(others.len() > 1, "--tokens: it takes two, or more");
            let (quiet, length) = (others.remove(0), length(seconds)?);
            let options = Neighbours { quiet, others, path, length, rate, share, times, at_most };
            neighbour::neighbours(options).await
        }
        Command::Namespaces { count, objects, at_most } => {
            loops::namespaces(&target, &cli.pid, count, objects, at_most).await
        }
        Command::Deployment { replicas, at_most } => {
            loops::deployment(&target, &cli.pid, replicas, at_most).await
        }
        Command::Heartbeats { nodes, connections, seconds, renewals, statuses, at_most } => {
            let (renewals, statuses) = (length(renewals)?, length(statuses)?);
            let load =
                Heartbeats { nodes, connections, length: length(seconds)?, renewals, statuses, at_most };
            heartbeats::heartbeats(&target, &cli.pid, load).await
        }
        Command::Soak { seconds, rate, data_dir, growth } => {
            let options = Soak { length: length(seconds)?, rate, data: data_dir, growth };
            soak::soak(&target, &cli.pid, options).await
        }
    }
}
