//! Policies, pods and namespaces as the rules need them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::core::v1::Pod;
use api::meta::v1::LabelSelector;
use api::networking::v1::NetworkPolicy;
use apimachinery::labels::Selector;

use crate::netfilter::Protocol;

/// Pods by their namespace and labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSelection {
    pub namespaces: NamespaceSelection,
    pub pods: Selector,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamespaceSelection {
    Name(String),
    Labels(Selector),
}

/// A pod with addresses of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct PodInfo {
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub node: String,
    /// When the pod was created: of two pods with one address, the later one has it.
    pub created: i64,
    pub addresses: Vec<IpAddr>,
    /// Ports of its containers that have names.
    pub named_ports: Vec<NamedPort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

impl PodInfo {
    /// A pod that has addresses of its own and has not ended.
    pub fn read(pod: &Pod) -> Option<Self> {
        if pod.spec.host_network || matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return None;
        }
        let mut addresses: Vec<IpAddr> =
            pod.status.pod_ips.iter().filter_map(|address| address.ip.parse().ok()).collect();
        addresses.extend(pod.status.pod_ip.parse::<IpAddr>());
        addresses.sort_unstable();
        addresses.dedup();
        let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let named_ports = ports.filter(|port| !port.name.is_empty()).filter_map(|port| {
            Some(NamedPort {
                name: port.name.clone(),
                protocol: protocol(&port.protocol)?,
                port: u16::try_from(port.container_port).ok()?,
            })
        });
        (!addresses.is_empty()).then(|| Self {
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            node: pod.spec.node_name.clone(),
            created: pod.metadata.creation_timestamp.map_or(0, |time| time.0),
            addresses,
            named_ports: named_ports.collect(),
        })
    }
}

/// The direction of the connections that a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    Ingress,
    Egress,
}

/// A policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyInfo {
    pub namespace: String,
    pub pods: Selector,
    /// The rules of the directions in which it isolates pods.
    pub directions: BTreeMap<Direction, Vec<PolicyRule>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRule {
    /// All peers if absent.
    pub peers: Option<Vec<Peer>>,
    /// All ports if absent.
    pub ports: Option<Vec<PolicyPort>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Peer {
    /// Pods, in the policy's namespace or in selected ones.
    Pods {
        pods: Selector,
        namespaces: Option<Selector>,
    },
    Addresses {
        network: crate::netfilter::Prefix,
        except: Vec<crate::netfilter::Prefix>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct PolicyPort {
    pub protocol: Protocol,
    pub port: PortMatch,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PortMatch {
    All,
    Range { first: u16, last: u16 },
    Named(String),
}

impl PolicyInfo {
    /// A policy, unless its selector is invalid, which the API server does not accept.
    pub fn read(policy: &NetworkPolicy) -> Option<Self> {
        let spec = &policy.spec;
        let has = |direction: &str| spec.policy_types.iter().any(|it| it == direction);
        // the API server sets the types; older objects may have none
        let is_ingress = has("Ingress") || spec.policy_types.is_empty();
        let is_egress = has("Egress") || spec.policy_types.is_empty() && !spec.egress.is_empty();
        let mut directions = BTreeMap::new();
        if is_ingress {
            let rules = spec.ingress.iter().map(|rule| read_rule(&rule.from, &rule.ports));
            directions.insert(Direction::Ingress, rules.collect());
        }
        if is_egress {
            let rules = spec.egress.iter().map(|rule| read_rule(&rule.to, &rule.ports));
            directions.insert(Direction::Egress, rules.collect());
        }
        Some(Self {
            namespace: policy.metadata.namespace.clone(),
            pods: selector(&spec.pod_selector)?,
            directions,
        })
    }

    /// The pods that it isolates.
    pub fn target(&self) -> PodSelection {
        let namespaces = NamespaceSelection::Name(self.namespace.clone());
        PodSelection { namespaces, pods: self.pods.clone() }
    }
}

fn read_rule(
    peers: &[api::networking::v1::NetworkPolicyPeer],
    ports: &[api::networking::v1::NetworkPolicyPort],
) -> PolicyRule {
    let peer = |peer: &api::networking::v1::NetworkPolicyPeer| match &peer.ip_block {
        Some(block) => Some(Peer::Addresses {
            network: block.cidr.parse().ok()?,
            except: block.except.iter().filter_map(|network| network.parse().ok()).collect(),
        }),
        None => Some(Peer::Pods {
            pods: match peer.pod_selector.as_deref() {
                Some(pods) => selector(pods)?,
                None => Selector::default(),
            },
            namespaces: match peer.namespace_selector.as_deref() {
                Some(namespaces) => Some(selector(namespaces)?),
                None => None,
            },
        }),
    };
    let port = |port: &api::networking::v1::NetworkPolicyPort| {
        Some(PolicyPort {
            protocol: protocol(port.protocol.as_deref().unwrap_or_default())?,
            port: match &port.port {
                None => PortMatch::All,
                Some(api::IntOrString::String(name)) => PortMatch::Named(name.clone()),
                Some(api::IntOrString::Int(number)) => {
                    let first = u16::try_from(*number).ok()?;
                    let last = port.end_port.and_then(|end| u16::try_from(end).ok()).unwrap_or(first);
                    PortMatch::Range { first, last: last.max(first) }
                }
            },
        })
    };
    // a peer or port that cannot be read allows nothing
    PolicyRule {
        peers: (!peers.is_empty()).then(|| peers.iter().filter_map(peer).collect()),
        ports: (!ports.is_empty()).then(|| ports.iter().filter_map(port).collect()),
    }
}

fn protocol(name: &str) -> Option<Protocol> {
    if name.is_empty() { Some(Protocol::TCP) } else { Protocol::from_name(name) }
}

/// A selector; an empty one selects everything.
fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector).ok()
}
