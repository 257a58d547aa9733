//! The configuration of a call, on standard input: the network's, what the runtime adds, and the previous result.

use super::super::attachments::HostPort;
use super::error::{CniError, code};
use super::result::CniResult;
use crate::netfilter::Protocol;
use apimachinery::net::Network;
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;

/// The versions of the specification that the plugin speaks, the newest last.
pub const VERSIONS: &[&str] = &["0.3.0", "0.3.1", "0.4.0", "1.0.0"];

/// The version of a configuration that names none.
const OLDEST: &str = "0.1.0";

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkConfig {
    pub version: String,
    /// The ranges of this node's pods: one address of each for a pod.
    pub ranges: Vec<Network>,
    pub mtu: u32,
    pub state_directory: PathBuf,
    pub host_ports: Vec<HostPort>,
    pub previous: Option<CniResult>,
}

/// The version of a configuration, without a look at the rest.
pub fn version_of(input: &[u8]) -> Result<String, CniError> {
    let config = parse(input)?;
    match &config["cniVersion"] {
        Value::Null => Ok(OLDEST.to_owned()),
        Value::String(version) => Ok(version.clone()),
        _ => Err(invalid("cniVersion must be a string")),
    }
}

/// Fails for versions that the plugin does not speak.
pub fn check_version(version: &str) -> Result<(), CniError> {
    match VERSIONS.contains(&version) {
        true => Ok(()),
        false => {
            let message = "the plugin does not support the version of the configuration";
            let details = format!("config is {version:?}, plugin supports {VERSIONS:?}");
            Err(CniError::new(code::INCOMPATIBLE_VERSION, message).with_details(details))
        }
    }
}

fn parse(input: &[u8]) -> Result<Value, CniError> {
    serde_json::from_slice(input).map_err(|why| {
        CniError::new(code::UNDECODABLE_CONTENT, "the network configuration is no JSON")
            .with_details(why.to_string())
    })
}

fn invalid(message: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_CONFIGURATION, message)
}

impl NetworkConfig {
    pub fn read(input: &[u8]) -> Result<Self, CniError> {
        let config = parse(input)?;
        let version = version_of(input)?;
        let state_directory = match config["stateDir"].as_str() {
            Some(path) if path.starts_with('/') => PathBuf::from(path),
            _ => return Err(invalid("stateDir must be an absolute path")),
        };
        let mtu = match &config["mtu"] {
            Value::Null => 1500,
            mtu => mtu
                .as_u64()
                .and_then(|mtu| u32::try_from(mtu).ok())
                .filter(|mtu| (576..=65535).contains(mtu))
                .ok_or_else(|| invalid("mtu must be a number from 576 to 65535"))?,
        };
        let previous = match &config["prevResult"] {
            Value::Null => None,
            result => Some(CniResult::decode(result).ok_or_else(|| invalid("prevResult is no result"))?),
        };
        let host_ports = host_ports(&config["runtimeConfig"]["portMappings"])?;
        Ok(NetworkConfig {
            ranges: ranges(&config["ranges"])?,
            version,
            mtu,
            state_directory,
            host_ports,
            previous,
        })
    }
}

/// At most one range of a family.
fn ranges(value: &Value) -> Result<Vec<Network>, CniError> {
    let mut ranges: Vec<Network> = Vec::new();
    for text in value.as_array().into_iter().flatten() {
        let range = text.as_str().and_then(Network::parse);
        let range = range.ok_or_else(|| invalid(format!("ranges: {text} is no network")))?;
        if range.size() == 0 {
            return Err(invalid(format!("ranges: {text} has no addresses for pods")));
        }
        if ranges.iter().any(|other| other.family() == range.family()) {
            return Err(invalid(format!("ranges: two of family {}", range.family().name())));
        }
        ranges.push(range);
    }
    match ranges.is_empty() {
        true => Err(invalid("ranges must name the networks of this node's pods")),
        false => Ok(ranges),
    }
}

/// A field by its name in any case: containerd writes the names of its Go fields.
fn field<'a>(mapping: &'a Value, name: &str) -> &'a Value {
    let fields = mapping.as_object().into_iter().flatten();
    let mut found = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map_or(&Value::Null, |(_, value)| value)
}

/// The ports of the node that are to lead to the pod. A mapping without a host port is none.
fn host_ports(value: &Value) -> Result<Vec<HostPort>, CniError> {
    let mut ports = Vec::new();
    for mapping in value.as_array().into_iter().flatten() {
        let number = |name: &str| match field(mapping, name) {
            Value::Null => Ok(0),
            number => number
                .as_u64()
                .and_then(|it| u16::try_from(it).ok())
                .ok_or_else(|| invalid(format!("portMappings: {name} is no port"))),
        };
        let (host_port, container_port) = (number("hostPort")?, number("containerPort")?);
        if host_port == 0 {
            continue;
        }
        if container_port == 0 {
            return Err(invalid("portMappings: containerPort is missing"));
        }
        let protocol = match field(mapping, "protocol") {
            Value::Null => Some(Protocol::TCP),
            name => name.as_str().and_then(|name| Protocol::from_name(&name.to_ascii_uppercase())),
        };
        let host_ip = match field(mapping, "hostIP").as_str() {
            None | Some("") => None,
            Some(text) => {
                let address: IpAddr = text
                    .parse()
                    .map_err(|_| invalid(format!("portMappings: hostIP {text} is no address")))?;
                (!address.is_unspecified()).then_some(address)
            }
        };
        let protocol =
            protocol.ok_or_else(|| invalid("portMappings: the protocols are tcp, udp and sctp"))?;
        ports.push(HostPort { protocol, host_ip, host_port, container_port });
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: &Value) -> Result<NetworkConfig, CniError> {
        NetworkConfig::read(config.to_string().as_bytes())
    }

    #[test]
    fn a_configuration_is_read() {
        let config = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "pintle-cni", "stateDir": "/run/pods", "mtu": 1450,
            "ranges": ["10.1.0.0/24", "fd00:1::/64"],
            "runtimeConfig": {"portMappings": [
                {"hostPort": 8080, "containerPort": 80, "protocol": "TCP", "hostIP": ""},
                {"HostPort": 53, "ContainerPort": 53, "Protocol": "udp", "HostIP": "127.0.0.1"},
                {"hostPort": 0, "containerPort": 81},
                {"hostPort": 9, "containerPort": 9, "protocol": "SCTP", "hostIP": "::"},
            ]},
        });
        let config = read(&config).unwrap();
        assert_eq!((config.mtu, config.version.as_str(), config.previous), (1450, "1.0.0", None));
        assert_eq!(
            config.ranges.iter().map(Network::to_string).collect::<Vec<_>>(),
            ["10.1.0.0/24", "fd00:1::/64"]
        );
        let port = |protocol, host_ip: Option<&str>, host_port, container_port| HostPort {
            protocol,
            host_ip: host_ip.map(|it| it.parse().unwrap()),
            host_port,
            container_port,
        };
        assert_eq!(
            config.host_ports,
            [
                port(Protocol::TCP, None, 8080, 80),
                port(Protocol::UDP, Some("127.0.0.1"), 53, 53),
                port(Protocol::SCTP, None, 9, 9)
            ]
        );
    }

    #[test]
    fn mistakes_have_codes() {
        let good = json!({"cniVersion": "1.0.0", "stateDir": "/run/pods", "ranges": ["10.1.0.0/24"]});
        assert!(read(&good).is_ok());
        for (field, value, part) in [
            ("stateDir", json!("run"), "stateDir"),
            ("ranges", json!([]), "ranges"),
            ("ranges", json!(["10.1.0.0"]), "is no network"),
            ("ranges", json!(["10.1.0.0/32"]), "no addresses"),
            ("ranges", json!(["10.1.0.0/24", "10.2.0.0/24"]), "two of family IPv4"),
            ("mtu", json!(10), "mtu"),
            ("mtu", json!("1500"), "mtu"),
            ("prevResult", json!([]), "prevResult"),
            ("runtimeConfig", json!({"portMappings": [{"hostPort": 70000}]}), "hostPort"),
            ("runtimeConfig", json!({"portMappings": [{"hostPort": 7}]}), "containerPort"),
            (
                "runtimeConfig",
                json!({"portMappings": [{"hostPort": 7, "containerPort": 7, "protocol": "icmp"}]}),
                "protocols",
            ),
            (
                "runtimeConfig",
                json!({"portMappings": [{"hostPort": 7, "containerPort": 7, "hostIP": "here"}]}),
                "hostIP",
            ),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let why = read(&bad).unwrap_err();
            assert_eq!(why.code, code::INVALID_CONFIGURATION);
            assert!(why.message.contains(part), "{}", why.message);
        }
        assert_eq!(NetworkConfig::read(b"{").unwrap_err().code, code::UNDECODABLE_CONTENT);
        assert_eq!(version_of(b"{}").unwrap(), "0.1.0");
        assert_eq!(check_version("0.1.0").unwrap_err().code, code::INCOMPATIBLE_VERSION);
        assert!(check_version("1.0.0").is_ok());
    }
}
