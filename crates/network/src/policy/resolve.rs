//! The addresses and ports that policies allow to a pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::objects::{
    Direction, NamespaceLabels, Peer, PodInfo, PolicyInfo, PolicyPort, PolicyRule, PortMatch,
};
use crate::netfilter::{AddressRange, Family, Protocol, merge, subtract};

/// An inclusive range of ports of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

/// A rule in one family: peers and ports that are allowed together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolvedRule {
    /// Merged; all peers if absent.
    pub peers: Option<Vec<AddressRange>>,
    /// Merged; all packets if absent, those of other protocols too.
    pub ports: Option<Vec<PortRange>>,
    /// Single peers with a port of their own: ports that are named by the peer.
    pub endpoints: BTreeSet<(IpAddr, Protocol, u16)>,
}

/// Objects of the cluster.
pub struct ClusterView<'a> {
    pub namespaces: &'a NamespaceLabels,
    pub pods: &'a [&'a PodInfo],
}

impl ClusterView<'_> {
    /// The rules that hold for a pod in a direction, unless no policy isolates it.
    pub fn rules_for<'p>(
        &self,
        pod: &PodInfo,
        direction: Direction,
        family: Family,
        policies: impl IntoIterator<Item = &'p PolicyInfo>,
    ) -> Option<BTreeSet<ResolvedRule>> {
        let mut is_isolated = false;
        let mut resolved = BTreeSet::new();
        for policy in policies {
            if policy.namespace != pod.namespace || !policy.pods.matches(&pod.labels) {
                continue;
            }
            let Some(rules) = policy.directions.get(&direction) else { continue };
            is_isolated = true;
            let rules = rules.iter().map(|rule| self.resolve(rule, pod, policy, direction, family));
            resolved.extend(rules.filter(|rule| !rule.is_empty()));
        }
        is_isolated.then_some(resolved)
    }

    fn resolve(
        &self,
        rule: &PolicyRule,
        pod: &PodInfo,
        policy: &PolicyInfo,
        direction: Direction,
        family: Family,
    ) -> ResolvedRule {
        let ranges =
            |peers: &Vec<Peer>| merge(peers.iter().flat_map(|peer| self.ranges(peer, policy, family)));
        let peers = rule.peers.as_ref().map(ranges);
        let mut ports = Vec::new();
        let mut endpoints = BTreeSet::new();
        for port in rule.ports.iter().flatten() {
            match (&port.port, direction) {
                (PortMatch::All, _) => {
                    ports.push(PortRange { protocol: port.protocol, first: 0, last: u16::MAX });
                }
                (PortMatch::Range { first, last }, _) => {
                    ports.push(PortRange { protocol: port.protocol, first: *first, last: *last });
                }
                // the destination names its ports
                (PortMatch::Named(name), Direction::Ingress) => {
                    let named = named_ports(pod, name, port.protocol);
                    ports.extend(named.map(|number| PortRange {
                        protocol: port.protocol,
                        first: number,
                        last: number,
                    }));
                }
                (PortMatch::Named(name), Direction::Egress) => {
                    endpoints.extend(self.named_endpoints(rule, policy, port, name, family));
                }
            }
        }
        ResolvedRule { peers, ports: rule.ports.as_ref().map(|_| merge_ports(ports)), endpoints }
    }

    /// The addresses of a peer in a family.
    fn ranges(&self, peer: &Peer, policy: &PolicyInfo, family: Family) -> Vec<AddressRange> {
        match peer {
            Peer::Addresses { network, except } => {
                let network = Some(*network).filter(|network| Family::of(network.first()) == family);
                subtract(network.map(AddressRange::from), except.iter().copied().map(AddressRange::from))
            }
            Peer::Pods { .. } => {
                let addresses = self.pods_of(peer, policy).flat_map(|pod| pod.addresses.iter().copied());
                let addresses = addresses.filter(|address| Family::of(*address) == family);
                addresses.map(|address| AddressRange { first: address, last: address }).collect()
            }
        }
    }

    fn pods_of<'a>(&'a self, peer: &'a Peer, policy: &'a PolicyInfo) -> impl Iterator<Item = &'a PodInfo> {
        let is_selected = move |pod: &&PodInfo| match peer {
            Peer::Addresses { .. } => false,
            Peer::Pods { pods, namespaces } => {
                let in_namespace = match namespaces {
                    None => pod.namespace == policy.namespace,
                    Some(selector) => {
                        let labels = self.namespaces.get(&pod.namespace);
                        labels.is_some_and(|labels| selector.matches(labels))
                    }
                };
                in_namespace && pods.matches(&pod.labels)
            }
        };
        self.pods.iter().copied().filter(is_selected)
    }

    /// The peers of a rule that have a port of a name, each with the number that it has there.
    fn named_endpoints(
        &self,
        rule: &PolicyRule,
        policy: &PolicyInfo,
        port: &PolicyPort,
        name: &str,
        family: Family,
    ) -> BTreeSet<(IpAddr, Protocol, u16)> {
        let all: Vec<&PodInfo> = match &rule.peers {
            None => self.pods.to_vec(),
            Some(peers) => peers.iter().flat_map(|peer| self.pods_of(peer, policy)).collect(),
        };
        let mut endpoints = BTreeSet::new();
        for pod in all {
            for number in named_ports(pod, name, port.protocol) {
                let addresses = pod.addresses.iter().filter(|address| Family::of(**address) == family);
                endpoints.extend(addresses.map(|address| (*address, port.protocol, number)));
            }
        }
        endpoints
    }
}

impl ResolvedRule {
    /// Whether it allows nothing.
    fn is_empty(&self) -> bool {
        let has_peers = self.peers.as_ref().is_none_or(|peers| !peers.is_empty());
        let has_ports = self.ports.as_ref().is_none_or(|ports| !ports.is_empty());
        !(has_peers && has_ports) && self.endpoints.is_empty()
    }
}

fn named_ports<'a>(pod: &'a PodInfo, name: &'a str, protocol: Protocol) -> impl Iterator<Item = u16> + 'a {
    let named = pod.named_ports.iter().filter(move |port| port.name == name && port.protocol == protocol);
    named.map(|port| port.port)
}

/// The same ports in sorted ranges that neither overlap nor touch.
fn merge_ports(mut ranges: Vec<PortRange>) -> Vec<PortRange> {
    ranges.sort_unstable();
    let mut merged: Vec<PortRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.protocol == range.protocol && range.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}
