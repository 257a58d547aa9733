//! The service by which pods reach this server, with the addresses behind it.
//!
//! Made at the start and looked after from then on: who removes it gets it back, and a server that moved says
//! where it is now. It is a service like any other, with the first address of the services' network.

use crate::own;
use kinds::ServiceOptions;
use names::DEFAULT_NAMESPACE;
use rest::{Api, ApiError};
use schema::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// Of the service.
pub(crate) const PORT: u16 = 443;

/// Where the server is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnService {
    pub reached_at: SocketAddr,
    pub services: ServiceOptions,
    /// The port on nodes at which the service is found, too; 0 is none.
    pub node_port: u16,
    /// Whether the addresses behind it are kept right.
    pub keeps_addresses: bool,
}

impl OwnService {
    /// Makes what is missing, and sets right what points elsewhere.
    pub async fn ensure(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let name = api.names.vendor.to_string();
        if api.lookup("services", DEFAULT_NAMESPACE, &name).is_none() {
            write(api, "v1", "services", "", self.service(&name)).await?;
        }
        if !self.keeps_addresses {
            return Ok(());
        }
        self.keep(api, "v1", "endpoints", "subsets", self.endpoints(api, &name)).await?;
        let group_version = format!("{}/v1", api.names.group("discovery"));
        self.keep(api, &group_version, "endpointslices", "endpoints", self.slice(api, &name)).await
    }

    async fn keep(
        &self,
        api: &Arc<Api>,
        group_version: &str,
        plural: &str,
        field: &str,
        wanted: Value,
    ) -> Result<(), ApiError> {
        let name = wanted.text(&["metadata", "name"]).to_owned();
        let current = api.lookup(plural, DEFAULT_NAMESPACE, &name);
        if current.as_ref().is_some_and(|it| covers(it.at(&[field]), wanted.at(&[field]))) {
            return Ok(());
        }
        let name = if current.is_some() { &*name } else { "" };
        write(api, group_version, plural, name, wanted).await
    }

    fn service(&self, name: &str) -> Value {
        let mut port = map([("name", "https".into()), ("protocol", "TCP".into())]);
        port.set(&["port"], i64::from(PORT));
        port.set(&["targetPort"], i64::from(self.reached_at.port()));
        if self.node_port > 0 {
            port.set(&["nodePort"], i64::from(self.node_port));
        }
        let mut object = named(name, [("component", "apiserver".into()), ("provider", name.into())]);
        object.set(&["spec", "type"], if self.node_port > 0 { "NodePort" } else { "ClusterIP" });
        object.set(&["spec", "clusterIP"], self.services.network.first().to_string());
        object.set(&["spec", "ipFamilyPolicy"], "SingleStack");
        object.set(&["spec", "sessionAffinity"], "None");
        object.set(&["spec", "ports"], vec![port]);
        object
    }

    fn port(&self) -> Value {
        let mut port = map([("name", "https".into()), ("protocol", "TCP".into())]);
        port.set(&["port"], i64::from(self.reached_at.port()));
        port
    }

    fn endpoints(&self, api: &Api, name: &str) -> Value {
        let mut object =
            named_dynamic(name, api.names.well_known_under("endpointslice", "skip-mirror"), "true");
        let mut subset = Value::map();
        subset.set(&["addresses"], vec![map([("ip", self.reached_at.ip().to_string().into())])]);
        subset.set(&["ports"], vec![self.port()]);
        object.set(&["subsets"], vec![subset]);
        object
    }

    fn slice(&self, api: &Api, name: &str) -> Value {
        let mut object = named_dynamic(name, api.names.well_known("service-name"), name);
        object.set(&["addressType"], if self.reached_at.is_ipv4() { "IPv4" } else { "IPv6" });
        let mut endpoint = Value::map();
        endpoint.set(&["addresses"], vec![self.reached_at.ip().to_string().into()]);
        endpoint.set(&["conditions", "ready"], true);
        object.set(&["endpoints"], vec![endpoint]);
        object.set(&["ports"], vec![self.port()]);
        object
    }
}

fn map<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let mut value = Value::map();
    for (name, field) in fields {
        value.set(&[name], field);
    }
    value
}

fn named<const N: usize>(name: &str, labels: [(&'static str, Value); N]) -> Value {
    let mut object = Value::map();
    object.set(&["metadata", "name"], name);
    object.set(&["metadata", "labels"], map(labels));
    object
}

fn named_dynamic(name: &str, label: String, value: &str) -> Value {
    let mut object = named(name, []);
    if let Some(labels) = object.at_mut(&["metadata", "labels"]) {
        labels.make_map().insert(label, value);
    }
    object
}

/// Whether what is wanted is there, whatever is there besides.
fn covers(there: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (there, wanted) {
        (Some(Value::Map(there)), Some(Value::Map(wanted))) => {
            wanted.iter().all(|(name, value)| covers(there.get(name), Some(value)))
        }
        (Some(Value::List(there)), Some(Value::List(wanted))) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(a, b)| covers(Some(a), Some(b)))
        }
        (there, wanted) => there == wanted,
    }
}

async fn write(
    api: &Api,
    group_version: &str,
    plural: &str,
    name: &str,
    object: Value,
) -> Result<(), ApiError> {
    let resources = api.resources();
    let Some(resource) = resources.get(group_version, plural) else { return Ok(()) };
    let place = own::Place { resource, namespace: DEFAULT_NAMESPACE, name, subresource: "" };
    own::write(api, place, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_besides_does_not_matter() {
        let of = |text: &str| schema::decode::json_untyped(text.as_bytes()).unwrap().value;
        let check = |there: &str, wanted: &str, expected: bool| {
            assert_eq!(covers(Some(&of(there)), Some(&of(wanted))), expected, "{there} {wanted}");
        };
        check(r#"[{"a":1,"b":2}]"#, r#"[{"a":1}]"#, true);
        check(r#"[{"a":1},{"a":1}]"#, r#"[{"a":1}]"#, false);
        check(r#"[{"a":2}]"#, r#"[{"a":1}]"#, false);
        check(r#"[{}]"#, r#"[{"a":1}]"#, false);
    }
}
