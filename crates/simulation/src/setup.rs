//! The surroundings of simulated pods: labels, and nothing on a machine.

use crate::pods::SimulatedPods;
use api::core::v1::{Pod, Secret};
use client::Note;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node;
use nodeagent::pod::setup::{ConfigError, ContainerInput, PodSetup, SetupError};
use nodeagent::runtime::{ContainerConfig, ContainerStatus, NamespaceMode, SandboxConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time before wrong settings are read again.
const RETRY: Duration = Duration::from_secs(10);

/// See the module.
pub struct SimulatedSetup(pub Arc<SimulatedPods>);

fn labels(pod: &Pod, container: Option<&str>) -> BTreeMap<String, String> {
    let meta = &pod.metadata;
    let of_pod =
        [(node::POD_NAME, &*meta.name), (node::POD_NAMESPACE, &meta.namespace), (node::POD_UID, &meta.uid)];
    let of_container = container.map(|name| (node::CONTAINER_NAME, name));
    of_pod.into_iter().chain(of_container).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl PodSetup for SimulatedSetup {
    fn prepare<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), SetupError>> {
        let prepared = self.0.prepare(pod).map_err(|why| SetupError {
            notes: vec![Note::warning("InvalidSimulation", why)],
            retry_after: RETRY,
        });
        async { prepared }.boxed()
    }

    fn next_refresh(&self, _: &Pod) -> Option<Duration> {
        None
    }

    fn sandbox<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
        attempt: u32,
    ) -> BoxFuture<'a, Result<SandboxConfig, String>> {
        let mut config = SandboxConfig {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            namespace: pod.metadata.namespace.clone(),
            attempt,
            labels: labels(pod, None),
            ..SandboxConfig::default()
        };
        if pod.spec.host_network {
            config.linux.security.namespaces.network = NamespaceMode::Node;
        }
        async { Ok(config) }.boxed()
    }

    fn container<'a>(
        &'a self,
        input: ContainerInput<'a>,
    ) -> BoxFuture<'a, Result<ContainerConfig, ConfigError>> {
        let annotations = BTreeMap::from([
            (node::CONTAINER_HASH.to_owned(), input.hash.to_owned()),
            (node::CONTAINER_RESTART_COUNT.to_owned(), input.attempt.to_string()),
        ]);
        let name = &input.spec.container.name;
        let config = ContainerConfig {
            name: name.clone(),
            attempt: input.attempt,
            image: input.image.id.clone(),
            labels: labels(input.pod, Some(name)),
            annotations,
            ..ContainerConfig::default()
        };
        async { Ok(config) }.boxed()
    }

    fn pull_secrets<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Vec<Arc<Secret>>> {
        async { Vec::new() }.boxed()
    }

    /// A pod whose containers are gone, with the disk or the process of the simulation, has its status left.
    fn logged_attempts(&self, pod: &Pod, container: &str) -> u32 {
        let status = &pod.status;
        let mut statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
        let last = statuses.find(|it| it.name == container && !it.container_id.is_empty());
        last.map_or(0, |it| u32::try_from(it.restart_count).unwrap_or(0).saturating_add(1))
    }

    fn container_started(&self, _: &Pod, _: &str, _: &str, _: u32) {}

    fn container_removed(&self, _: &Pod, _: &ContainerStatus) {}

    fn clean<'a>(&'a self, _: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }
}
