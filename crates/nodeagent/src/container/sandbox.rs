//! The configuration of a pod's sandbox.

use super::dns::pod_dns;
use super::hostname::{hostname_and_domain, kernel_hostname};
use super::node_facts::NodeFacts;
use super::resources::{cpu_quota, cpu_shares, period_us};
use super::security::{dotted_sysctl, sandbox_security};
use crate::pod_facts::{CPU, MEMORY, ResourceList, pod_limits, pod_requests};
use crate::runtime::{LinuxResources, PortMapping, SandboxConfig, SandboxLinux};
use api::Quantity;
use api::core::v1::Pod;
use client::Note;
use names::node::{POD_NAME, POD_NAMESPACE, POD_UID};
use std::collections::BTreeMap;

/// Makes the configuration of a sandbox, and events about its pod. `attempt` counts the sandboxes of the pod. The
/// error is the text of `FailedCreatePodSandBox` after its prefix.
pub fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    cgroup_parent: &str,
    node: &NodeFacts,
) -> Result<(SandboxConfig, Vec<Note>), String> {
    let meta = &pod.metadata;
    let (dns, notes) = pod_dns(pod, &node.dns)?;
    let mut hostname = String::new();
    if !pod.spec.host_network {
        let (short, domain) = hostname_and_domain(pod, &node.dns.cluster_domain)?;
        hostname = kernel_hostname(&short, &domain, pod.spec.set_hostname_as_fqdn == Some(true))?;
    }
    let sysctls = pod.spec.security_context.iter().flat_map(|it| &it.sysctls);
    let config = SandboxConfig {
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        namespace: meta.namespace.clone(),
        attempt,
        hostname,
        log_directory: node
            .pod_log_dir(&meta.namespace, &meta.name, &meta.uid)
            .to_string_lossy()
            .into_owned(),
        dns: Some(dns),
        port_mappings: port_mappings(pod),
        labels: pod_labels(pod),
        annotations: meta.annotations.clone(),
        linux: SandboxLinux {
            cgroup_parent: cgroup_parent.to_owned(),
            sysctls: sysctls.map(|it| (dotted_sysctl(&it.name), it.value.clone())).collect(),
            security: sandbox_security(pod),
            overhead: Some(linux_resources(&pod.spec.overhead, &pod.spec.overhead, node)),
            resources: Some(linux_resources(&pod_requests(pod), &pod_limits(pod), node)),
        },
    };
    Ok((config, notes))
}

/// The labels of a pod and of its place, by which the agent finds it again.
fn pod_labels(pod: &Pod) -> BTreeMap<String, String> {
    let meta = &pod.metadata;
    let mut labels = meta.labels.clone();
    labels.insert(POD_NAME.to_owned(), meta.name.clone());
    labels.insert(POD_NAMESPACE.to_owned(), meta.namespace.clone());
    labels.insert(POD_UID.to_owned(), meta.uid.clone());
    labels
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let number = |port: i32| u16::try_from(port).unwrap_or(0);
    let ports = pod.spec.containers.iter().flat_map(|it| &it.ports);
    ports
        .map(|port| PortMapping {
            protocol: if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() },
            container_port: number(port.container_port),
            host_port: number(port.host_port),
            host_ip: port.host_ip.clone(),
        })
        .collect()
}

fn linux_resources(requests: &ResourceList, limits: &ResourceList, node: &NodeFacts) -> LinuxResources {
    let milli = |list: &ResourceList| list.get(CPU).map_or(0, Quantity::milli);
    let (request, limit) = (milli(requests), milli(limits));
    let mut resources = LinuxResources {
        cpu_shares: cpu_shares(if request == 0 { limit } else { request }),
        memory_limit: limits.get(MEMORY).map_or(0, Quantity::whole),
        ..LinuxResources::default()
    };
    if node.has_cpu_quota {
        resources.cpu_period = period_us(node.cpu_quota_period);
        resources.cpu_quota = cpu_quota(limit, resources.cpu_period).unwrap_or(0);
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::testing;
    use crate::objects::testing::object;

    #[test]
    fn a_sandbox_carries_what_brings_its_pod_back() {
        let pod: Pod = object(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","labels":{"app":"x"},"annotations":{"a":"b"}},
                "spec":{"hostname":"h","dnsPolicy":"Default",
                    "securityContext":{"sysctls":[{"name":"kernel/shm_rmid_forced","value":"1"}]},
                    "containers":[{"ports":[{"containerPort":80,"hostPort":8080},{"containerPort":53,"protocol":"UDP"}],
                        "resources":{"limits":{"cpu":"300m","memory":"32Mi"}}}]}}"#,
        );
        let (config, notes) = sandbox_config(&pod, 2, "/kubepods/podu", &testing::node()).unwrap();
        assert!(notes.is_empty());
        assert_eq!((&*config.hostname, config.attempt), ("h", 2));
        assert_eq!(config.log_directory, "/var/log/pods/n_p_u");
        assert_eq!(
            (&*config.labels["app"], &*config.labels[POD_UID], &*config.annotations["a"]),
            ("x", "u", "b")
        );
        let ports: Vec<_> =
            config.port_mappings.iter().map(|it| (&*it.protocol, it.container_port, it.host_port)).collect();
        assert_eq!(ports, [("TCP", 80, 8080), ("UDP", 53, 0)]);
        assert_eq!(config.linux.sysctls["kernel.shm_rmid_forced"], "1");
        assert_eq!(config.linux.cgroup_parent, "/kubepods/podu");
        let resources = config.linux.resources.unwrap();
        assert_eq!(
            (resources.cpu_shares, resources.cpu_quota, resources.memory_limit),
            (307, 30_000, 32 << 20)
        );
    }

    #[test]
    fn pods_on_the_nodes_network_keep_its_name() {
        let pod: Pod = object(r#"{"metadata":{"name":"p"},"spec":{"hostname":"h","hostNetwork":true}}"#);
        assert_eq!(sandbox_config(&pod, 0, "", &testing::node()).unwrap().0.hostname, "");
    }
}
