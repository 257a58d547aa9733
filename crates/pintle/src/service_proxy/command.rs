//! `pintle proxy`: the addresses of services on this node, with the flags and the configuration file of upstream's proxy.

use super::assembly::ServiceProxy;
use crate::cli::version;
use crate::logs::{self, Logs};
use crate::options::{ConfigErrors, target};
use crate::signals::Signals;
use crate::{process_metrics, threads, world};
use anyhow::Context as _;
use client::metrics::Metrics;
use client::{Rate, transport};
use metrics::Registry;
use names::Names;
use network::proxy::configuration::{Configuration, Flags};
use network::proxy::flag_table::help;
use network::proxy::proxy_writer::ProxyWriter;
use std::io::{Write as _, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the proxy with the arguments after its name.
pub fn run(arguments: &[String]) -> ExitCode {
    let flags = match Flags::parse(arguments) {
        Ok(flags) => flags,
        Err(errors) => return report(&errors, 2),
    };
    match start(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Configuration(errors)) => report(&errors, 1),
        Err(StartError::Other(error)) => report(&[format!("{error:#}")], 1),
    }
}

enum StartError {
    Configuration(Vec<String>),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        StartError::Other(error)
    }
}

fn report(errors: &[String], status: u8) -> ExitCode {
    for error in errors {
        // a closed terminal is not an error
        let _ = writeln!(stderr(), "pintle: {error}");
    }
    ExitCode::from(status)
}

fn start(flags: &Flags) -> Result<(), StartError> {
    if flags.asks_for_help {
        let _ = write!(stdout(), "{}", help());
        return Ok(());
    }
    if flags.asks_for_version {
        let _ = writeln!(stdout(), "{}", version());
        return Ok(());
    }
    let names = Names::kubernetes();
    let read = |file: &String| std::fs::read(file).with_context(|| format!("--config: cannot read {file}"));
    let file = flags.config.as_ref().map(read).transpose()?;
    let configuration =
        Configuration::load(flags, file.as_deref(), &names).map_err(StartError::Configuration)?;
    if let Some(file) = &flags.write_config_to {
        std::fs::write(file, configuration.to_yaml(&names))
            .with_context(|| format!("--write-config-to: cannot write {file}"))?;
        return Ok(());
    }
    let mut errors = ConfigErrors::default();
    let logs = Logs { verbosity: flags.verbosity, vmodule: flags.vmodule.clone(), ..Logs::default() };
    logs::init(&logs, &mut errors);
    errors.check().map_err(anyhow::Error::from)?;
    if flags.has_cleanup {
        return Ok(cleanup()?);
    }
    Ok(serve(flags, configuration, &names)?)
}

/// Deletes the rules of services.
fn cleanup() -> anyhow::Result<()> {
    let mut writer = ProxyWriter::open().context("cannot open netlink")?;
    let is_removed = writer.remove_tables().context("cannot delete the rules of services")?;
    tracing::info!(is_removed, "the rules of services are deleted");
    Ok(())
}

/// Runs the proxy until a signal arrives. The rules stay.
fn serve(flags: &Flags, configuration: Configuration, names: &Names) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let kubeconfig = Some(configuration.text("clientConnection.kubeconfig")).filter(|file| !file.is_empty());
    let server = target(kubeconfig.map(Path::new), flags.master.as_deref(), names, &mut errors);
    errors.check()?;
    let server = server.context("no API server to call: set clientConnection.kubeconfig or --master")?;
    let score = configuration.int("oomScoreAdj").to_string();
    if let Err(why) = std::fs::write("/proc/self/oom_score_adj", &score) {
        tracing::warn!(%why, score, "the OOM score was not set");
    }
    let burst = u32::try_from(configuration.int("clientConnection.burst")).unwrap_or(0).max(1);
    let rate = Rate { per_second: configuration.float("clientConnection.qps"), burst };
    let world = world::real()?;
    threads::single()?.block_on(async {
        let mut signals = Signals::new()?;
        let registry = Arc::new(Registry::new(metrics::Options::default()));
        process_metrics::register(&registry);
        let agent = format!("{}-proxy", names.prefix);
        let transport = transport::transport(&server, &agent, &Metrics::new(registry.clone()))?;
        let client = transport::client(&transport, rate, &world);
        let proxy = ServiceProxy::new(configuration, names, registry, &world);
        proxy.open_ports(&client, &world).await?;
        tokio::select! {
            ended = proxy.run(client, world) => ended,
            () = signals.next() => Ok(()),
        }
    })
}
