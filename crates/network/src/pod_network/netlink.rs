//! Links, addresses, routes and neighbours of the kernel, over rtnetlink.
//!
//! Every function is one request. An error says which one; "is there already" and "is not there" are recognized by
//! [`NetlinkError::is_present`] and [`NetlinkError::is_absent`].

use apimachinery::net::{Family, Network};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVxlan, RouteMessageBuilder};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use tokio::task::JoinHandle;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}")]
pub struct NetlinkError {
    action: String,
    source: io::Error,
}

impl NetlinkError {
    pub fn new(action: impl Into<String>, source: io::Error) -> Self {
        NetlinkError { action: action.into(), source }
    }

    /// Whether the object is there already.
    pub fn is_present(&self) -> bool {
        self.is_any(&[Errno::EXIST])
    }

    /// Whether the object, or the link that it belongs to, is not there.
    pub fn is_absent(&self) -> bool {
        self.is_any(&[Errno::NODEV, Errno::NOENT, Errno::SRCH, Errno::ADDRNOTAVAIL])
    }

    /// Whether the kernel has no driver for what was requested.
    pub fn is_unsupported(&self) -> bool {
        self.is_any(&[Errno::OPNOTSUPP])
    }

    /// Whether the kernel knows what was requested, and refused a value of it.
    pub fn is_refused_value(&self) -> bool {
        self.is_any(&[Errno::INVAL, Errno::RANGE])
    }

    /// Whether no route leads to an address.
    fn is_unreachable(&self) -> bool {
        self.is_any(&[Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ACCESS, Errno::INVAL])
    }

    fn is_any(&self, errors: &[Errno]) -> bool {
        errors.iter().any(|error| self.source.raw_os_error() == Some(error.raw_os_error()))
    }
}

/// Names the request of an error.
trait Context<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, NetlinkError>;
}

impl<T> Context<T> for Result<T, rtnetlink::Error> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, NetlinkError> {
        self.map_err(|why| {
            let source = match why {
                rtnetlink::Error::NetlinkError(message) => message.to_io(),
                other => io::Error::other(other.to_string()),
            };
            NetlinkError { action: action(), source }
        })
    }
}

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    pub is_up: bool,
    pub vxlan: Option<Vxlan>,
}

/// The fixed settings of a VXLAN link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    pub id: u32,
    pub port: u16,
    /// The address of this end; its family is that of the network below.
    pub local: Option<IpAddr>,
}

/// A veth pair that is to be made.
pub struct VethPair<'a> {
    pub name: &'a str,
    pub mac: MacAddress,
    pub peer_name: &'a str,
    pub peer_mac: MacAddress,
    /// The namespace of the peer, by file descriptor.
    pub peer_namespace: RawFd,
    pub mtu: u32,
}

/// A route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: Network,
    pub gateway: Option<IpAddr>,
    /// The gateway is on the link, although no address of the link says so.
    pub is_onlink: bool,
    pub link: u32,
    /// The source address of packets of this machine.
    pub source: Option<IpAddr>,
    /// The program that made the route.
    pub protocol: u8,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " on link {}", self.link)
    }
}

/// A permanent neighbour entry: an address of a link and its hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub address: IpAddr,
    pub mac: MacAddress,
}

/// The way to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLookup {
    pub link: u32,
    pub has_gateway: bool,
    /// Whether the address is one of this machine.
    pub is_local: bool,
}

/// A netlink socket, bound to the namespace in which it was opened.
pub struct Netlink {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn family_of(address: &IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(it) => Some((*it).into()),
        RouteAddress::Inet6(it) => Some((*it).into()),
        _ => None,
    }
}

fn mac_of(bytes: &[u8]) -> Option<MacAddress> {
    <[u8; 6]>::try_from(bytes).ok().map(MacAddress)
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let opened = rtnetlink::new_connection();
        let (connection, handle, _) =
            opened.map_err(|why| NetlinkError::new("open a netlink socket", why))?;
        Ok(Netlink { handle, connection: tokio::spawn(connection) })
    }

    pub async fn link(&self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let mut found = self.handle.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await.context(|| format!("look up link {name}")) {
            Ok(message) => Ok(message.map(|message| link_of(&message))),
            Err(why) if why.is_absent() => Ok(None),
            Err(why) => Err(why),
        }
    }

    pub async fn link_by_index(&self, index: u32) -> Result<Option<Link>, NetlinkError> {
        let mut found = self.handle.link().get().match_index(index).execute();
        match found.try_next().await.context(|| format!("look up link {index}")) {
            Ok(message) => Ok(message.map(|message| link_of(&message))),
            Err(why) if why.is_absent() => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Makes both ends of a veth pair at once. The node's end is up.
    pub async fn add_veth(&self, pair: &VethPair<'_>) -> Result<(), NetlinkError> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(pair.peer_name)
            .address(pair.peer_mac.0.to_vec())
            .mtu(pair.mtu)
            .setns_by_fd(pair.peer_namespace)
            .build();
        let message = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(pair.name)
            .address(pair.mac.0.to_vec())
            .mtu(pair.mtu)
            .up()
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        let added = self.handle.link().add(message).execute().await;
        added.context(|| format!("make link {} with peer {}", pair.name, pair.peer_name))
    }

    /// Makes a VXLAN link that learns nothing: its entries are those that are added.
    pub async fn add_vxlan(
        &self,
        name: &str,
        vxlan: &Vxlan,
        mac: MacAddress,
        mtu: u32,
    ) -> Result<(), NetlinkError> {
        let message = LinkVxlan::new(name, vxlan.id)
            .port(vxlan.port)
            .learning(false)
            .address(mac.0.to_vec())
            .mtu(mtu)
            .up();
        let message = match vxlan.local {
            Some(IpAddr::V4(local)) => message.local(local),
            Some(IpAddr::V6(local)) => message.local6(local),
            None => message,
        };
        self.handle.link().add(message.build()).execute().await.context(|| format!("make link {name}"))
    }

    pub async fn set_up(&self, index: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.handle.link().change(message).execute().await.context(|| format!("set link {index} up"))
    }

    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.handle
            .link()
            .change(message)
            .execute()
            .await
            .context(|| format!("set the MTU of link {index} to {mtu}"))
    }

    pub async fn delete_link(&self, index: u32) -> Result<(), NetlinkError> {
        match self.handle.link().del(index).execute().await.context(|| format!("delete link {index}")) {
            Err(why) if why.is_absent() => Ok(()),
            other => other,
        }
    }

    /// Adds an address without a network around it, for use at once.
    pub async fn add_address(&self, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut request = self.handle.address().add(index, address, Family::of(&address).bits());
        if address.is_ipv6() {
            // addresses are handed out once: the kernel need not look for a duplicate
            let message = request.message_mut();
            message.header.flags |= AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.context(|| format!("add address {address} to link {index}"))
    }

    pub async fn delete_address(&self, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut found =
            self.handle.address().get().set_link_index_filter(index).set_address_filter(address).execute();
        while let Some(message) =
            found.try_next().await.context(|| format!("list addresses of link {index}"))?
        {
            let deleted = self.handle.address().del(message).execute().await;
            match deleted.context(|| format!("delete address {address} of link {index}")) {
                Err(why) if !why.is_absent() => return Err(why),
                _ => (),
            }
        }
        Ok(())
    }

    /// The addresses of a link, without those that only the link knows.
    pub async fn addresses(&self, index: u32) -> Result<Vec<IpAddr>, NetlinkError> {
        let found = self.handle.address().get().set_link_index_filter(index).execute();
        let messages: Vec<_> =
            found.try_collect().await.context(|| format!("list addresses of link {index}"))?;
        let addresses = messages.iter().filter_map(|message| {
            let own = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            };
            let any = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            };
            message.attributes.iter().find_map(own).or_else(|| message.attributes.iter().find_map(any))
        });
        Ok(addresses.filter(|it| !matches!(it, IpAddr::V6(it) if it.is_unicast_link_local())).collect())
    }

    /// The link that has an address.
    pub async fn link_of_address(&self, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
        let mut found = self.handle.address().get().set_address_filter(address).execute();
        let message = found.try_next().await.context(|| format!("look up address {address}"))?;
        Ok(message.map(|message| message.header.index))
    }

    /// Adds a route, in place of another one to the same destination.
    pub async fn replace_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = route_message(route);
        self.handle.route().add(message).replace().execute().await.context(|| format!("add route {route}"))
    }

    pub async fn delete_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let deleted = self.handle.route().del(route_message(route)).execute().await;
        match deleted.context(|| format!("delete route {route}")) {
            Err(why) if why.is_absent() => Ok(()),
            other => other,
        }
    }

    /// The routes of the main table that a program has made.
    pub async fn routes(&self, protocol: u8) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = Vec::new();
        for address in [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
            let mut request = RouteMessageBuilder::<IpAddr>::new().build();
            request.header.address_family = family_of(&address);
            let found = self.handle.route().get(request).execute();
            let messages: Vec<_> = found.try_collect().await.context(|| "list routes".to_owned())?;
            let own = messages.iter().filter(|message| u8::from(message.header.protocol) == protocol);
            routes.extend(own.filter_map(|message| route_of(message, address)));
        }
        Ok(routes)
    }

    /// The way to an address, or `None` if there is none.
    pub async fn lookup(&self, address: IpAddr) -> Result<Option<RouteLookup>, NetlinkError> {
        let mut request = RouteMessage::default();
        request.header.address_family = family_of(&address);
        request.header.destination_prefix_length = Family::of(&address).bits();
        request.attributes.push(RouteAttribute::Destination(address.into()));
        let mut found = self.handle.route().get(request).execute();
        let message = match found.try_next().await.context(|| format!("look up the route to {address}")) {
            Ok(message) => message,
            Err(why) if why.is_unreachable() => None,
            Err(why) => return Err(why),
        };
        Ok(message.and_then(|message| {
            let link = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(link) => Some(*link),
                _ => None,
            })?;
            let has_gateway = message
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, RouteAttribute::Gateway(_) | RouteAttribute::Via(_)));
            Some(RouteLookup { link, has_gateway, is_local: message.header.kind == RouteType::Local })
        }))
    }

    /// Adds a permanent neighbour entry, in place of another one of the same address.
    pub async fn replace_neighbour(&self, index: u32, neighbour: Neighbour) -> Result<(), NetlinkError> {
        let Neighbour { address, mac } = neighbour;
        let request = self.handle.neighbours().add(index, address).link_layer_address(&mac.0).replace();
        request.execute().await.context(|| format!("add neighbour {address} to link {index}"))
    }

    pub async fn delete_neighbour(&self, index: u32, neighbour: Neighbour) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(&neighbour.address);
        message.header.ifindex = index;
        message.attributes.push(NeighbourAttribute::Destination(neighbour.address.into()));
        self.delete_neighbour_message(message, || format!("neighbour {}", neighbour.address)).await
    }

    /// The permanent neighbour entries of a link.
    pub async fn neighbours(&self, index: u32) -> Result<Vec<Neighbour>, NetlinkError> {
        let found = self.handle.neighbours().get().execute();
        let messages: Vec<_> = found.try_collect().await.context(|| "list neighbours".to_owned())?;
        let own = messages
            .iter()
            .filter(|it| it.header.ifindex == index && it.header.state == NeighbourState::Permanent);
        Ok(own.filter_map(entry_of).collect())
    }

    /// Adds an entry to the forwarding table of a VXLAN link: the machine that has a hardware address.
    pub async fn replace_forwarding(&self, index: u32, entry: Neighbour) -> Result<(), NetlinkError> {
        let Neighbour { address, mac } = entry;
        let request = self.handle.neighbours().add_bridge(index, &mac.0);
        let request = request.destination(address).flags(NeighbourFlags::Own).replace();
        request.execute().await.context(|| format!("forward {mac} on link {index} to {address}"))
    }

    pub async fn delete_forwarding(&self, index: u32, entry: Neighbour) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = index;
        message.header.flags = NeighbourFlags::Own;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(entry.mac.0.to_vec()));
        message.attributes.push(NeighbourAttribute::Destination(entry.address.into()));
        self.delete_neighbour_message(message, || format!("the way to {} on link {index}", entry.mac)).await
    }

    /// The forwarding table of a VXLAN link.
    pub async fn forwarding(&self, index: u32) -> Result<Vec<Neighbour>, NetlinkError> {
        let found = self.handle.neighbours().get().set_address_family(AddressFamily::Bridge).execute();
        let messages: Vec<_> = found.try_collect().await.context(|| "list forwarding entries".to_owned())?;
        let own = messages.iter().filter(|message| message.header.ifindex == index);
        Ok(own.filter_map(entry_of).collect())
    }

    async fn delete_neighbour_message(
        &self,
        message: NeighbourMessage,
        name: impl FnOnce() -> String,
    ) -> Result<(), NetlinkError> {
        let deleted = self.handle.neighbours().del(message).execute().await;
        match deleted.context(|| format!("delete {}", name())) {
            Err(why) if why.is_absent() => Ok(()),
            other => other,
        }
    }
}

fn link_of(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        vxlan: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = mac_of(bytes),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => link.vxlan = infos.iter().find_map(vxlan_of),
            _ => (),
        }
    }
    link
}

fn vxlan_of(info: &LinkInfo) -> Option<Vxlan> {
    let LinkInfo::Data(InfoData::Vxlan(settings)) = info else { return None };
    let mut vxlan = Vxlan { id: 0, port: 0, local: None };
    for setting in settings {
        match setting {
            InfoVxlan::Id(id) => vxlan.id = *id,
            InfoVxlan::Port(port) => vxlan.port = *port,
            InfoVxlan::Local(local) => vxlan.local = Some((*local).into()),
            InfoVxlan::Local6(local) => vxlan.local = Some((*local).into()),
            _ => (),
        }
    }
    Some(vxlan)
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family_of(&route.destination.base());
    header.destination_prefix_length = route.destination.prefix();
    header.table = RouteHeader::RT_TABLE_MAIN;
    header.protocol = RouteProtocol::Other(route.protocol);
    header.kind = RouteType::Unicast;
    header.scope = match (route.gateway, route.destination.family()) {
        (None, Family::V4) => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    if route.is_onlink {
        header.flags |= RouteFlags::Onlink;
    }
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.destination.base().into()));
    attributes.push(RouteAttribute::Oif(route.link));
    attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    message
}

/// A route of the main table; that of all destinations has none, only the family's unspecified address.
fn route_of(message: &RouteMessage, unspecified: IpAddr) -> Option<Route> {
    if message.header.table != RouteHeader::RT_TABLE_MAIN || message.header.kind != RouteType::Unicast {
        return None;
    }
    let mut route = Route {
        destination: Network::around(unspecified, message.header.destination_prefix_length),
        gateway: None,
        is_onlink: message.header.flags.contains(RouteFlags::Onlink),
        link: 0,
        source: None,
        protocol: message.header.protocol.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.destination = Network::around(ip_of(address)?, route.destination.prefix());
            }
            RouteAttribute::Gateway(address) => route.gateway = ip_of(address),
            RouteAttribute::Oif(link) => route.link = *link,
            RouteAttribute::PrefSource(address) => route.source = ip_of(address),
            _ => (),
        }
    }
    Some(route)
}

fn entry_of(message: &NeighbourMessage) -> Option<Neighbour> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(it)) => Some(IpAddr::from(*it)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(it)) => Some(IpAddr::from(*it)),
        // forwarding tables say only the length of an address
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
            let v4 = || <[u8; 4]>::try_from(bytes.as_slice()).map(IpAddr::from);
            <[u8; 16]>::try_from(bytes.as_slice()).map(IpAddr::from).or_else(|_| v4()).ok()
        }
        _ => None,
    })?;
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac_of(bytes),
        _ => None,
    })?;
    Some(Neighbour { address, mac })
}
