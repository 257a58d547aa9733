//! The downward API: fields of a pod and resources of its containers as text, for environments and volumes.
//!
//! Everything here is pure. Error texts are upstream's.

use crate::pod_facts::{CPU, EPHEMERAL_STORAGE, MEMORY, ResourceList, hugepage_size};
use api::Quantity;
use api::core::v1::{Container, Pod, ResourceFieldSelector};
use schema::problem::quoted;
use std::collections::BTreeMap;

/// Addresses that are known once a pod has its sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct Addresses<'a> {
    pub host_ip: &'a str,
    pub pod_ips: &'a [String],
}

/// A field of a pod, for an environment variable.
pub fn env_field(pod: &Pod, path: &str, addresses: Addresses<'_>) -> Result<String, String> {
    Ok(match path {
        "spec.nodeName" => pod.spec.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" => addresses.host_ip.to_owned(),
        "status.podIP" => addresses.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => addresses.pod_ips.join(","),
        _ => return field(pod, path),
    })
}

/// A field of a pod's metadata, for a file.
pub fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((base, key)) = subscript(path) {
        let map = match base {
            "metadata.annotations" => &meta.annotations,
            "metadata.labels" => &meta.labels,
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        return Ok(map.get(key).cloned().unwrap_or_default());
    }
    match path {
        "metadata.annotations" => Ok(lines(&meta.annotations)),
        "metadata.labels" => Ok(lines(&meta.labels)),
        "metadata.name" => Ok(meta.name.clone()),
        "metadata.namespace" => Ok(meta.namespace.clone()),
        "metadata.uid" => Ok(meta.uid.clone()),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// Splits `metadata.labels['app']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(base, _)| !base.is_empty())
}

/// A line `key="value"` for each entry.
fn lines(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect::<Vec<_>>().join("\n")
}

/// A resource of a container: of the named one, or of `own` where no name is given. Limits that are not set are those
/// of the node.
pub fn resource(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    own: Option<&Container>,
    allocatable: &ResourceList,
) -> Result<String, String> {
    let name = &selector.container_name;
    let container = match own {
        Some(own) if name.is_empty() || *name == own.name => own,
        _ => pod
            .spec
            .containers
            .iter()
            .chain(&pod.spec.init_containers)
            .find(|it| it.name == *name)
            .ok_or_else(|| format!("container {name} not found"))?,
    };
    let unsupported = || format!("Unsupported container resource : {}", selector.resource);
    let (list, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let amounts = match list {
        "limits" => &container.resources.limits,
        "requests" => &container.resources.requests,
        _ => return Err(unsupported()),
    };
    let is_of_node = list == "limits" && [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&resource);
    let own = amounts.get(resource).filter(|amount| !(is_of_node && amount.is_zero()));
    let amount =
        own.or_else(|| allocatable.get(resource).filter(|_| is_of_node)).cloned().unwrap_or_default();
    match resource {
        CPU => Ok(divide(amount.milli(), divisor(selector).milli())),
        MEMORY | EPHEMERAL_STORAGE => Ok(divide(amount.whole(), divisor(selector).whole())),
        other if hugepage_size(other).is_some() => Ok(divide(amount.whole(), divisor(selector).whole())),
        _ => Err(unsupported()),
    }
}

fn divisor(selector: &ResourceFieldSelector) -> Quantity {
    match selector.divisor.is_zero() {
        true => Quantity::new(1),
        false => selector.divisor.clone(),
    }
}

/// The quotient, rounded up.
fn divide(amount: i64, divisor: i64) -> String {
    ((amount as f64 / divisor.max(1) as f64).ceil() as i64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        api::from_json(
            br#"{"metadata":{"name":"p","namespace":"n","uid":"u","labels":{"b":"2","a":"x\"y\n"},
                 "annotations":{"k/z":"v"}},
                 "spec":{"nodeName":"node","serviceAccountName":"sa","containers":[{"name":"c","resources":{
                 "limits":{"cpu":"1500m","memory":"64Mi"},"requests":{"cpu":"125m","memory":"32Mi"}}},{"name":"d"}]}}"#,
        )
        .unwrap()
    }

    #[test]
    fn fields_have_upstreams_texts() {
        let pod = pod();
        let ips = ["10.0.0.1".to_owned(), "fd00::1".to_owned()];
        let addresses = Addresses { host_ip: "192.0.2.1", pod_ips: &ips };
        let check = |path: &str, expected: Result<&str, &str>| {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(env_field(&pod, path, addresses), expected, "{path}");
        };
        check("metadata.name", Ok("p"));
        check("metadata.labels", Ok("a=\"x\\\"y\\n\"\nb=\"2\""));
        check("metadata.labels['b']", Ok("2"));
        check("metadata.annotations['k/z']", Ok("v"));
        check("metadata.annotations['none']", Ok(""));
        check("metadata.name['b']", Err("fieldPath \"metadata.name['b']\" does not support subscript"));
        check("spec.nodeName", Ok("node"));
        check("status.hostIP", Ok("192.0.2.1"));
        check("status.podIP", Ok("10.0.0.1"));
        check("status.podIPs", Ok("10.0.0.1,fd00::1"));
        check("spec.priority", Err("unsupported fieldPath: spec.priority"));
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let pod = pod();
        let allocatable = ResourceList::from([
            (CPU.to_owned(), Quantity::new(2)),
            (MEMORY.to_owned(), Quantity::from_bytes(4 << 30)),
        ]);
        let check = |container: &str, name: &str, divisor: &str, expected: &str| {
            let selector = ResourceFieldSelector {
                container_name: container.to_owned(),
                resource: name.to_owned(),
                divisor: divisor.parse().unwrap(),
                ..ResourceFieldSelector::default()
            };
            let value = resource(&pod, &selector, None, &allocatable);
            assert_eq!(value.unwrap_or_else(|error| error), expected, "{container} {name} {divisor}");
        };
        check("c", "limits.cpu", "0", "2");
        check("c", "limits.cpu", "1m", "1500");
        check("c", "limits.memory", "1Mi", "64");
        check("c", "requests.cpu", "0", "1");
        check("c", "requests.memory", "0", "33554432");
        check("d", "limits.cpu", "0", "2");
        check("d", "limits.memory", "1Gi", "4");
        check("d", "requests.cpu", "0", "0");
        check("d", "limits.hugepages-2Mi", "0", "0");
        check("e", "limits.cpu", "0", "container e not found");
        check("c", "limits.gpu", "0", "Unsupported container resource : limits.gpu");
    }
}
