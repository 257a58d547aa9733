//! The addresses of a node.

use api::core::v1::NodeAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

/// The time in which the name of the machine must be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// What the addresses follow from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressOptions {
    /// Addresses that are set by hand, at most one of each family.
    pub node_ips: Vec<IpAddr>,
    pub hostname: String,
}

/// Finds out about addresses of the machine. A test hands in its own.
pub trait AddressLookup: Send + Sync {
    /// The addresses of a name; may block.
    fn resolve(&self, name: &str) -> Vec<IpAddr>;
    /// Whether an address belongs to this machine.
    fn is_local(&self, ip: IpAddr) -> bool;
    /// The address from which the machine reaches others.
    fn default_source(&self, is_ipv6: bool) -> Option<IpAddr>;
}

/// The addresses of a node, or why it has none.
pub fn node_addresses(
    options: &AddressOptions,
    lookup: &dyn AddressLookup,
) -> Result<Vec<NodeAddress>, String> {
    let ips = match &*options.node_ips {
        [] => vec![choose(options, lookup)?],
        [any] if any.is_unspecified() => vec![choose(options, lookup)?],
        ips => {
            for &ip in ips {
                validate(ip, lookup).map_err(|error| format!("failed to validate nodeIP: {error}"))?;
            }
            ips.to_vec()
        }
    };
    let address = |kind: &str, address: String| NodeAddress {
        type_: kind.to_owned(),
        address,
        ..NodeAddress::default()
    };
    let internal = ips.into_iter().map(|ip| address("InternalIP", ip.to_string()));
    Ok(internal.chain([address("Hostname", options.hostname.clone())]).collect())
}

fn choose(options: &AddressOptions, lookup: &dyn AddressLookup) -> Result<IpAddr, String> {
    let name = &options.hostname;
    if let Ok(ip) = name.parse() {
        return Ok(ip);
    }
    let is_ipv6 = options.node_ips.first().is_some_and(IpAddr::is_ipv6);
    let valid: Vec<IpAddr> =
        lookup.resolve(name).into_iter().filter(|&ip| validate(ip, lookup).is_ok()).collect();
    let preferred = valid.iter().find(|ip| ip.is_ipv6() == is_ipv6).or(valid.first()).copied();
    let found =
        preferred.or_else(|| lookup.default_source(is_ipv6)).or_else(|| lookup.default_source(!is_ipv6));
    found.ok_or_else(|| format!("can't get ip address of node {name}. error: no default routes found"))
}

/// Whether an address may be that of a node.
fn validate(ip: IpAddr, lookup: &dyn AddressLookup) -> Result<(), String> {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    };
    if ip.is_loopback() {
        Err("nodeIP can't be loopback address".to_owned())
    } else if ip.is_multicast() {
        Err("nodeIP can't be a multicast address".to_owned())
    } else if is_link_local {
        Err("nodeIP can't be a link-local unicast address".to_owned())
    } else if ip.is_unspecified() {
        Err("nodeIP can't be an all zeros address".to_owned())
    } else if !lookup.is_local(ip) {
        Err(format!("node IP: \"{ip}\" not found in the host's network interfaces"))
    } else {
        Ok(())
    }
}

/// The addresses of this machine, by its sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineAddresses;

impl AddressLookup for MachineAddresses {
    fn resolve(&self, name: &str) -> Vec<IpAddr> {
        let (sender, found) = mpsc::channel();
        let name = name.to_owned();
        let look_up = move || {
            let all = (name.as_str(), 0).to_socket_addrs();
            // the caller may have stopped waiting
            let _ = sender.send(all.map(|all| all.map(|it| it.ip()).collect()).unwrap_or_default());
        };
        // a resolver that does not answer takes the C library half a minute; the route to others tells the address, too
        let spawned = std::thread::Builder::new().name("resolve".to_owned()).spawn(look_up);
        spawned.ok().and_then(|_| found.recv_timeout(RESOLVE_TIMEOUT).ok()).unwrap_or_default()
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
    }

    fn default_source(&self, is_ipv6: bool) -> Option<IpAddr> {
        // addresses for documentation: connecting chooses a route, and sends nothing
        let (any, target): (IpAddr, IpAddr) = match is_ipv6 {
            true => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
            false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(target, 9)).ok()?;
        let source = socket.local_addr().ok()?.ip();
        (!source.is_unspecified() && !source.is_loopback()).then_some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed {
        names: Vec<IpAddr>,
        local: Vec<IpAddr>,
    }

    impl AddressLookup for Fixed {
        fn resolve(&self, _: &str) -> Vec<IpAddr> {
            self.names.clone()
        }
        fn is_local(&self, ip: IpAddr) -> bool {
            self.local.contains(&ip)
        }
        fn default_source(&self, is_ipv6: bool) -> Option<IpAddr> {
            self.local.iter().copied().find(|ip| ip.is_ipv6() == is_ipv6)
        }
    }

    #[test]
    fn addresses_are_set_resolved_or_routed() {
        let ips = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect::<Vec<IpAddr>>();
        let check = |node_ips: &[&str], hostname: &str, names: &[&str], expected: &str| {
            let options = AddressOptions { node_ips: ips(node_ips), hostname: hostname.to_owned() };
            let lookup = Fixed { names: ips(names), local: ips(&["10.77.0.1", "fd00::1"]) };
            let made = node_addresses(&options, &lookup);
            let text = |it: &NodeAddress| format!("{}={}", it.type_, it.address);
            let made = made.map(|all| all.iter().map(text).collect::<Vec<_>>().join(" "));
            assert_eq!(made.unwrap_or_else(|error| error), expected);
        };
        check(&["10.77.0.1"], "n", &[], "InternalIP=10.77.0.1 Hostname=n");
        check(&["10.77.0.1", "fd00::1"], "n", &[], "InternalIP=10.77.0.1 InternalIP=fd00::1 Hostname=n");
        check(&[], "n", &["127.0.0.1"], "InternalIP=10.77.0.1 Hostname=n");
        check(&[], "n", &["fd00::1"], "InternalIP=fd00::1 Hostname=n");
        check(&["::"], "n", &[], "InternalIP=fd00::1 Hostname=n");
        check(&[], "192.0.2.7", &[], "InternalIP=192.0.2.7 Hostname=192.0.2.7");
        let absent =
            "failed to validate nodeIP: node IP: \"1.2.3.4\" not found in the host's network interfaces";
        check(&["1.2.3.4"], "n", &[], absent);
        check(&["127.0.0.1"], "n", &[], "failed to validate nodeIP: nodeIP can't be loopback address");
    }
}
