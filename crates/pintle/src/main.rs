//! The `pintle` binary: a whole control plane in one process.
//!
//! What always holds: this crate is the only one that reads the clock, randomness, the environment and the
//! command line, and the only one that writes to the terminal. What the user did wrong is told in one line
//! that begins with `pintle: ` and says what to do; exit status 1 for that, 2 for a wrong command line.

mod cli;
mod control_loops;
mod convert;
mod files;
mod kubeconfig;
mod logs;
mod options;
mod pki;
mod process;
mod up;
mod world;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context;
use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(stop) => return stop.tell(),
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // a terminal that is gone cannot be told
            let _ = writeln!(stderr(), "pintle: {}", one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Version => {
            let _ = writeln!(stdout(), "{}", cli::version());
            Ok(())
        }
        Command::Convert(asked) => convert::convert(&asked),
        Command::Up(asked) => {
            let mut wrong = options::Wrong::default();
            let verbosity = logs::begin(&asked.logs, &mut wrong);
            wrong.check()?;
            let world = world::real()?;
            runtime()?.block_on(up::up(*asked, world, verbosity))
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

/// Errors of others may span lines; ours do not.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
