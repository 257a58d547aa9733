//! The `pintle` binary: a whole control plane in one process.
//!
//! What always holds: this crate is the only one that reads the clock, randomness, the environment and the
//! command line, and the only one that writes to the terminal. What the user did wrong is told in one line
//! that begins with `pintle: ` and says what to do; exit status 1 for that, 2 for a wrong command line.

mod cli;
mod control_loops;
mod controller_manager;
mod convert;
mod data_dir;
mod files;
mod flags;
mod kubeconfig;
mod logs;
mod options;
mod pki;
mod process;
mod server_config;
mod signals;
mod up;
mod world;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context;

use cli::{Cli, Command};
use options::{ConfigErrors, Problems};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
            let verbosity = begin_log(&asked.server.logs, &cli.warnings)?;
            let world = world::real()?;
            runtime()?.block_on(up::up(*asked, world, verbosity))
        }
        Command::Apiserver(asked) => {
            let verbosity = begin_log(&asked.logs, &cli.warnings)?;
            let world = world::real()?;
            runtime()?.block_on(up::apiserver(*asked, world, verbosity))
        }
        Command::ControllerManager(asked) => {
            let verbosity = begin_log(&asked.logs, &cli.warnings)?;
            let world = world::real()?;
            runtime()?.block_on(controller_manager::controller_manager(*asked, world, verbosity))
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        // what is deep needs more of it where nothing is optimized; only what is used is ever there
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// Begins the log, with what it should say about the command line.
fn begin_log(asked: &logs::Logs, warnings: &[String]) -> anyhow::Result<logs::Verbosity> {
    let mut wrong = ConfigErrors::default();
    let verbosity = logs::begin(asked, &mut wrong);
    wrong.check()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(verbosity)
}

/// Errors of others may span lines; ours do not.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
