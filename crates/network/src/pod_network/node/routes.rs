//! Brings the kernel's links and routes to the plan. Only differences are written, and only routes and links of this
//! program are removed.

use super::super::netlink::{Link, Netlink, NetlinkError};
use super::plan::{Machine, NodeNetwork, Plan, ROUTE_PROTOCOL, Tunnel, changes};
use std::net::IpAddr;

/// The VXLAN link.
pub const TUNNEL: &str = "pintle-vxlan";

/// The MTU of a machine whose link to other nodes is unknown.
const DEFAULT_MTU: u32 = 1500;

/// Reads the machine's ways to nodes.
pub async fn read_machine(
    netlink: &Netlink,
    own: &NodeNetwork,
    nodes: &[NodeNetwork],
) -> Result<Machine, NetlinkError> {
    let mut machine = Machine { mtu: DEFAULT_MTU, ..Machine::default() };
    for address in nodes.iter().filter(|node| node.name != own.name).flat_map(|node| &node.addresses) {
        if let Some(way) = netlink.lookup(*address).await? {
            machine.lookups.insert(*address, way);
        }
    }
    // the narrowest link to another node counts; a machine alone has that of its own address
    let mut links: Vec<u32> =
        machine.lookups.values().filter(|way| !way.is_local).map(|way| way.link).collect();
    if links.is_empty() {
        links.extend(own_link(netlink, own).await?);
    }
    links.sort_unstable();
    links.dedup();
    let mut mtus = Vec::new();
    for link in links {
        mtus.extend(netlink.link_by_index(link).await?.map(|link| link.mtu));
    }
    machine.mtu = mtus.into_iter().min().unwrap_or(DEFAULT_MTU);
    Ok(machine)
}

/// The link with this node's address.
async fn own_link(netlink: &Netlink, own: &NodeNetwork) -> Result<Option<u32>, NetlinkError> {
    for address in &own.addresses {
        if let Some(link) = netlink.link_of_address(*address).await? {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Writes the plan.
pub async fn write(netlink: &Netlink, plan: &Plan) -> Result<(), NetlinkError> {
    let mut desired = plan.routes.clone();
    match &plan.tunnel {
        Some(tunnel) => {
            let link = write_tunnel(netlink, tunnel).await?;
            desired.extend(tunnel.routes_on(link));
        }
        None => remove_tunnel(netlink).await?,
    }
    let current = netlink.routes(ROUTE_PROTOCOL).await?;
    let routes = changes(&current, &desired, |route| route.destination);
    for route in &routes.removed {
        netlink.delete_route(route).await?;
        tracing::info!(%route, "removed a route");
    }
    for route in &routes.written {
        netlink.replace_route(route).await?;
        tracing::info!(%route, "added a route to the pods of a node");
    }
    Ok(())
}

async fn remove_tunnel(netlink: &Netlink) -> Result<(), NetlinkError> {
    if let Some(link) = netlink.link(TUNNEL).await? {
        netlink.delete_link(link.index).await?;
        tracing::info!(link = TUNNEL, "removed the VXLAN link: no node needs it");
    }
    Ok(())
}

/// Makes or changes the link, and returns its index.
async fn write_tunnel(netlink: &Netlink, tunnel: &Tunnel) -> Result<u32, NetlinkError> {
    let link = tunnel_link(netlink, tunnel).await?;
    if link.mtu != tunnel.mtu {
        netlink.set_mtu(link.index, tunnel.mtu).await?;
    }
    if !link.is_up {
        netlink.set_up(link.index).await?;
    }
    let index = link.index;
    let current = netlink.addresses(index).await?;
    let addresses = changes(&current, &tunnel.addresses, |address| *address);
    for address in &addresses.removed {
        netlink.delete_address(index, *address).await?;
    }
    for address in &addresses.written {
        add_address(netlink, index, *address).await?;
    }
    let current = netlink.neighbours(index).await?;
    let neighbours = changes(&current, &tunnel.neighbours, |it| it.address);
    for neighbour in &neighbours.removed {
        netlink.delete_neighbour(index, *neighbour).await?;
    }
    for neighbour in &neighbours.written {
        netlink.replace_neighbour(index, *neighbour).await?;
    }
    let current = netlink.forwarding(index).await?;
    let forwarding = changes(&current, &tunnel.forwarding, |it| it.mac);
    for entry in &forwarding.removed {
        netlink.delete_forwarding(index, *entry).await?;
    }
    for entry in &forwarding.written {
        netlink.replace_forwarding(index, *entry).await?;
    }
    Ok(index)
}

/// The link with its fixed settings. One with others is replaced.
async fn tunnel_link(netlink: &Netlink, tunnel: &Tunnel) -> Result<Link, NetlinkError> {
    if let Some(link) = netlink.link(TUNNEL).await? {
        if link.vxlan == Some(tunnel.vxlan) && link.mac == Some(tunnel.mac) {
            return Ok(link);
        }
        netlink.delete_link(link.index).await?;
    }
    netlink.add_vxlan(TUNNEL, &tunnel.vxlan, tunnel.mac, tunnel.mtu).await?;
    tracing::info!(link = TUNNEL, "made the VXLAN link to nodes behind routers");
    let made = netlink.link(TUNNEL).await?;
    made.ok_or_else(|| NetlinkError::new("find the VXLAN link", std::io::ErrorKind::NotFound.into()))
}

async fn add_address(netlink: &Netlink, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
    match netlink.add_address(index, address).await {
        Err(why) if why.is_present() => Ok(()),
        other => other,
    }
}
