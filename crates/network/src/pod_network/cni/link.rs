//! The link of a pod: a veth pair with addresses, routes and neighbours at both ends.

use super::super::derived::{host_link_name, mac_address};
use super::super::namespace::Namespace;
use super::super::netlink::{MacAddress, Neighbour, Netlink, NetlinkError, Route, VethPair};
use super::super::sysctl;
use super::error::{CniError, code};
use super::parameters::Parameters;
use super::result::{CniResult, Interface};
use apimachinery::net::{Family, Network};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Marks the routes to pods of this node, among those that other programs have made.
const POD_ROUTE_PROTOCOL: u8 = 113;

/// The next hop of a pod. No machine has these addresses: a static neighbour entry leads to the node's end.
const GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
const GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => GATEWAY_V4,
        Family::V6 => GATEWAY_V6,
    }
}

fn everywhere(family: Family) -> Network {
    match family {
        Family::V4 => Network::around(Ipv4Addr::UNSPECIFIED.into(), 0),
        Family::V6 => Network::around(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

fn host_of(address: IpAddr) -> Network {
    Network::around(address, Family::of(&address).bits())
}

/// The addresses that the node has routes for.
pub async fn addresses_in_use(node: &Netlink) -> Result<Vec<IpAddr>, NetlinkError> {
    let routes = node.routes(POD_ROUTE_PROTOCOL).await?;
    Ok(routes.into_iter().map(|route| route.destination.base()).collect())
}

/// Deletes the link of a container. Routes and neighbour entries go with it, and so does the pod's end.
pub async fn detach(node: &Netlink, container: &str, interface: &str) -> Result<(), NetlinkError> {
    match node.link(&host_link_name(container, interface)).await? {
        Some(link) => node.delete_link(link.index).await,
        None => Ok(()),
    }
}

/// See the module.
pub struct PodLink<'a> {
    node_name: String,
    pod_name: &'a str,
    node_mac: MacAddress,
    pod_mac: MacAddress,
    addresses: &'a [IpAddr],
    mtu: u32,
}

impl<'a> PodLink<'a> {
    pub fn new(parameters: &'a Parameters, addresses: &'a [IpAddr], mtu: u32) -> Self {
        let Parameters { container, interface, .. } = parameters;
        PodLink {
            node_name: host_link_name(container, interface),
            pod_name: interface,
            node_mac: mac_address(&["node", container, interface]),
            pod_mac: mac_address(&["pod", container, interface]),
            addresses,
            mtu,
        }
    }

    /// Makes the link, in place of one that an earlier call has left unfinished.
    pub async fn attach(&self, node: &Netlink, pod: &Netlink, namespace: &Namespace) -> Result<(), CniError> {
        if let Some(unfinished) = node.link(&self.node_name).await? {
            node.delete_link(unfinished.index).await?;
        }
        let pair = VethPair {
            name: &self.node_name,
            mac: self.node_mac,
            peer_name: self.pod_name,
            peer_mac: self.pod_mac,
            peer_namespace: namespace.descriptor(),
            mtu: self.mtu,
        };
        node.add_veth(&pair).await?;
        self.configure_pod(pod, namespace).await?;
        self.configure_node(node).await
    }

    async fn configure_pod(&self, pod: &Netlink, namespace: &Namespace) -> Result<(), CniError> {
        if self.addresses.iter().any(IpAddr::is_ipv6) {
            let set = namespace.run(|| sysctl::write(&["ipv6", "conf", self.pod_name, "disable_ipv6"], "0"));
            set.and_then(|set| set).map_err(|why| CniError::io("cannot turn IPv6 on in the pod", &why))?;
        }
        let index = index_of(pod, self.pod_name).await?;
        for address in self.addresses {
            pod.add_address(index, *address).await?;
        }
        pod.set_up(index).await?;
        for address in self.addresses {
            let family = Family::of(address);
            pod.replace_neighbour(index, Neighbour { address: gateway(family), mac: self.node_mac }).await?;
            for route in self.pod_routes(family, index) {
                pod.replace_route(&route).await?;
            }
        }
        Ok(())
    }

    async fn configure_node(&self, node: &Netlink) -> Result<(), CniError> {
        // a pod is no router for the node; a kernel without IPv6 has no such setting
        if sysctl::has_ipv6() {
            let set = sysctl::write(&["ipv6", "conf", &self.node_name, "accept_ra"], "0");
            set.map_err(|why| CniError::io("cannot configure the link", &why))?;
        }
        let index = index_of(node, &self.node_name).await?;
        for address in self.addresses {
            node.replace_neighbour(index, Neighbour { address: *address, mac: self.pod_mac }).await?;
            node.replace_route(&self.node_route(*address, index)).await?;
        }
        Ok(())
    }

    /// Lets the node's own processes reach host ports by 127.0.0.1: replies to that address come in by the link.
    /// [`super::host_ports`] drops everything else that pods send to it.
    pub fn allow_loopback_clients(&self) -> Result<(), CniError> {
        let set = sysctl::write(&["ipv4", "conf", &self.node_name, "route_localnet"], "1");
        set.map_err(|why| CniError::io("cannot configure the link for host ports", &why))
    }

    /// The routes of the pod: the gateway, then the rest through it.
    fn pod_routes(&self, family: Family, link: u32) -> Vec<Route> {
        let to_gateway = Route {
            destination: host_of(gateway(family)),
            gateway: None,
            is_onlink: false,
            link,
            source: None,
            protocol: POD_ROUTE_PROTOCOL,
        };
        let default =
            Route { destination: everywhere(family), gateway: Some(gateway(family)), ..to_gateway.clone() };
        match family {
            Family::V4 => vec![to_gateway, default],
            // link-local addresses are on every link
            Family::V6 => vec![default],
        }
    }

    fn node_route(&self, address: IpAddr, link: u32) -> Route {
        Route {
            destination: host_of(address),
            gateway: None,
            is_onlink: false,
            link,
            source: None,
            protocol: POD_ROUTE_PROTOCOL,
        }
    }

    /// Adds interfaces, addresses and routes to a result.
    pub fn describe(&self, parameters: &Parameters, result: &mut CniResult) {
        let sandbox = parameters.namespace.as_deref().unwrap_or(std::path::Path::new("")).to_string_lossy();
        result.add_interface(&Interface { name: &self.node_name, mac: self.node_mac, sandbox: "" });
        let own =
            result.add_interface(&Interface { name: self.pod_name, mac: self.pod_mac, sandbox: &sandbox });
        for address in self.addresses {
            let family = Family::of(address);
            result.add_address(*address, family.bits(), Some(gateway(family)), own);
            result.add_route(&everywhere(family).to_string(), gateway(family));
        }
    }

    /// Fails if the link is not as it was made.
    pub async fn check(&self, node: &Netlink, pod: &Netlink) -> Result<(), CniError> {
        let differs = |message: String| Err(CniError::new(code::NOT_ATTACHED, message));
        let (node_index, pod_index) =
            (index_of(node, &self.node_name).await?, index_of(pod, self.pod_name).await?);
        for (netlink, index, mac) in [(node, node_index, self.node_mac), (pod, pod_index, self.pod_mac)] {
            match netlink.link_by_index(index).await? {
                Some(link) if link.is_up && link.mac == Some(mac) => (),
                Some(link) => {
                    return differs(format!("link {} is down or has another hardware address", link.name));
                }
                None => return differs(format!("link {index} is gone")),
            }
        }
        let pod_addresses = pod.addresses(pod_index).await?;
        let pod_routes = pod.routes(POD_ROUTE_PROTOCOL).await?;
        let node_routes = node.routes(POD_ROUTE_PROTOCOL).await?;
        let pod_neighbours = pod.neighbours(pod_index).await?;
        let node_neighbours = node.neighbours(node_index).await?;
        for address in self.addresses {
            let family = Family::of(address);
            if !pod_addresses.contains(address) {
                return differs(format!(
                    "link {} of the pod does not have the address {address}",
                    self.pod_name
                ));
            }
            if let Some(route) = self.pod_routes(family, pod_index).iter().find(|it| !pod_routes.contains(it))
            {
                return differs(format!("the pod has no route {route}"));
            }
            if !node_routes.contains(&self.node_route(*address, node_index)) {
                return differs(format!("the node has no route to {address}"));
            }
            if !pod_neighbours.contains(&Neighbour { address: gateway(family), mac: self.node_mac })
                || !node_neighbours.contains(&Neighbour { address: *address, mac: self.pod_mac })
            {
                return differs(format!("the neighbour entries of {address} are gone"));
            }
        }
        Ok(())
    }
}

async fn index_of(netlink: &Netlink, name: &str) -> Result<u32, CniError> {
    match netlink.link(name).await? {
        Some(link) => Ok(link.index),
        None => Err(CniError::new(code::NOT_ATTACHED, format!("there is no link {name}"))),
    }
}
