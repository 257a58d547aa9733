//! The command: parses its own command line, and serves until a signal arrives.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use etcd_server::{Location, Server, VERSION};
use metrics::Registry;

use super::flag_table::flag_rows;
use super::options::{ParsedLine, Settings, parse};
use crate::logs::{self, Logs};
use crate::options::ConfigErrors;
use crate::signals::Signals;
use crate::{process_metrics, threads, world};

/// The name of the command, and of a link that runs it.
const NAME: &str = "etcd";

/// The arguments of the command, if a command line runs it.
pub fn is_called(arguments: &[OsString], called: &str) -> Option<Vec<String>> {
    let skipped = match arguments.get(1) {
        _ if called == NAME => 1,
        Some(word) if word == NAME => 2,
        _ => return None,
    };
    Some(arguments.iter().skip(skipped).map(|it| it.to_string_lossy().into_owned()).collect())
}

/// Runs the server with the arguments after its name.
pub fn run(arguments: &[String]) -> ExitCode {
    let parsed = parse(arguments, &|name| std::env::var(name).ok());
    // a closed terminal is not an error
    match parsed {
        Ok(ParsedLine::Help) => {
            let _ = stdout().write_all(help().as_bytes());
            ExitCode::SUCCESS
        }
        Ok(ParsedLine::Version) => {
            let _ = stdout().write_all(version().as_bytes());
            ExitCode::SUCCESS
        }
        Ok(ParsedLine::Run(settings)) => match serve(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(stderr(), "pintle: {error:#}");
                ExitCode::FAILURE
            }
        },
        Err(errors) => {
            for error in errors {
                let _ = writeln!(stderr(), "pintle: {error}");
            }
            ExitCode::from(2)
        }
    }
}

/// Tools read the first line.
fn version() -> String {
    format!("etcd Version: {VERSION}\nPintle: {}\n", env!("CARGO_PKG_VERSION"))
}

fn help() -> String {
    let mut text = "Serves the etcd v3 API from an embedded store, as the only member of its cluster\n\n\
                    Usage: pintle etcd [FLAGS]\n\nFlags, each also as a variable such as ETCD_DATA_DIR:\n"
        .to_owned();
    for row in flag_rows() {
        // writing to a string cannot fail
        let _ = writeln!(text, "  --{} <{}>\n      {}", row.name, row.kind.placeholder(), row.description());
    }
    text
}

fn serve(settings: Settings) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    logs::init(&Logs { verbosity: settings.verbosity, ..Logs::default() }, &mut errors);
    errors.check()?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let world = world::real()?;
    threads::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let registry = Arc::new(Registry::new(metrics::Options::default()));
        process_metrics::register(&registry);
        if let Location::Directory { path, sync: false } = &settings.options.location {
            tracing::warn!(path = %path.display(), "writes are not synced: a crash of the machine may lose them");
        }
        let server = Server::start(settings.options, registry, world).await?;
        for address in server.addresses() {
            tracing::info!(%address, revision = server.revision(), "serving client requests");
        }
        tokio::select! {
            () = signals.next() => {
                server.stop().await;
                Ok(())
            }
            error = server.failed() => Err(anyhow::anyhow!("{error}; restart the server once its disk works")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_named_etcd_run_it() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(is_called(&words("/bin/etcd --name a"), "etcd").unwrap(), ["--name", "a"]);
        assert_eq!(is_called(&words("pintle etcd --name a"), "pintle").unwrap(), ["--name", "a"]);
        assert_eq!(is_called(&words("pintle up"), "pintle"), None);
        assert!(version().starts_with("etcd Version: 3.5."));
    }
}
