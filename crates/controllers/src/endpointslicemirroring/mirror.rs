//! The slices that say what endpoints say: one for each family and each list of ports.

use crate::controller_ref;
use crate::endpoint::subsets;
use crate::slices::{self, EndpointIdentity, Plan, Ports, Template};
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::ResourceExt;
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
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.filter(|it| !it.is_empty()),
        node_name: address.node_name,
        target_ref: address.target_ref,
        ..Endpoint::default()
    }
}

impl Mirror<'_> {
    pub fn plan(&self, existing: &[Arc<EndpointSlice>], names: &Names) -> (Plan, SkippedAddresses) {
        let (groups, skipped) = self.groups();
        let mut there: BTreeMap<(String, Ports), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            let ports = slices::ports(slice.ports.as_deref().unwrap_or_default());
            there.entry((slice.address_type.clone(), ports)).or_default().push(slice.clone());
        }
        let mut plan = Plan::default();
        for (key, group) in groups.into_iter().filter(|(_, group)| !group.endpoints.is_empty()) {
            let mut same = there.remove(&key).unwrap_or_default();
            let first = (!same.is_empty()).then(|| same.remove(0));
            plan.delete.extend(same);
            self.plan_one(first, group, key.0, names, &mut plan);
        }
        plan.delete.extend(there.into_values().flatten());
        plan.recycle(self.endpoints);
        (plan, skipped)
    }

    fn groups(&self) -> (BTreeMap<(String, Ports), Group>, SkippedAddresses) {
        let mut groups: BTreeMap<(String, Ports), Group> = BTreeMap::new();
        let mut skipped = SkippedAddresses::default();
        for subset in subsets::repack(self.endpoints.subsets.clone().unwrap_or_default()) {
            let ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(port).collect();
            let key = slices::ports(&ports);
            let ready = subset.addresses.into_iter().flatten().map(|it| (it, true));
            let not_ready = subset.not_ready_addresses.into_iter().flatten().map(|it| (it, false));
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
        there: Option<Arc<EndpointSlice>>,
        mut group: Group,
        family: String,
        names: &Names,
        plan: &mut Plan,
    ) {
        let template = self.template(family, group.ports, names);
        let Some(there) = there else {
            let mut new = template.slice();
            new.endpoints = group.endpoints.into_values().take(self.most).collect();
            return plan.create.push(new);
        };
        let same_endpoints = there.endpoints.len() == group.endpoints.len()
            && there.endpoints.iter().all(|it| {
                group.endpoints.get(&slices::identity(it)).is_some_and(|wanted| slices::unchanged(wanted, it))
            });
        if same_endpoints
            && *there.labels() == template.labels
            && *there.annotations() == template.annotations
        {
            return;
        }
        let mut next = (*there).clone();
        next.endpoints =
            there.endpoints.iter().filter_map(|it| group.endpoints.remove(&slices::identity(it))).collect();
        next.endpoints.extend(group.endpoints.into_values());
        next.endpoints.truncate(self.most);
        next.metadata.labels = Some(template.labels);
        next.metadata.annotations = Some(template.annotations);
        plan.update.push(next);
    }

    fn template(&self, family: String, ports: Vec<EndpointPort>, names: &Names) -> Template {
        let mut labels = self.endpoints.labels().clone();
        labels.insert(slices::service_label(names), self.endpoints.name_any());
        labels.insert(slices::manager_label(names), self.manager.to_owned());
        let mut annotations = self.endpoints.annotations().clone();
        annotations.remove(&names.well_known_under("endpoints", "last-change-trigger-time"));
        annotations.remove(&names.well_known_under("kubectl", "last-applied-configuration"));
        Template {
            namespace: self.endpoints.namespace().unwrap_or_default(),
            prefix: self.endpoints.name_any(),
            owner: controller_ref::controller_reference(self.endpoints),
            labels,
            annotations,
            address_type: family,
            ports,
        }
    }
}

fn port(port: &k8s_openapi::api::core::v1::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn endpoints(subsets: Value) -> Endpoints {
        let endpoints = json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"l": "v"}, "annotations": {
                "a": "b", "kubectl.kubernetes.io/last-applied-configuration": "x",
                "endpoints.kubernetes.io/last-change-trigger-time": "y",
            }},
            "subsets": subsets,
        });
        serde_json::from_value(endpoints).unwrap()
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
        let (made, skipped) = plan(&all, &[], 1000);
        assert_eq!(skipped, SkippedAddresses { invalid: 1, too_many: 0 });
        let mut told: Vec<_> =
            made.create.iter().map(|it| (it.address_type.clone(), it.endpoints.len())).collect();
        told.sort();
        assert_eq!(told, [("IPv4", 1), ("IPv4", 2), ("IPv6", 1)].map(|(it, count)| (it.to_owned(), count)));
        let slice = made.create.iter().find(|it| it.endpoints.len() == 2).unwrap();
        assert_eq!(slice.annotations().iter().collect::<Vec<_>>(), [(&"a".to_owned(), &"b".to_owned())]);
        assert_eq!(slice.labels().len(), 3);
        assert_eq!(slice.endpoints[0].hostname.as_deref(), Some("h"));
        assert_eq!(slice.endpoints[1].conditions.as_ref().unwrap().ready, Some(false));
        // done once there is nothing more to do
        let there: Vec<_> = made
            .create
            .into_iter()
            .enumerate()
            .map(|(at, mut it)| {
                it.metadata.name = Some(format!("s-{at}"));
                Arc::new(it)
            })
            .collect();
        assert!(plan(&all, &there, 1000).0.is_empty());
        // ports that change use a slice of the family again
        let other = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 90}]}]));
        let (next, _) = plan(&other, &there, 1000);
        assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 2));
        let (gone, _) = plan(&endpoints(json!([])), &there, 1000);
        assert_eq!((gone.create.len(), gone.update.len(), gone.delete.len()), (0, 0, 3));
    }

    #[test]
    fn too_many_addresses_are_left_out() {
        let many: Vec<_> = (0..5).map(|it| json!({"ip": format!("10.0.0.{it}")})).collect();
        let all = endpoints(json!([{"addresses": many}]));
        let (made, skipped) = plan(&all, &[], 3);
        assert_eq!(
            (made.create[0].endpoints.len(), skipped),
            (3, SkippedAddresses { invalid: 0, too_many: 2 })
        );
    }
}
