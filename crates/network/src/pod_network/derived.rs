//! Names and addresses of links that follow from the object that they belong to: none are recorded, and a repeated
//! call finds the link of the first one.

use super::netlink::MacAddress;

/// FNV-1a, 64 bits, of texts that are kept apart.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // the last bytes of a text change only the low bits much; names take the high ones too
    hash ^ hash.rotate_left(29)
}

/// The name of the node's end of a pod's link; interface names have at most 15 characters.
pub fn host_link_name(container: &str, interface: &str) -> String {
    format!("veth{:011x}", hash(&[container, interface]) >> 20)
}

/// A hardware address that no manufacturer has assigned.
pub fn mac_address(parts: &[&str]) -> MacAddress {
    let [_, _, rest @ ..] = hash(parts).to_be_bytes();
    let mut bytes = rest;
    bytes[0] = bytes[0] & 0xfc | 0x02;
    MacAddress(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_links_fit_and_differ() {
        let mut names = HashSet::new();
        for nth in 0..10_000 {
            let name = host_link_name(&format!("{nth:064x}"), "eth0");
            assert_eq!(name.len(), 15);
            assert!(names.insert(name), "{nth}");
        }
        assert_ne!(host_link_name("a", "bc"), host_link_name("ab", "c"));
        assert_eq!(host_link_name("a", "eth0"), host_link_name("a", "eth0"));
    }

    #[test]
    fn hardware_addresses_are_unicast_and_local() {
        let mut addresses = HashSet::new();
        for nth in 0..10_000 {
            let address = mac_address(&["node", &format!("node-{nth}")]);
            assert_eq!(address.0[0] & 0x03, 0x02);
            assert!(addresses.insert(address.0), "{nth}");
        }
    }
}
