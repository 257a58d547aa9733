//! Resolves a Service to addresses. Pure: computed from the Service and its Endpoints.

use schema::Value;
use schema::problem::quoted;
use std::net::IpAddr;

/// A reference to a Service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: i64,
}

impl ServiceReference {
    pub fn read(service: &Value) -> Self {
        ServiceReference {
            namespace: service.text(&["namespace"]).to_owned(),
            name: service.text(&["name"]).to_owned(),
            port: service.at(&["port"]).and_then(Value::as_int).unwrap_or(443),
        }
    }

    /// The name for which the server's certificate must be valid.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// The referenced port of the Service.
    pub fn port_of<'s>(&self, service: &'s Value) -> Option<&'s Value> {
        let mut ports = service.items(&["spec", "ports"]).iter();
        ports.find(|it| it.at(&["port"]).and_then(Value::as_int) == Some(self.port))
    }

    /// All addresses of the server, as `host:port`: the cluster IP of the Service, or its endpoints.
    pub fn addresses(
        &self,
        service: &Value,
        endpoints: Option<&Value>,
        to_endpoints: bool,
    ) -> Result<Vec<String>, String> {
        let (kind, own) = (service.text(&["spec", "type"]), service.text(&["spec", "clusterIP"]));
        match kind {
            "ClusterIP" if own == "None" && !to_endpoints => {
                return Err("cannot route to service with ClusterIP \"None\"".to_owned());
            }
            "ClusterIP" | "NodePort" | "LoadBalancer" => {}
            "ExternalName" if !to_endpoints => {
                return Ok(vec![host_port(service.text(&["spec", "externalName"]), self.port)]);
            }
            other => return Err(format!("unsupported service type {}", quoted(other))),
        }
        let port = self.port_of(service).ok_or_else(|| {
            format!("no service port {} found for service {}", self.port, quoted(&self.name))
        })?;
        if !to_endpoints {
            return match own {
                "" => Err(format!("service {} has no address", quoted(&self.name))),
                own => Ok(vec![host_port(own, self.port)]),
            };
        }
        let endpoints = endpoints.ok_or_else(|| format!("endpoints {} not found", quoted(&self.name)))?;
        let addresses: Vec<String> = endpoint_addresses(endpoints, port.text(&["name"])).collect();
        if addresses.is_empty() {
            return Err(format!("no endpoints available for service {}", quoted(&self.name)));
        }
        Ok(addresses)
    }
}

/// The endpoint addresses of a Service port.
pub(crate) fn endpoint_addresses<'a>(
    endpoints: &'a Value,
    port: &'a str,
) -> impl Iterator<Item = String> + 'a {
    endpoints.items(&["subsets"]).iter().flat_map(move |subset| {
        let port = subset.items(&["ports"]).iter().find(|it| it.text(&["name"]) == port);
        let number = port.and_then(|it| it.at(&["port"])).and_then(Value::as_int);
        let addresses = subset.items(&["addresses"]).iter();
        addresses.filter_map(move |it| Some(host_port(it.text(&["ip"]), number?)))
    })
}

fn host_port(host: &str, port: i64) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}
