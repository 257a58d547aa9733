//! Tests of the configuration.

mod decoding;
mod encoding;
mod profiles;
mod validation;

use super::*;
use names::Names;

const GATES: Gates = Gates {
    pod_scheduling_readiness: true,
    dynamic_resource_allocation: false,
    volume_capacity_priority: false,
};

fn head(version: Version) -> String {
    let version = version.name();
    format!("apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n")
}

fn read_as(version: Version, text: &str) -> Result<Configuration, ConfigError> {
    let text = format!("{}{text}", head(version));
    Configuration::read(text.as_bytes(), &Names::kubernetes(), GATES)
}

fn read(text: &str) -> Configuration {
    read_as(Version::V1, text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn default() -> Configuration {
    Configuration::with_defaults(&Names::kubernetes(), GATES)
}

fn enabled(configuration: &Configuration, point: ExtensionPoint) -> Vec<String> {
    let enabled = &configuration.profiles[0].plugins.get(point).enabled;
    enabled.iter().map(|plugin| format!("{}:{}", plugin.name, plugin.weight)).collect()
}
