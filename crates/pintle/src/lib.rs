//! The `pintle` program: a whole control plane in one process. The binary calls [`main`]; tests start clusters in their
//! own process with [`start_cluster`].
//!
//! Invariants: only this crate reads the clock, randomness, the environment and the command line, and only this crate
//! writes to the terminal. An error of the user is one line on stderr that begins with `pintle: ` and says what to do;
//! the exit status is then 1, or 2 for an invalid command line.
//!
//! Layers, from the bottom: `flags`, `options`, `cli`, `server_config`, then the commands. This file connects them.
//!
//! | module | what it is |
//! |---|---|
//! | `cli`, `flags`, `options` | commands; upstream's flag syntax; options of the API server by subject, feature gates |
//! | `server_config` | the configuration that options and `up` yield |
//! | `up`, `in_process`, `control_loops` | all components in one process, over memory |
//! | `controller_manager`, `scheduler`, `node_agent`, `component_port` | a component alone or beside the server, and its port |
//! | `pod_network`, `service_proxy`, `dns`, `cni_plugin` | the parts of `network`, likewise; this program as a CNI plugin |
//! | `token`, `join`, `leave`, `bootstrap` | nodes that come and go |
//! | `snapshot`, `adopt`, `convert` | objects to a file or another store; an upstream etcd; forms of objects |
//! | `images`, `runtime_process`, `runtime_server` | the embedded runtime: its images; this program as a process of it; the CRI |
//! | `clock`, `faults` | the time of a cluster for tests; faults on request |
//! | `cluster_thread` | clusters beside each other in one process; copies of a running one |
//! | `instruments`, `crash_point` | for tests: an observer of all changes, components that crash on request |
//! | `etcd_server`, `assets`, `envtest` | the etcd v3 API; a directory where test suites look for their programs |
//! | `check`, `manual` | what a machine lacks; completions and manual pages |
//! | `pki`, `kubeconfig`, `data_dir` | certificates and files of a cluster |
//! | `world`, `logs`, `log_output` | the only reader of clock and randomness; logs |

mod admin_client;
mod adopt;
mod assets;
mod bootstrap;
mod check;
mod cli;
mod clock;
mod cluster_thread;
mod cni_plugin;
mod component_port;
mod control_loops;
mod controller_manager;
mod convert;
mod crash_point;
mod data_dir;
mod deployment_mode;
mod dns;
mod envtest;
mod etcd_server;
mod faults;
mod files;
mod flags;
mod host;
mod images;
mod in_process;
mod instruments;
mod join;
mod kubeconfig;
mod leave;
mod log_output;
mod logs;
mod manual;
mod node_agent;
mod options;
mod pki;
mod pod_network;
mod process_metrics;
mod runtime_process;
mod runtime_server;
mod scheduler;
mod server_config;
mod service_proxy;
mod signals;
mod simulated_nodes;
mod snapshot;
mod threads;
mod token;
mod up;
mod world;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use cli::{Cli, Command, EarlyExit};
use cluster_thread::Forks;
pub use cluster_thread::{ClusterAddress, ClusterThread};
pub use crash_point::CrashPoint;
use deployment_mode::DeploymentMode;
pub use instruments::{Instruments, Observation, ObservedChange, Users};
use options::{ConfigErrors, InvalidConfig};
use server_config::ServerConfig;
use up::ClusterContext;
use world::ClusterWorld;
pub use world::real as real_world;

/// Starts a cluster in memory on a thread of its own, with these flags of `pintle up`. Any number of them run side by
/// side in a process.
///
/// # Errors
/// Wrong flags, all of them in one text, or the reason why the cluster does not start.
pub async fn start_cluster(
    flags: impl IntoIterator<Item = String>,
    instruments: Option<Instruments>,
) -> anyhow::Result<ClusterThread> {
    let line = ["pintle", "up", "--ephemeral"].into_iter().map(str::to_owned).chain(flags);
    let cli = Cli::read(line.map(Into::into), config_errors).map_err(|exit| match exit {
        EarlyExit::Help(text) => anyhow::anyhow!(text),
        EarlyExit::ConfigErrors(errors) => anyhow::anyhow!(errors.join("; ")),
    })?;
    let Command::Up(args) = cli.command else { anyhow::bail!("the flags are not those of pintle up") };
    let fork = args.from.as_deref().map(snapshot::Fork::read).transpose()?;
    ClusterThread::start(&args, fork, logs::Verbosity::fixed(), instruments).await
}

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    if let Some(plugin) = cni_plugin::called() {
        return cni_plugin::run(&plugin);
    }
    if let Some(role) = runtime_process::called() {
        return runtime_process::run(role);
    }
    disable_huge_pages();
    let cli = match Cli::read(std::env::args_os(), config_errors) {
        Ok(cli) => cli,
        Err(exit) => return exit.report(),
    };
    let status = run(cli);
    log_output::flush();
    status
}

fn run(cli: Cli) -> ExitCode {
    if let Command::Nodeagent(args) = &cli.command {
        return node_agent::run(&args.arguments);
    }
    if let Command::Proxy(args) = &cli.command {
        return service_proxy::run(&args.arguments);
    }
    if let Command::Etcd(args) = &cli.command {
        return etcd_server::run(&args.arguments);
    }
    match dispatch(cli) {
        Ok(status) => status,
        Err(error) => {
            let problems = match error.downcast::<InvalidConfig>() {
                Ok(InvalidConfig(several)) => several,
                Err(one) => vec![format!("{one:#}")],
            };
            for problem in problems {
                // a closed terminal is not an error
                let _ = writeln!(stderr(), "pintle: {}", one_line(&problem));
            }
            ExitCode::FAILURE
        }
    }
}

/// Turns transparent huge pages off: with them a small server holds twice the memory that it uses (decision 009). Must
/// run before threads start and before much is allocated.
fn disable_huge_pages() {
    #[cfg(target_os = "linux")]
    // a kernel without the setting has no huge pages
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// The errors in the option values of a command whose flags could be parsed.
fn config_errors(command: &Command) -> Vec<String> {
    let read = match command {
        Command::Up(up) => ServerConfig::read(&up.server, up.mode()),
        Command::Apiserver(server) => ServerConfig::read(server, DeploymentMode::Standalone),
        Command::ControllerManager(args) => return controller_manager::config_errors(args),
        Command::Scheduler(args) => return scheduler::config_errors(args),
        Command::Dns(args) => return dns::config_errors(args),
        Command::Nodeagent(_)
        | Command::Network(_)
        | Command::Proxy(_)
        | Command::Etcd(_)
        | Command::Assets(_)
        | Command::Convert(_)
        | Command::Images(_)
        | Command::Runtime(_)
        | Command::Snapshot(_)
        | Command::Migrate(_)
        | Command::Adopt(_)
        | Command::Token(_)
        | Command::Join(_)
        | Command::Leave(_)
        | Command::Check(_)
        | Command::Clock(_)
        | Command::Faults(_)
        | Command::Completion(_)
        | Command::Man(_)
        | Command::Version => return Vec::new(),
    };
    read.err().map(|InvalidConfig(errors)| errors).unwrap_or_default()
}

/// Runs a command. The status of `check` and `adopt` says what they found.
fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Check(args) => {
            let is_ready = check::check(&args, world::real()?)?;
            Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Adopt(args) => threads::runtime()?.block_on(adopt::adopt(*args, &world::real()?)),
        _ => run_command(cli).map(|()| ExitCode::SUCCESS),
    }
}

fn run_command(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Version => {
            let _ = writeln!(stdout(), "{}", cli::version());
            Ok(())
        }
        Command::Assets(args) => assets::assets(&args),
        Command::Convert(args) => convert::convert(&args),
        Command::Images(args) => threads::runtime()?.block_on(images::images(args, &world::real()?)),
        Command::Runtime(args) => {
            init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::runtime()?.block_on(runtime_server::runtime_server(*args, world))
        }
        Command::Snapshot(args) => threads::runtime()?.block_on(snapshot::snapshot(args, &world::real()?)),
        Command::Migrate(args) => threads::runtime()?.block_on(snapshot::migrate(*args, &world::real()?)),
        Command::Token(args) => threads::single()?.block_on(token::token(args, world::real()?)),
        Command::Join(args) => {
            let verbosity = init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::single()?.block_on(join::join(*args, world, verbosity))
        }
        Command::Leave(args) => threads::single()?.block_on(leave::leave(args, world::real()?)),
        // run before, because their errors or their status have a form of their own
        Command::Nodeagent(_)
        | Command::Proxy(_)
        | Command::Etcd(_)
        | Command::Check(_)
        | Command::Adopt(_) => Ok(()),
        Command::Clock(args) => threads::single()?.block_on(clock::clock(args, world::real()?)),
        Command::Faults(args) => threads::single()?.block_on(faults::faults(args, world::real()?)),
        Command::Completion(args) => manual::completion(&args),
        Command::Man(args) => manual::man(&args),
        Command::Up(args) => {
            let verbosity = init_log(&args.server.logs, &cli.warnings)?;
            let fork = args.from.as_deref().map(snapshot::Fork::read).transpose()?;
            let (runtime, world, clock) =
                match world::of_cluster(&args.clock, fork.as_ref().map(|it| it.taken_at))? {
                    ClusterWorld::Real(world) => (threads::runtime()?, world, None),
                    ClusterWorld::Manual(clock) => {
                        (threads::paused(&clock, false)?, clock.clone() as _, Some(clock))
                    }
                };
            let forks = Forks::of(&args, &verbosity);
            let clusters = forks.clone().map(|it| it as _);
            let context = ClusterContext { world, verbosity, clock, fork, clusters, instruments: None };
            runtime.block_on(async {
                let ended = up::up(&args, context).await;
                if let Some(forks) = forks {
                    forks.stop_all().await;
                }
                ended
            })
        }
        Command::Apiserver(args) => {
            let verbosity = init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::runtime()?.block_on(async {
                match envtest::loops()? {
                    Some(loops) => up::envtest_apiserver(*args, &loops, world, verbosity).await,
                    None => up::apiserver(*args, world, verbosity).await,
                }
            })
        }
        Command::ControllerManager(args) => {
            let verbosity = init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::runtime()?.block_on(controller_manager::controller_manager(*args, world, verbosity))
        }
        Command::Dns(args) => {
            init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::runtime()?.block_on(dns::dns(*args, world))
        }
        Command::Scheduler(args) => {
            let verbosity = init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::runtime()?.block_on(scheduler::scheduler(*args, world, verbosity))
        }
        Command::Network(args) => {
            init_log(&args.logs, &cli.warnings)?;
            let world = world::real()?;
            threads::single()?.block_on(pod_network::network(*args, world))
        }
    }
}

/// Initializes the log and writes the warnings about the command line to it.
fn init_log(args: &logs::Logs, warnings: &[String]) -> anyhow::Result<logs::Verbosity> {
    let mut errors = ConfigErrors::default();
    let verbosity = logs::init(args, &mut errors);
    errors.check()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(verbosity)
}

/// Joins the lines of an error text; errors of libraries may span several.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
