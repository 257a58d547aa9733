//! Settings of the kernel without which a machine forwards no packets of pods.

use super::super::sysctl;
use apimachinery::net::{Family, Network};
use std::io;

/// Turns forwarding on for the families of pod ranges.
pub fn enable(ranges: &[Network]) -> io::Result<()> {
    for family in ranges.iter().map(Network::family) {
        match family {
            Family::V4 => sysctl::write(&["ipv4", "ip_forward"], "1")?,
            Family::V6 => {
                if sysctl::read(&["ipv6", "conf", "all", "forwarding"])? != "1" {
                    keep_router_advertisements()?;
                    sysctl::write(&["ipv6", "conf", "all", "forwarding"], "1")?;
                }
            }
        }
    }
    Ok(())
}

/// A machine that forwards takes no router advertisements unless each link says 2. One that took them before must go
/// on, as its own addresses and default route may come from them.
fn keep_router_advertisements() -> io::Result<()> {
    for link in sysctl::names(&["ipv6", "conf"]) {
        let setting = ["ipv6", "conf", &link, "accept_ra"];
        // a link may be gone by now
        if sysctl::read(&setting).is_ok_and(|value| value == "1") {
            sysctl::write(&setting, "2")?;
        }
    }
    Ok(())
}
