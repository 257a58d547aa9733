//! What the runtime of a simulated node knows of its pods: behaviour, images, addresses.

use crate::behaviour::{ContainerBehaviour, Rule, of_container};
use api::core::v1::Pod;
use nodeagent::images::reference::with_default_tag;
use nodeagent::pod::workers::PodWorkers;
use nodeagent::runtime::simulated::{Behaviour, Pull, Simulation};
use nodeagent::runtime::{ContainerConfig, NamespaceMode, SandboxConfig};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock, Weak};

/// The range of simulated pods: half of 10.0.0.0/8.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// Addresses of the range of a node that has none in its spec.
const RANGE: u32 = 256;

/// Addresses of the pods of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRange {
    first: u32,
    size: u32,
}

impl PodRange {
    /// The range in the spec of a node, or that of its number in the fleet.
    pub fn of(pod_cidr: &str, number: u32) -> Self {
        Self::parse(pod_cidr).unwrap_or(PodRange { first: FIRST_ADDRESS + number * RANGE, size: RANGE })
    }

    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length) = (address.parse::<Ipv4Addr>().ok()?, length.parse::<u32>().ok()?);
        let size = 1_u32.checked_shl(32_u32.checked_sub(length)?)?;
        Some(PodRange { first: u32::from(address) & !(size - 1), size })
    }

    /// The first address that is not in use, without those of the network itself and of all its hosts.
    fn free(self, used: &BTreeSet<u32>) -> Option<u32> {
        (1..self.size.saturating_sub(1)).find(|it| !used.contains(it))
    }
}

#[derive(Default)]
struct State {
    /// Images that take a pull.
    pulls: HashMap<String, Pull>,
    pulled: HashSet<String>,
    /// Addresses in use, by their number in the range.
    addresses: BTreeSet<u32>,
}

/// See the module.
pub struct SimulatedPods {
    id_prefix: String,
    range: PodRange,
    rules: Arc<[Rule]>,
    state: Mutex<State>,
    /// The workers, which know the pods.
    workers: OnceLock<Weak<PodWorkers>>,
}

impl SimulatedPods {
    pub fn new(node: &str, range: PodRange, rules: Arc<[Rule]>) -> Self {
        let id_prefix = format!("{node}-");
        SimulatedPods { id_prefix, range, rules, state: Mutex::default(), workers: OnceLock::new() }
    }

    /// Sets the workers of the node, once.
    pub fn set_workers(&self, workers: &Arc<PodWorkers>) {
        let _ = self.workers.set(Arc::downgrade(workers));
    }

    fn workers(&self) -> Option<Arc<PodWorkers>> {
        self.workers.get()?.upgrade()
    }

    /// The behaviour of a container; as usual if its settings are wrong.
    pub fn behaviour(&self, uid: &str, container: &str) -> ContainerBehaviour {
        let pod = self.workers().and_then(|it| it.pod(uid));
        pod.and_then(|pod| of_container(&pod, container, &self.rules).ok()).unwrap_or_default()
    }

    /// Checks the settings of a pod, and learns which of its images take a pull.
    pub fn prepare(&self, pod: &Pod) -> Result<(), String> {
        let mut pulls = Vec::new();
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let pull = of_container(pod, &container.name, &self.rules)?.pull;
            if pull != Pull::default()
                && let Ok(image) = with_default_tag(&container.image)
            {
                pulls.push((image, pull));
            }
        }
        self.state.lock().pulls.extend(pulls);
        Ok(())
    }

    /// Forgets all images, as when the disk is lost.
    pub fn remove_images(&self) {
        self.state.lock().pulled.clear();
    }
}

impl Simulation for SimulatedPods {
    fn id_prefix(&self) -> &str {
        &self.id_prefix
    }

    fn container(&self, pod: &SandboxConfig, container: &ContainerConfig) -> Behaviour {
        self.behaviour(&pod.uid, &container.name).life
    }

    fn has_image(&self, image: &str) -> bool {
        let state = self.state.lock();
        !state.pulls.contains_key(image) || state.pulled.contains(image)
    }

    fn pull(&self, image: &str, _: &SandboxConfig) -> Pull {
        let mut state = self.state.lock();
        let pull = state.pulls.get(image).cloned().unwrap_or_default();
        if pull.error.is_none() && state.pulls.contains_key(image) {
            state.pulled.insert(image.to_owned());
        }
        pull
    }

    fn allocate(&self, pod: &SandboxConfig) -> Vec<String> {
        if pod.linux.security.namespaces.network == NamespaceMode::Node {
            return Vec::new();
        }
        let used = &mut self.state.lock().addresses;
        let free = self.range.free(used);
        used.extend(free);
        free.map(|number| Ipv4Addr::from(self.range.first + number).to_string()).into_iter().collect()
    }

    fn release(&self, ips: &[String]) {
        let used = &mut self.state.lock().addresses;
        for ip in ips.iter().filter_map(|it| it.parse::<Ipv4Addr>().ok()) {
            used.remove(&u32::from(ip).wrapping_sub(self.range.first));
        }
    }

    fn container_ended(&self, pod_uid: &str, container_id: &str) {
        if let Some(workers) = self.workers() {
            workers.container_ended(pod_uid, container_id.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> SimulatedPods {
        SimulatedPods::new("n", PodRange::of("", 257), Arc::new([]))
    }

    #[test]
    fn addresses_are_of_the_range_of_the_node_and_come_back() {
        let pods = pods();
        let config = SandboxConfig::default();
        assert_eq!(pods.allocate(&config), ["10.129.1.1"]);
        assert_eq!(pods.allocate(&config), ["10.129.1.2"]);
        pods.release(&["10.129.1.1".to_owned()]);
        assert_eq!(pods.allocate(&config), ["10.129.1.1"]);
        for _ in 0..252 {
            assert_eq!(pods.allocate(&config).len(), 1);
        }
        assert!(pods.allocate(&config).is_empty());
        let mut of_node = SandboxConfig::default();
        of_node.linux.security.namespaces.network = NamespaceMode::Node;
        pods.release(&["10.129.1.7".to_owned()]);
        assert!(pods.allocate(&of_node).is_empty());
    }

    #[test]
    fn the_range_in_the_spec_of_a_node_is_used() {
        let expected = PodRange { first: u32::from_be_bytes([10, 244, 3, 0]), size: 128 };
        assert_eq!(PodRange::of("10.244.3.0/25", 7), expected);
        for other in ["", "fd00::/64", "10.0.0.0/33", "10.0.0.0"] {
            assert_eq!(PodRange::of(other, 0).first, FIRST_ADDRESS, "{other}");
        }
    }

    #[test]
    fn an_image_that_takes_a_pull_is_there_after_it() {
        let pods = pods();
        let pod = |error: &str| -> Pod {
            let text = format!(
                r#"{{"metadata":{{"uid":"u","annotations":{{"simulation.pintle.io/pull-{error}"}}}},"spec":{{"containers":[{{"name":"c","image":"web"}}]}}}}"#
            );
            api::from_json(text.as_bytes()).unwrap()
        };
        let config = SandboxConfig::default();
        assert!(pods.has_image("web:latest"));
        pods.prepare(&pod(r#"error":"gone"#)).unwrap();
        assert!(!pods.has_image("web:latest"));
        assert_eq!(pods.pull("web:latest", &config).error.as_deref(), Some("gone"));
        assert!(!pods.has_image("web:latest"));
        pods.prepare(&pod(r#"delay":"1s"#)).unwrap();
        assert_eq!(pods.pull("web:latest", &config).delay.as_secs(), 1);
        assert!(pods.has_image("web:latest") && pods.has_image("other:1"));
        pods.remove_images();
        assert!(!pods.has_image("web:latest"));
    }
}
