//! Results of ADD, in the form of each version of the specification.

use super::super::netlink::MacAddress;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// A result. Fields that the plugin does not change stay as they are: results of plugins before it pass through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CniResult {
    pub interfaces: Vec<Value>,
    pub ips: Vec<Value>,
    pub routes: Vec<Value>,
    pub dns: Value,
}

/// An interface in a result.
pub struct Interface<'a> {
    pub name: &'a str,
    pub mac: MacAddress,
    /// The path of the namespace; empty on the node.
    pub sandbox: &'a str,
}

impl CniResult {
    pub fn decode(value: &Value) -> Option<Self> {
        let fields = value.as_object()?;
        let list = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(list) => list.as_array().cloned(),
        };
        Some(CniResult {
            interfaces: list("interfaces")?,
            ips: list("ips")?,
            routes: list("routes")?,
            dns: fields.get("dns").cloned().unwrap_or_default(),
        })
    }

    /// Adds an interface and returns its index.
    pub fn add_interface(&mut self, interface: &Interface<'_>) -> usize {
        let mut value = json!({"name": interface.name, "mac": interface.mac.to_string()});
        if !interface.sandbox.is_empty() {
            value["sandbox"] = interface.sandbox.into();
        }
        self.interfaces.push(value);
        self.interfaces.len() - 1
    }

    /// Adds an address with the length of its network's prefix.
    pub fn add_address(&mut self, address: IpAddr, prefix: u8, gateway: Option<IpAddr>, interface: usize) {
        let mut value = json!({"address": format!("{address}/{prefix}"), "interface": interface});
        if let Some(gateway) = gateway {
            value["gateway"] = gateway.to_string().into();
        }
        self.ips.push(value);
    }

    pub fn add_route(&mut self, destination: &str, gateway: IpAddr) {
        self.routes.push(json!({"dst": destination, "gw": gateway.to_string()}));
    }

    /// The addresses of an interface in a namespace.
    pub fn addresses_of(&self, name: &str) -> Vec<IpAddr> {
        let is_own = |ip: &&Value| {
            let index = ip["interface"].as_u64().and_then(|it| usize::try_from(it).ok());
            let interface = index.and_then(|index| self.interfaces.get(index));
            interface.is_some_and(|it| it["name"] == name && !it["sandbox"].as_str().unwrap_or("").is_empty())
        };
        let address = |ip: &Value| ip["address"].as_str()?.split('/').next()?.parse().ok();
        self.ips.iter().filter(is_own).filter_map(address).collect()
    }

    pub fn encode(&self, version: &str) -> Value {
        let mut result = Map::new();
        result.insert("cniVersion".to_owned(), version.into());
        let mut ips = self.ips.clone();
        for ip in ips.iter_mut().filter_map(Value::as_object_mut) {
            // versions before 1.0 say the family
            match version.starts_with("0.") {
                true => {
                    let is_v6 = ip.get("address").and_then(Value::as_str).is_some_and(|it| it.contains(':'));
                    ip.insert("version".to_owned(), if is_v6 { "6" } else { "4" }.into());
                }
                false => {
                    ip.remove("version");
                }
            }
        }
        for (name, list) in [("interfaces", &self.interfaces), ("ips", &ips), ("routes", &self.routes)] {
            if !list.is_empty() {
                result.insert(name.to_owned(), list.clone().into());
            }
        }
        result.insert("dns".to_owned(), if self.dns.is_null() { json!({}) } else { self.dns.clone() });
        Value::Object(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_form_of_their_version() {
        let mut result = CniResult::default();
        let mac = MacAddress([2, 0, 0, 0, 0, 0x1f]);
        result.add_interface(&Interface { name: "veth1", mac, sandbox: "" });
        let own = result.add_interface(&Interface { name: "eth0", mac, sandbox: "/run/netns/a" });
        result.add_address("10.1.0.7".parse().unwrap(), 32, Some("169.254.1.1".parse().unwrap()), own);
        result.add_address("fd00::7".parse().unwrap(), 128, None, own);
        result.add_route("0.0.0.0/0", "169.254.1.1".parse().unwrap());
        let expected = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "veth1", "mac": "02:00:00:00:00:1f"},
                {"name": "eth0", "mac": "02:00:00:00:00:1f", "sandbox": "/run/netns/a"},
            ],
            "ips": [
                {"address": "10.1.0.7/32", "gateway": "169.254.1.1", "interface": 1},
                {"address": "fd00::7/128", "interface": 1},
            ],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
            "dns": {},
        });
        assert_eq!(result.encode("1.0.0"), expected);
        let old = result.encode("0.4.0");
        assert_eq!((&old["ips"][0]["version"], &old["ips"][1]["version"]), (&json!("4"), &json!("6")));
        let again = CniResult::decode(&old).unwrap();
        assert_eq!(again.encode("1.0.0"), expected);
        assert_eq!(
            again.addresses_of("eth0"),
            ["10.1.0.7", "fd00::7"].map(|it| it.parse::<IpAddr>().unwrap())
        );
        assert_eq!(again.addresses_of("veth1"), Vec::<IpAddr>::new());
    }
}
