//! Addresses of the server: the advertised one, and the one by which it calls itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Host and port for clients: the configured name, else the address for pods, else that of the listener.
pub(super) fn advertised(
    listener: SocketAddr,
    advertise_address: Option<IpAddr>,
    name: Option<String>,
) -> String {
    let address = match advertise_address {
        Some(ip) if listener.ip().is_unspecified() => SocketAddr::new(ip, listener.port()),
        _ => listener,
    };
    match name {
        None => address.to_string(),
        Some(name) if has_port(&name) => name,
        Some(name) => format!("{name}:{}", listener.port()),
    }
}

/// The address by which the server calls its own listener.
pub(super) fn loopback_address(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// Whether a name ends in a port; the colons of a bare IPv6 address do not count.
fn has_port(name: &str) -> bool {
    let split = name.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    split.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}
