//! The plugin `loopback`: sets the loopback link of a pod up. The kernel gives it its addresses.

use super::error::{CniError, code};
use super::parameters::{Command, Parameters};
use super::result::{CniResult, Interface};
use crate::pod_network::netlink::{Link, MacAddress, Netlink};
use serde_json::Value;

const LINK: &str = "lo";

pub async fn run(
    command: Command,
    parameters: &Parameters,
    input: &[u8],
    version: &str,
) -> Result<Value, CniError> {
    // a namespace that is gone has no link to set down
    if command == Command::Delete {
        return Ok(Value::Null);
    }
    let pod = parameters.open_namespace()?.netlink()?;
    let link = find(&pod).await?;
    if command == Command::Check {
        return match link.is_up {
            true => Ok(Value::Null),
            false => Err(CniError::new(code::NOT_ATTACHED, "the loopback link is down")),
        };
    }
    pod.set_up(link.index).await?;
    if let Some(previous) = previous(input) {
        return Ok(previous.encode(version));
    }
    let mut result = CniResult::default();
    let sandbox = parameters.namespace.as_deref().map(|it| it.to_string_lossy()).unwrap_or_default();
    let mac = link.mac.unwrap_or(MacAddress([0; 6]));
    let own = result.add_interface(&Interface { name: LINK, mac, sandbox: &sandbox });
    for address in pod.addresses(link.index).await? {
        let prefix = if address.is_ipv4() { 8 } else { 128 };
        result.add_address(address, prefix, None, own);
    }
    Ok(result.encode(version))
}

async fn find(pod: &Netlink) -> Result<Link, CniError> {
    let link = pod.link(LINK).await?;
    link.ok_or_else(|| CniError::new(code::NETWORK_FAILURE, "the namespace has no loopback link"))
}

/// The result of plugins before this one.
fn previous(input: &[u8]) -> Option<CniResult> {
    let config: Value = serde_json::from_slice(input).ok()?;
    config.get("prevResult").and_then(CniResult::decode)
}
