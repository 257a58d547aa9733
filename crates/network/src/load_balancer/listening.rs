//! The ports on which processes of this machine listen.

use std::collections::BTreeSet;
use std::net::IpAddr;
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
    let is_loopback = address_of(address)?.is_loopback();
    (words.next()? == state && !is_loopback).then(|| u16::from_str_radix(port, 16).ok()).flatten()
}

/// An address in hexadecimal digits: words of four bytes, each in the byte order of the machine.
fn address_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match digits.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Some(IpAddr::from(bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_other_than_those_of_loopback_take_ports() {
        let folder = tempfile::tempdir().unwrap();
        let head = "  sl  local_address rem_address   st ...\n";
        let tcp = "   0: 00000000:0016 00000000:0000 0A 00000000\n   1: 0100007F:1F90 00000000:0000 0A 0\n   \
                   2: 0101A8C0:0050 0201A8C0:C000 01 0\n   3: 7F01A8C0:0051 00000000:0000 0A 0\n";
        std::fs::write(folder.path().join("tcp"), format!("{head}{tcp}")).unwrap();
        let udp = "  0: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 0\n";
        std::fs::write(folder.path().join("udp6"), format!("{head}{udp}")).unwrap();
        let ports = ListeningPorts::read(folder.path());
        let taken: Vec<_> = ports.0.iter().map(|(protocol, port)| (protocol.0, *port)).collect();
        // 192.168.1.127 is no loopback address
        assert_eq!(taken, [(6, 22), (6, 81), (17, 53)]);
        assert!(!ports.is_free(Protocol::TCP, 22) && ports.is_free(Protocol::TCP, 8080));
    }
}
