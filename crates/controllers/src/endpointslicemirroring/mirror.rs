//! The desired slices of an `Endpoints` object: one for each family and list of ports.

use crate::controller_ref;
use crate::endpoint::subsets;
use crate::slices::{self, EndpointIdentity, Plan, Ports, Template};
use api::Resource;
use api::core::v1::{EndpointAddress, Endpoints};
use api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use names::Names;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses that are not mirrored.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SkippedAddresses {
    pub invalid: usize,
    pub too_many: usize,
}

pub struct Mirror<'m> {
    pub endpoints: &'m Endpoints,
    pub most: usize,
    pub manager: &'m str,
}

#[derive(Default)]
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

fn endpoint(address: EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip],
        conditions: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        hostname: non_empty(address.hostname),
        node_name: address.node_name,
        target_ref: address.target_ref,
        ..Endpoint::default()
    }
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|it| !it.is_empty())
}

impl Mirror<'_> {
    pub fn plan(&self, existing: &[Arc<EndpointSlice>], names: &Names) -> (Plan, SkippedAddresses) {
        let (groups, skipped) = self.groups();
        let mut by_ports: BTreeMap<(String, Ports), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            by_ports
                .entry((slice.address_type.clone(), slices::ports(&slice.ports)))
                .or_default()
                .push(slice.clone());
        }
        let mut plan = Plan::default();
        for (key, group) in groups.into_iter().filter(|(_, group)| !group.endpoints.is_empty()) {
            let mut same = by_ports.remove(&key).unwrap_or_default();
            let first = (!same.is_empty()).then(|| same.remove(0));
            plan.delete.extend(same);
            self.plan_one(first, group, key.0, names, &mut plan);
        }
        plan.delete.extend(by_ports.into_values().flatten());
        plan.recycle(self.endpoints);
        (plan, skipped)
    }

    fn groups(&self) -> (BTreeMap<(String, Ports), Group>, SkippedAddresses) {
        let mut groups: BTreeMap<(String, Ports), Group> = BTreeMap::new();
        let mut skipped = SkippedAddresses::default();
        for subset in subsets::repack(self.endpoints.subsets.clone()) {
            let ports: Vec<EndpointPort> = subset.ports.into_iter().map(port).collect();
            let key = slices::ports(&ports);
            let ready = subset.addresses.into_iter().map(|it| (it, true));
            let not_ready = subset.not_ready_addresses.into_iter().map(|it| (it, false));
            let mut added = 0;
            for (address, ready) in ready.chain(not_ready) {
                if added >= self.most {
                    skipped.too_many += 1;
                    continue;
                }
                let Ok(ip) = address.ip.parse::<IpAddr>() else {
                    skipped.invalid += 1;
                    continue;
                };
                added += 1;
                let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
                let group = groups.entry((family.to_owned(), key.clone())).or_default();
                group.ports.clone_from(&ports);
                let endpoint = endpoint(address, ready);
                group.endpoints.insert(slices::identity(&endpoint), endpoint);
            }
        }
        (groups, skipped)
    }

    fn plan_one(
        &self,
        existing: Option<Arc<EndpointSlice>>,
        mut group: Group,
        family: String,
        names: &Names,
        plan: &mut Plan,
    ) {
        let template = self.template(family, group.ports, names);
        let Some(existing) = existing else {
            let mut new = template.slice();
            new.endpoints = group.endpoints.into_values().take(self.most).collect();
            return plan.create.push(new);
        };
        let same_endpoints = existing.endpoints.len() == group.endpoints.len()
            && existing.endpoints.iter().all(|it| {
                group.endpoints.get(&slices::identity(it)).is_some_and(|new| slices::unchanged(new, it))
            });
        if same_endpoints
            && existing.metadata.labels == template.labels
            && existing.metadata.annotations == template.annotations
        {
            return;
        }
        let mut next = (*existing).clone();
        next.endpoints = existing
            .endpoints
            .iter()
            .filter_map(|it| group.endpoints.remove(&slices::identity(it)))
            .collect();
        next.endpoints.extend(group.endpoints.into_values());
        next.endpoints.truncate(self.most);
        next.metadata.labels = template.labels;
        next.metadata.annotations = template.annotations;
        plan.update.push(next);
    }

    fn template(&self, family: String, ports: Vec<EndpointPort>, names: &Names) -> Template {
        let mut labels = self.endpoints.metadata.labels.clone();
        labels.insert(slices::service_label(names), self.endpoints.name().to_owned());
        labels.insert(slices::manager_label(names), self.manager.to_owned());
        let mut annotations = self.endpoints.metadata.annotations.clone();
        annotations.remove(&names.well_known_under("endpoints", "last-change-trigger-time"));
        annotations.remove(&names.well_known_under("kubectl", "last-applied-configuration"));
        Template {
            namespace: self.endpoints.namespace().to_owned(),
            prefix: self.endpoints.name().to_owned(),
            owner: controller_ref::controller_reference(self.endpoints),
            labels,
            annotations,
            address_type: family,
            ports,
        }
    }
}

fn port(port: api::core::v1::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name),
        port: Some(port.port),
        protocol: non_empty(port.protocol),
        app_protocol: port.app_protocol,
        ..EndpointPort::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn endpoints(subsets: Value) -> Endpoints {
        object(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"l": "v"}, "annotations": {
                "a": "b", "kubectl.kubernetes.io/last-applied-configuration": "x",
                "endpoints.kubernetes.io/last-change-trigger-time": "y",
            }},
            "subsets": subsets,
        }))
    }

    fn plan(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>], most: usize) -> (Plan, SkippedAddresses) {
        Mirror { endpoints, most, manager: "m" }.plan(existing, &Names::kubernetes())
    }

    #[test]
    fn each_family_and_list_of_ports_has_a_slice() {
        let all = endpoints(json!([
            {"addresses": [{"ip": "10.0.0.1", "hostname": "h"}, {"ip": "fd00::1"}, {"ip": "nonsense"}],
             "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 81}]},
        ]));
        let (created, skipped) = plan(&all, &[], 1000);
        assert_eq!(skipped, SkippedAddresses { invalid: 1, too_many: 0 });
        let mut counts: Vec<_> =
            created.create.iter().map(|it| (it.address_type.clone(), it.endpoints.len())).collect();
        counts.sort();
        assert_eq!(counts, [("IPv4", 1), ("IPv4", 2), ("IPv6", 1)].map(|(it, count)| (it.to_owned(), count)));
        let slice = created.create.iter().find(|it| it.endpoints.len() == 2).unwrap();
        assert_eq!(
            slice.metadata.annotations.iter().collect::<Vec<_>>(),
            [(&"a".to_owned(), &"b".to_owned())]
        );
        assert_eq!(slice.metadata.labels.len(), 3);
        assert_eq!(slice.endpoints[0].hostname.as_deref(), Some("h"));
        assert_eq!(slice.endpoints[1].conditions.ready, Some(false));
        // a second reconciliation writes nothing
        let existing: Vec<_> = created
            .create
            .into_iter()
            .enumerate()
            .map(|(at, mut it)| {
                it.metadata.name = format!("s-{at}");
                Arc::new(it)
            })
            .collect();
        assert!(plan(&all, &existing, 1000).0.is_empty());
        // a change of ports reuses a slice of the family
        let other = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 90}]}]));
        let (next, _) = plan(&other, &existing, 1000);
        assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 2));
        let (gone, _) = plan(&endpoints(json!([])), &existing, 1000);
        assert_eq!((gone.create.len(), gone.update.len(), gone.delete.len()), (0, 0, 3));
    }

    #[test]
    fn too_many_addresses_are_skipped() {
        let many: Vec<_> = (0..5).map(|it| json!({"ip": format!("10.0.0.{it}")})).collect();
        let all = endpoints(json!([{"addresses": many}]));
        let (created, skipped) = plan(&all, &[], 3);
        assert_eq!(
            (created.create[0].endpoints.len(), skipped),
            (3, SkippedAddresses { invalid: 0, too_many: 2 })
        );
    }
}
