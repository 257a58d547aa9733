//! Options of the agent's parts that follow from flags and the configuration alone.

use crate::agent::StaticPodOptions;
use crate::configuration::{Configuration, Flags, StartError};
use crate::images::docker_config::DockerConfig;
use crate::images::providers::{ProviderSet, config};
use crate::images::pull_rate::PullRate;
use crate::images::{CredentialProviders, PullLimits};
use crate::node::MachineFiles;
use crate::objects::cache::Strategy;
use crate::pod::dead_containers::DeadContainerPolicy;
use crate::stats::AgentMetrics;
use env::World;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Credentials of the node: its files, and the programs of the configuration.
pub fn credential_providers(
    flags: &Flags,
    root_dir: &Path,
    home: Option<&Path>,
    world: &World,
    metrics: AgentMetrics,
) -> Result<Arc<dyn CredentialProviders>, StartError> {
    let (file, directory) =
        (flags.text("image-credential-provider-config"), flags.text("image-credential-provider-bin-dir"));
    let loaded = match (file.is_empty(), directory.is_empty()) {
        (true, true) => Ok(Vec::new()),
        _ => config::load(Path::new(file), Path::new(directory)),
    };
    match loaded {
        Ok(configs) => {
            let files = DockerConfig::new(root_dir, home);
            Ok(Arc::new(ProviderSet::new(configs, files, world.clone(), metrics)))
        }
        Err(why) => Err(StartError::new(format!("\"Failed to register CRI auth plugins\" err={why:?}"))),
    }
}

/// How many ended containers are kept; a negative number is no limit.
pub fn dead_containers(flags: &Flags) -> DeadContainerPolicy {
    let limit = |flag| flags.text(flag).parse::<i64>().ok().and_then(|it| usize::try_from(it).ok());
    let min_age = schema::time::parse_duration(flags.text("minimum-container-ttl-duration")).unwrap_or(0);
    DeadContainerPolicy {
        per_container: limit("maximum-dead-containers-per-container"),
        total: limit("maximum-dead-containers"),
        min_age: Duration::from_nanos(u64::try_from(min_age).unwrap_or(0)),
    }
}

/// The files that identify the machine.
pub fn machine_files(flags: &Flags) -> MachineFiles {
    let paths = |flag| flags.text(flag).split(',').filter(|it| !it.is_empty()).map(PathBuf::from).collect();
    MachineFiles { machine_ids: paths("machine-id-file"), boot_ids: paths("boot-id-file") }
}

pub fn pull_limits(configuration: &Configuration) -> PullLimits {
    PullLimits {
        parallel: configuration.flag(&["serializeImagePulls"]).then_some(1),
        rate: PullRate::new(configuration.int("registryPullQPS"), configuration.int("registryBurst")),
    }
}

pub fn strategy(configuration: &Configuration) -> Strategy {
    match configuration.text(&["configMapAndSecretChangeDetectionStrategy"]) {
        "Cache" => Strategy::Cache,
        "Get" => Strategy::Get,
        _ => Strategy::Watch,
    }
}

pub fn static_pods(configuration: &Configuration) -> StaticPodOptions {
    let some = |field: &str| Some(configuration.text(&[field]).to_owned()).filter(|it| !it.is_empty());
    let headers = configuration.at(&["staticPodURLHeader"]).and_then(schema::Value::as_map);
    let url_headers = headers.into_iter().flat_map(|map| map.iter()).flat_map(|(name, values)| {
        let values = values.as_list().unwrap_or(&[]).iter().filter_map(schema::Value::as_str);
        values.map(|value| (name.to_string(), value.to_owned())).collect::<Vec<_>>()
    });
    StaticPodOptions {
        path: some("staticPodPath").map(PathBuf::from),
        path_interval: configuration.duration(&["fileCheckFrequency"]),
        url: some("staticPodURL"),
        url_headers: url_headers.collect(),
        url_interval: configuration.duration(&["httpCheckFrequency"]),
    }
}
