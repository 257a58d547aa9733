//! The `pintle` binary: a whole control plane in one process.
//!
//! What always holds: this crate is the only one that reads the clock, randomness, the environment and the
//! command line, and the only one that writes to the terminal. What the user did wrong is told in one line
//! that begins with `pintle: ` and says what to do; exit status 1 for that, 2 for a wrong command line.

mod cli;
mod control_loops;
mod convert;
mod files;
mod flags;
mod kubeconfig;
mod options;
mod pki;
mod up;
mod wanted;
mod world;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};
use options::Problems;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The environment variable that overrides `-v`, in the syntax of tracing's filters.
const LOG_VARIABLE: &str = "PINTLE_LOG";

fn main() -> ExitCode {
    small_pages();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(stop) => return stop.tell(),
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let problems = match error.downcast::<Problems>() {
                Ok(Problems(several)) => several,
                Err(one) => vec![format!("{one:#}")],
            };
            for problem in problems {
                // a terminal that is gone cannot be told
                let _ = writeln!(stderr(), "pintle: {}", one_line(&problem));
            }
            ExitCode::FAILURE
        }
    }
}

/// Memory in pages of the usual size: with large ones a small server holds twice what it uses (decision 009). Before
/// there are threads, and before much is allocated.
fn small_pages() {
    #[cfg(target_os = "linux")]
    // where the kernel knows nothing of it there are none
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Version => {
            let _ = writeln!(stdout(), "{}", cli::version());
            Ok(())
        }
        Command::Convert(asked) => convert::convert(&asked),
        Command::Up(asked) => {
            log_to_stderr(asked.server.verbose, &cli.warnings);
            let world = world::real()?;
            runtime()?.block_on(up::up(*asked, world))
        }
        Command::Apiserver(asked) => {
            log_to_stderr(asked.verbose, &cli.warnings);
            let world = world::real()?;
            runtime()?.block_on(up::apiserver(*asked, world))
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Begins the log, with what it should say about the command line.
fn log_to_stderr(verbose: u8, warnings: &[String]) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose).min(3)];
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let colours = stderr().is_terminal();
    // the error would mean that a log is set up already
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colours).try_init();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Errors of others may span lines; ours do not.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
