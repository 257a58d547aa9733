//! The `kubernetes` Service, by which pods reach this server, with its endpoints.
//!
//! Made at the start and looked after from then on: who removes it gets it back, and a server that moved says
//! where it is now. It is a service like any other, with the first address of the services' network.
//!
//! Several servers on one store tell each other that they are there by keys that expire, as upstream's servers do; the
//! addresses behind the service are those of all whose key is there.

use crate::loopback;
use kinds::ServiceOptions;
use names::DEFAULT_NAMESPACE;
use rest::{Api, ApiError, store_error};
use schema::Value;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use store::{Expect, StoreError, Write};

/// Of the service.
pub(crate) const PORT: u16 = 443;

/// What precedes the address of a server in the key by which it says that it is there, and for how many seconds it does.
const THERE: &str = "/registry/masterleases/";
const LASTS: i64 = 15;

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
        let servers = self.servers(api).await?;
        self.show(api, &name, &servers).await
    }

    /// The server goes: those that stay are behind the service without it.
    pub async fn leave(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        if !self.keeps_addresses || !api.storage.is_shared() {
            return Ok(());
        }
        let gone = api.storage.store.write(Write::delete(self.key(), Expect::Any)).await;
        gone.map(drop).or_else(|why| match why {
            StoreError::Conflict { .. } => Ok(()),
            why => Err(store_error(why)),
        })?;
        let others = self.others(api);
        if others.is_empty() { Ok(()) } else { self.show(api, &api.names.vendor, &others).await }
    }

    fn key(&self) -> String {
        format!("{THERE}{}", self.reached_at.ip())
    }

    /// The addresses of other servers, in order.
    fn others(&self, api: &Api) -> Vec<IpAddr> {
        let own = self.reached_at.ip();
        let there = api.storage.beside(THERE);
        let all = there.iter().filter_map(|it| it.parse::<IpAddr>().ok());
        all.filter(|it| *it != own && it.is_ipv4() == own.is_ipv4()).collect()
    }

    /// The addresses of all servers that are there, in order. Says of this one that it is.
    async fn servers(&self, api: &Api) -> Result<Vec<IpAddr>, ApiError> {
        let own = self.reached_at.ip();
        if !api.storage.is_shared() {
            return Ok(vec![own]);
        }
        let mut said = map([("kind", "Endpoints".into()), ("apiVersion", "v1".into())]);
        said.set(&["metadata"], Value::map());
        let mut subset = Value::map();
        subset.set(&["addresses"], vec![map([("ip", own.to_string().into())])]);
        said.set(&["subsets"], vec![subset]);
        let until = env::unix_seconds(&api.world) + LASTS;
        let write = Write::put(self.key(), Expect::Any, schema::encode::untyped(&said)).expiring(until);
        api.storage.store.write(write).await.map_err(store_error)?;
        let mut all = self.others(api);
        all.push(own);
        all.sort();
        Ok(all)
    }

    /// Puts these addresses behind the service.
    async fn show(&self, api: &Arc<Api>, name: &str, servers: &[IpAddr]) -> Result<(), ApiError> {
        self.keep(api, "v1", "endpoints", "subsets", self.endpoints(api, name, servers)).await?;
        let group_version = format!("{}/v1", api.names.group("discovery"));
        self.keep(api, &group_version, "endpointslices", "endpoints", self.slice(api, name, servers)).await
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

    fn endpoints(&self, api: &Api, name: &str, servers: &[IpAddr]) -> Value {
        let mut object =
            named_dynamic(name, api.names.well_known_under("endpointslice", "skip-mirror"), "true");
        let mut subset = Value::map();
        let addresses = servers.iter().map(|it| map([("ip", it.to_string().into())]));
        subset.set(&["addresses"], addresses.collect::<Vec<_>>());
        subset.set(&["ports"], vec![self.port()]);
        object.set(&["subsets"], vec![subset]);
        object
    }

    fn slice(&self, api: &Api, name: &str, servers: &[IpAddr]) -> Value {
        let mut object = named_dynamic(name, api.names.well_known("service-name"), name);
        object.set(&["addressType"], if self.reached_at.is_ipv4() { "IPv4" } else { "IPv6" });
        let endpoint = |server: &IpAddr| {
            let mut endpoint = Value::map();
            endpoint.set(&["addresses"], vec![server.to_string().into()]);
            endpoint.set(&["conditions", "ready"], true);
            endpoint
        };
        object.set(&["endpoints"], servers.iter().map(endpoint).collect::<Vec<_>>());
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
    let place = loopback::Place { resource, namespace: DEFAULT_NAMESPACE, name, subresource: "" };
    loopback::write(api, place, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shared_store::Shared;
    use names::Names;
    use rest::Storage;

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

    /// A server on a store that it shares, at this address.
    fn server(shared: &Arc<Shared>, address: &str) -> (Arc<Api>, OwnService) {
        let world: env::World = env::Simulated::new(1_700_000_000, 1);
        let storage =
            Storage::new(Arc::new(shared.front()), Vec::new(), Default::default(), world.clone()).unwrap();
        let api = Arc::new(Api::new(Names::kubernetes(), storage, world, Vec::new()));
        for (kind, hooks) in kinds::builtin_with(kinds::Options::default()) {
            if matches!(&*kind.name, "Service" | "Endpoints" | "EndpointSlice") && kind.version == "v1" {
                api.register(kind, hooks).unwrap();
            }
        }
        let services = kinds::Options::default().services;
        let reached_at = address.parse().unwrap();
        (api, OwnService { reached_at, services, node_port: 0, keeps_addresses: true })
    }

    async fn shown(api: &Arc<Api>) -> (Vec<String>, Vec<String>) {
        api.catch_up().await.unwrap();
        let texts = |all: &[Value], path: &[&str]| all.iter().map(|it| it.text(path).to_owned()).collect();
        let endpoints = api.lookup("endpoints", DEFAULT_NAMESPACE, "kubernetes").unwrap();
        let slice = api.lookup("endpointslices", DEFAULT_NAMESPACE, "kubernetes").unwrap();
        let first = |it: &Value| it.items(&["addresses"])[0].as_str().unwrap().to_owned();
        let behind = endpoints.items(&["subsets"])[0].items(&["addresses"]);
        (texts(behind, &["ip"]), slice.items(&["endpoints"]).iter().map(first).collect())
    }

    #[tokio::test]
    async fn all_servers_of_a_store_are_behind_the_service() {
        let shared = Arc::new(Shared::default());
        let (first, at_first) = server(&shared, "10.9.0.2:6443");
        let (second, at_second) = server(&shared, "10.9.0.1:6443");
        at_first.ensure(&first).await.unwrap();
        assert_eq!(shown(&second).await.0, ["10.9.0.2"]);
        for _ in 0..2 {
            at_second.ensure(&second).await.unwrap();
            at_first.ensure(&first).await.unwrap();
        }
        let both = ["10.9.0.1", "10.9.0.2"].map(str::to_owned).to_vec();
        assert_eq!(shown(&first).await, (both.clone(), both));
        at_first.leave(&first).await.unwrap();
        let left = vec!["10.9.0.1".to_owned()];
        assert_eq!(shown(&second).await, (left.clone(), left));
        // the last one stays where it was: whoever looks for it finds it again after a restart
        at_second.leave(&second).await.unwrap();
        assert_eq!(shown(&second).await.0, ["10.9.0.1"]);
    }
}
