//! What the network needs of the kernel, tried without an effect.
//!
//! Rules are added and deleted by one transaction: the kernel checks them and loads its modules, and no packet meets
//! them. Links are requested with a value that their driver refuses: the kernel looks for the driver, and makes none.

use crate::netfilter::{Change, Connection, Error, Family, Ruleset, TableId, diff};
use crate::pod_network::namespace::Namespace;
use crate::pod_network::netlink::{MacAddress, Netlink, NetlinkError, VethPair, Vxlan};
use crate::pod_network::node::masquerade_table;
use crate::proxy::rules::{RuleOptions, base_table};
use apimachinery::net::Network;

/// A name that no table of a node has.
const NAME: &str = "pintle-check";
/// Links have short names.
const LINK: &str = "pintle-check0";
/// Less than any veth link takes.
const MTU: u32 = 1;
/// More than a VXLAN can have.
const VXLAN_ID: u32 = 1 << 24;

/// Whether the kernel takes the rules of the proxy and of the pod network, for IPv4 and, if the machine has it, IPv6.
pub fn check_packet_filter(has_ipv6: bool) -> Result<(), Error> {
    let families = [Family::Ipv4].into_iter().chain(has_ipv6.then_some(Family::Ipv6));
    let mut rules: Ruleset =
        families.map(|family| (TableId::new(family, NAME), base_table(&RuleOptions::new(family)))).collect();
    let ranges: Vec<Network> = ["192.0.2.0/24", "2001:db8::/64"]
        .into_iter()
        .filter(|range| has_ipv6 || !range.contains(':'))
        .filter_map(Network::parse)
        .collect();
    rules.insert(TableId::new(Family::Inet, NAME), masquerade_table(&ranges));
    let mut batch = diff(&Ruleset::new(), &rules);
    for table in rules.keys() {
        batch.push(Change::DeleteTable(table.clone()));
    }
    Connection::open()?.commit(&batch)
}

/// Whether the tracked connections of the machine can be listed.
pub fn check_connection_tracking() -> Result<(), Error> {
    Connection::open()?.tracked_connections(Family::Ipv4).map(drop)
}

/// A type of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    Veth,
    Vxlan,
}

/// Whether the kernel has a driver for a type of links.
pub async fn has_link_type(link_type: LinkType) -> Result<bool, NetlinkError> {
    let netlink = Netlink::open()?;
    let mac = MacAddress([0x02, 0, 0, 0, 0, 1]);
    let requested = match link_type {
        LinkType::Veth => {
            let own = Namespace::current()
                .map_err(|why| NetlinkError::new("open the network namespace of this process", why))?;
            let pair = VethPair {
                name: LINK,
                mac,
                peer_name: "pintle-check1",
                peer_mac: MacAddress([0x02, 0, 0, 0, 0, 2]),
                peer_namespace: own.descriptor(),
                mtu: MTU,
            };
            netlink.add_veth(&pair).await
        }
        LinkType::Vxlan => {
            let vxlan = Vxlan { id: VXLAN_ID, port: 0, local: None };
            netlink.add_vxlan(LINK, &vxlan, mac, 1500).await
        }
    };
    match requested {
        // a driver that takes the value: the link must go
        Ok(()) => {
            if let Some(link) = netlink.link(LINK).await? {
                netlink.delete_link(link.index).await?;
            }
            Ok(true)
        }
        Err(why) if why.is_refused_value() => Ok(true),
        Err(why) if why.is_unsupported() => Ok(false),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netfilter::testing::{in_namespace, run};

    #[test]
    fn probes_leave_nothing() {
        in_namespace(module_path!(), "probes_leave_nothing", || {
            let links = run("ip", "-o link");
            check_packet_filter(true).unwrap();
            check_connection_tracking().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for link_type in [LinkType::Veth, LinkType::Vxlan] {
                assert!(runtime.block_on(has_link_type(link_type)).unwrap(), "{link_type:?}");
            }
            assert_eq!(run("ip", "-o link"), links);
            let (tables, _) = Connection::open()
                .unwrap()
                .read(&[Family::Ipv4, Family::Ipv6, Family::Inet].map(|it| TableId::new(it, NAME)))
                .unwrap();
            assert!(tables.is_empty(), "{tables:?}");
        });
    }

    #[test]
    fn drivers_that_are_absent_are_recognized() {
        let error = |code| NetlinkError::new("make a link", std::io::Error::from_raw_os_error(code));
        assert!(error(95).is_unsupported() && !error(95).is_refused_value());
        assert!(error(22).is_refused_value() && error(34).is_refused_value());
        assert!(!error(1).is_unsupported() && !error(1).is_refused_value(), "not permitted: unknown");
    }
}
