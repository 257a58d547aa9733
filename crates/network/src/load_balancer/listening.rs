//! The ports on which processes of this machine listen.

use std::collections::BTreeSet;
use std::path::Path;

use crate::netfilter::Protocol;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListeningPorts(BTreeSet<(Protocol, u16)>);

/// States of sockets in the tables of the kernel.
const TCP_LISTEN: &str = "0A";
const UDP_BOUND: &str = "07";

impl ListeningPorts {
    /// Reads the tables below a folder, `/proc/net`. A table that is absent is of a protocol that the kernel lacks.
    pub fn read(folder: &Path) -> Self {
        let mut ports = BTreeSet::new();
        for (file, protocol, state) in [
            ("tcp", Protocol::TCP, TCP_LISTEN),
            ("tcp6", Protocol::TCP, TCP_LISTEN),
            ("udp", Protocol::UDP, UDP_BOUND),
            ("udp6", Protocol::UDP, UDP_BOUND),
        ] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            let found = text.lines().skip(1).filter_map(|line| listening_port(line, state));
            ports.extend(found.map(|port| (protocol, port)));
        }
        Self(ports)
    }

    pub fn is_free(&self, protocol: Protocol, port: u16) -> bool {
        !self.0.contains(&(protocol, port))
    }
}

/// The port of a line such as `0: 00000000:0016 00000000:0000 0A ...`, unless it is one of the loopback address.
fn listening_port(line: &str, state: &str) -> Option<u16> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    let _remote = words.next()?;
    // addresses are in the byte order of the machine, four bytes at a time
    let is_loopback = match address.len() {
        8 => address.ends_with("7F") || address.starts_with("7F"),
        _ => address == "00000000000000000000000001000000" || address == "00000000000000000000000000000001",
    };
    (words.next()? == state && !is_loopback).then(|| u16::from_str_radix(port, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_other_than_those_of_loopback_take_ports() {
        let folder = tempfile::tempdir().unwrap();
        let head = "  sl  local_address rem_address   st ...\n";
        let tcp = "   0: 00000000:0016 00000000:0000 0A 00000000\n   1: 0100007F:1F90 00000000:0000 0A 0\n   \
                   2: 0101A8C0:0050 0201A8C0:C000 01 0\n";
        std::fs::write(folder.path().join("tcp"), format!("{head}{tcp}")).unwrap();
        let udp = "  0: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 0\n";
        std::fs::write(folder.path().join("udp6"), format!("{head}{udp}")).unwrap();
        let ports = ListeningPorts::read(folder.path());
        let taken: Vec<_> = ports.0.iter().map(|(protocol, port)| (protocol.0, *port)).collect();
        assert_eq!(taken, [(6, 22), (17, 53)]);
        assert!(!ports.is_free(Protocol::TCP, 22) && ports.is_free(Protocol::TCP, 8080));
    }
}
