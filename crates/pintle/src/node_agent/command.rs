//! `pintle nodeagent`: the pods of this node, with the flags and the configuration file of upstream's kubelet.
//!
//! An error of the start is upstream's text after `pintle: `, with upstream's exit status.

use super::supervisor;
use crate::cli::version;
use crate::logs::{self, Format, Logs};
use crate::options::{ConfigErrors, Dialect, features, gates};
use crate::signals::Signals;
use crate::{cni_plugin, host, process_metrics, threads, world};
use apiserver::gates::FeatureGate;
use metrics::Registry;
use names::Names;
use nodeagent::assembly::{self, Parts};
use nodeagent::configuration::{Configuration, Flags, Gate, Gates, Loaded, StartError, help, load};
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Runs the agent with the arguments after its name.
pub fn run(arguments: &[String]) -> ExitCode {
    match start(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError { message, exit_status }) => {
            // a closed terminal is not an error
            let _ = writeln!(stderr(), "pintle: {message}");
            ExitCode::from(exit_status)
        }
    }
}

fn start(arguments: &[String]) -> Result<(), StartError> {
    let flags = Flags::parse(arguments)?;
    if flags.asks_for_help {
        let _ = write!(stdout(), "{}", help());
        return Ok(());
    }
    if flags.asks_for_version {
        let _ = writeln!(stdout(), "{}", version());
        return Ok(());
    }
    let names = dialect(&flags)?;
    let Loaded { configuration, gates } = load(&flags, &known_gates(), &names)?;
    if flags.asks_for_config {
        let _ = write!(stdout(), "{}", configuration.to_yaml(&names));
        return Ok(());
    }
    let failed = |why: anyhow::Error| StartError::new(format!("failed to run Kubelet: {why:#}"));
    let verbosity = log(&configuration).map_err(failed)?;
    warn_of_gates(&configuration);
    let world = world::real().map_err(failed)?;
    let registry = Arc::new(Registry::new(metrics::Options::default()));
    add_process_metrics(&registry, &gates);
    let mut parts = Parts {
        configuration,
        gates,
        flags,
        names,
        world,
        keys: Arc::new(rcgen::KeyPair::generate),
        hostname: host::host_name().unwrap_or_else(|| "localhost".to_owned()),
        home: std::env::home_dir(),
        registry,
        clients: None,
        command_line: host::command_line(),
        supervisor: supervisor::supervisor(),
        tracer: None,
        has_local_volumes: false,
        cni_plugin: Some(cni_plugin::BUILT_IN),
        set_verbosity: Arc::new(move |text| verbosity.set(text).map(drop)),
    };
    limit_process(&parts.configuration);
    threads::single().map_err(failed)?.block_on(async {
        let mut signals = Signals::new().map_err(failed)?;
        tracing::info!(version = version(), "the node agent starts");
        let process = (&*parts.names.agent, &*parts.hostname);
        let tracer =
            assembly::tracer(&parts.configuration, &parts.gates, process, &parts.world, &parts.registry)?;
        parts.tracer = tracer.clone();
        let ended = tokio::select! {
            ended = assembly::run(parts) => ended,
            () = signals.next() => Ok(()),
        };
        if let Some(tracer) = tracer {
            tracer.flush().await;
        }
        ended
    })
}

/// The names of the API server, by flags like its own.
fn dialect(flags: &Flags) -> Result<Names, StartError> {
    let given = |name| flags.given(name).map(str::to_owned);
    let dialect = flags.text("dialect").to_owned();
    if !matches!(&*dialect, "kubernetes" | "neutral") {
        let why = format!("--dialect: {dialect:?} is neither \"kubernetes\" nor \"neutral\"");
        return Err(StartError::new(why));
    }
    let dialect = Dialect { dialect, api_domain: given("api-domain"), vendor: given("vendor") };
    let mut errors = ConfigErrors::default();
    let names = dialect.read(&mut errors);
    errors.check().map(|()| names).map_err(|why| StartError::new(why.to_string()))
}

/// Warns of the feature gates of a configuration that have no effect.
pub(super) fn warn_of_gates(configuration: &Configuration) {
    for warning in features::warnings("featureGates", &configuration.feature_gates()) {
        tracing::warn!("{warning}");
    }
}

/// Sets the number of open files and the order in which the kernel ends processes without memory. As with upstream's
/// agent, failures are logged.
pub(super) fn limit_process(configuration: &Configuration) {
    let files = u64::try_from(configuration.int("maxOpenFiles")).unwrap_or(0);
    if let Err(why) = process_start::set_open_files(files) {
        tracing::warn!(%why, files, "the limit of open files was not set");
    }
    let score = configuration.int("oomScoreAdj").to_string();
    if let Err(why) = std::fs::write("/proc/self/oom_score_adj", &score) {
        tracing::warn!(%why, score, "the OOM score was not set");
    }
}

/// Registers the metrics of the process, its build and its feature gates.
pub(super) fn add_process_metrics(registry: &Registry, values: &Gates) {
    process_metrics::register(registry);
    let gate =
        |gate: gates::Gate| FeatureGate { name: gate.name, stage: gate.stage, open: values.value(gate.name) };
    let gates = apiserver::Gates { all: gates::all().map(gate).collect(), ..apiserver::Gates::default() };
    apiserver::discovery::metrics::add_component_metrics(registry, &gates);
}

/// All feature gates, as the configuration of an agent knows them.
pub(super) fn known_gates() -> Vec<Gate> {
    let gate = |gate: gates::Gate| Gate {
        name: gate.name,
        is_open: gate.open,
        stage: gate.stage,
        is_locked: gate.locked,
    };
    gates::all().map(gate).collect()
}

/// Initializes the log by the configuration.
fn log(configuration: &Configuration) -> anyhow::Result<logs::Verbosity> {
    let verbosity = configuration.at(&["logging", "verbosity"]).and_then(schema::Value::as_int).unwrap_or(0);
    let format = match configuration.text(&["logging", "format"]) {
        "json" => Format::Json,
        _ => Format::Text,
    };
    let modules = configuration.at(&["logging", "vmodule"]).and_then(schema::Value::as_list).unwrap_or(&[]);
    let level = |it: &schema::Value| it.at(&["verbosity"]).and_then(schema::Value::as_int).unwrap_or(0);
    let vmodule = modules.iter().map(|it| format!("{}={}", it.text(&["filePattern"]), level(it))).collect();
    let flush = configuration.at(&["logging", "flushFrequency"]).and_then(schema::Value::as_int).unwrap_or(0);
    let json = ["logging", "options", "json"];
    let split = configuration.at(&[&json[..], &["splitStream"]].concat());
    let size = configuration.text(&[&json[..], &["infoBufferSize"]].concat());
    let logs = Logs {
        verbosity: u8::try_from(verbosity).unwrap_or(u8::MAX),
        vmodule,
        logging_format: format,
        log_json_split_stream: split.and_then(schema::Value::as_bool).unwrap_or(false),
        log_json_info_buffer_size: logs::byte_size(size).unwrap_or(0),
        log_flush_frequency: Duration::from_nanos(u64::try_from(flush).unwrap_or(0)),
    };
    let mut errors = ConfigErrors::default();
    let verbosity = logs::init(&logs, &mut errors);
    errors.check()?;
    Ok(verbosity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(arguments: &[&str]) -> Result<Names, String> {
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        dialect(&Flags::parse(&arguments).unwrap()).map_err(|why| why.message)
    }

    #[test]
    fn the_agent_has_the_names_of_its_api_server() {
        assert_eq!(names_of(&[]), Ok(Names::kubernetes()));
        let neutral = ["--dialect=neutral", "--api-domain=acme.example", "--vendor=acme"];
        let names = names_of(&neutral).unwrap();
        assert_eq!(names, Names::neutral("acme.example", "acme"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.yaml");
        let text =
            "apiVersion: nodeagent.config.acme.example/v1beta1\nkind: NodeAgentConfiguration\nmaxPods: 7\n";
        std::fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let flags = Flags::parse(&["--write-config".to_owned(), config]).unwrap();
        let loaded = load(&flags, &known_gates(), &names).unwrap_or_else(|why| panic!("{}", why.message));
        assert_eq!(loaded.configuration.int("maxPods"), 7);
        assert!(load(&flags, &known_gates(), &Names::kubernetes()).is_err());
        assert!(names_of(&["--dialect=neutral"]).unwrap_err().contains("--api-domain: required"));
        assert!(names_of(&["--vendor=acme"]).unwrap_err().contains("without --dialect=neutral"));
        assert!(names_of(&["--dialect=own"]).unwrap_err().contains("neither"));
    }
}
