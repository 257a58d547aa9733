//! The servers of a resolv.conf file.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

const PORT: u16 = 53;

/// The servers, in their order, each once.
pub fn servers(text: &str) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        if let Some(server) = words.next().and_then(parse).filter(|it| !servers.contains(it)) {
            servers.push(server);
        }
    }
    servers
}

/// An address, with the number of its zone if it has one: `fe80::1%2`.
fn parse(text: &str) -> Option<SocketAddr> {
    match text.split_once('%') {
        None => Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT)),
        Some((address, zone)) => {
            Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, zone.parse().ok()?).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_in_their_order() {
        let text = "# comment\nsearch example.org\nnameserver 10.0.0.1\n nameserver\t2001:db8::1 # two\n\
                    nameserver 10.0.0.1\nnameserver fe80::1%3\nnameserver nonsense\n;nameserver 1.1.1.1\nnameserver\n";
        let found: Vec<_> = servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1:53", "[2001:db8::1]:53", "[fe80::1%3]:53"]);
    }
}
