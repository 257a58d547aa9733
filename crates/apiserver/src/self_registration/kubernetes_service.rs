//! The `kubernetes` Service, by which pods reach this server, and its endpoints.
//!
//! Created at the start and reconciled periodically: a deleted Service is recreated, and endpoints follow the
//! address of the server. Its cluster IP is the first address of the service network.
//!
//! Servers on a shared store register by keys with a TTL, as upstream's servers do; the endpoints are the
//! addresses of all servers with a key.

use crate::loopback;
use kinds::ServiceOptions;
use names::DEFAULT_NAMESPACE;
use rest::{Api, ApiError, store_error};
use schema::Value;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use store::{Expect, StoreError, Write};

/// Port of the Service.
pub(crate) const PORT: u16 = 443;

/// Prefix of the keys of servers, and their TTL in seconds.
const MASTER_LEASES: &str = "/registry/masterleases/";
const TTL_SECONDS: i64 = 15;

/// The Service of this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KubernetesService {
    pub address: SocketAddr,
    pub services: ServiceOptions,
    /// Node port of the Service; 0 is none.
    pub node_port: u16,
    /// Whether the endpoints are reconciled.
    pub reconcile_endpoints: bool,
}

impl KubernetesService {
    /// Creates or corrects Service and endpoints.
    pub async fn ensure(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let name = api.names.vendor.to_string();
        if api.lookup("services", DEFAULT_NAMESPACE, &name).is_none() {
            write(api, "v1", "services", "", self.service(&name)).await?;
        }
        if !self.reconcile_endpoints {
            return Ok(());
        }
        let servers = self.servers(api).await?;
        self.set_endpoints(api, &name, &servers).await
    }

    /// Removes this server from the endpoints.
    pub async fn leave(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        if !self.reconcile_endpoints || !api.storage.is_shared() {
            return Ok(());
        }
        let deleted = api.storage.store.write(Write::delete(self.key(), Expect::Any)).await;
        deleted.map(drop).or_else(|why| match why {
            StoreError::Conflict { .. } => Ok(()),
            why => Err(store_error(why)),
        })?;
        let others = self.others(api);
        if others.is_empty() { Ok(()) } else { self.set_endpoints(api, &api.names.vendor, &others).await }
    }

    fn key(&self) -> String {
        format!("{MASTER_LEASES}{}", self.address.ip())
    }

    /// The addresses of other servers, in order.
    fn others(&self, api: &Api) -> Vec<IpAddr> {
        let own = self.address.ip();
        let existing = api.storage.beside(MASTER_LEASES);
        let all = existing.iter().filter_map(|it| it.parse::<IpAddr>().ok());
        all.filter(|it| *it != own && it.is_ipv4() == own.is_ipv4()).collect()
    }

    /// The addresses of all registered servers, in order. Registers this one.
    async fn servers(&self, api: &Api) -> Result<Vec<IpAddr>, ApiError> {
        let own = self.address.ip();
        if !api.storage.is_shared() {
            return Ok(vec![own]);
        }
        let mut endpoints = map([("kind", "Endpoints".into()), ("apiVersion", "v1".into())]);
        endpoints.set(&["metadata"], Value::map());
        let mut subset = Value::map();
        subset.set(&["addresses"], vec![map([("ip", own.to_string().into())])]);
        endpoints.set(&["subsets"], vec![subset]);
        let until = env::unix_seconds(&api.world) + TTL_SECONDS;
        let write = Write::put(self.key(), Expect::Any, schema::encode::untyped(&endpoints)).expiring(until);
        api.storage.store.write(write).await.map_err(store_error)?;
        let mut all = self.others(api);
        all.push(own);
        all.sort();
        Ok(all)
    }

    /// Sets the endpoints of the Service.
    async fn set_endpoints(&self, api: &Arc<Api>, name: &str, servers: &[IpAddr]) -> Result<(), ApiError> {
        self.reconcile(api, "v1", "endpoints", "subsets", self.endpoints(api, name, servers)).await?;
        let group_version = format!("{}/v1", api.names.group("discovery"));
        self.reconcile(api, &group_version, "endpointslices", "endpoints", self.slice(api, name, servers))
            .await
    }

    async fn reconcile(
        &self,
        api: &Arc<Api>,
        group_version: &str,
        plural: &str,
        field: &str,
        desired: Value,
    ) -> Result<(), ApiError> {
        let name = desired.text(&["metadata", "name"]).to_owned();
        let current = api.lookup(plural, DEFAULT_NAMESPACE, &name);
        if current.as_ref().is_some_and(|it| covers(it.at(&[field]), desired.at(&[field]))) {
            return Ok(());
        }
        let name = if current.is_some() { &*name } else { "" };
        write(api, group_version, plural, name, desired).await
    }

    fn service(&self, name: &str) -> Value {
        let mut port = map([("name", "https".into()), ("protocol", "TCP".into())]);
        port.set(&["port"], i64::from(PORT));
        port.set(&["targetPort"], i64::from(self.address.port()));
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
        port.set(&["port"], i64::from(self.address.port()));
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
        object.set(&["addressType"], if self.address.is_ipv4() { "IPv4" } else { "IPv6" });
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

/// Whether the desired fields are present, whatever else is.
fn covers(existing: Option<&Value>, desired: Option<&Value>) -> bool {
    match (existing, desired) {
        (Some(Value::Map(existing)), Some(Value::Map(desired))) => {
            desired.iter().all(|(name, value)| covers(existing.get(name), Some(value)))
        }
        (Some(Value::List(existing)), Some(Value::List(desired))) => {
            existing.len() == desired.len()
                && existing.iter().zip(desired).all(|(a, b)| covers(Some(a), Some(b)))
        }
        (existing, desired) => existing == desired,
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
    let target = loopback::WriteTarget { resource, namespace: DEFAULT_NAMESPACE, name, subresource: "" };
    loopback::write(api, target, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shared_store::SharedStore;
    use names::Names;
    use rest::Storage;

    #[test]
    fn additional_fields_do_not_matter() {
        let of = |text: &str| schema::decode::json_untyped(text.as_bytes()).unwrap().value;
        let check = |existing: &str, desired: &str, expected: bool| {
            assert_eq!(covers(Some(&of(existing)), Some(&of(desired))), expected, "{existing} {desired}");
        };
        check(r#"[{"a":1,"b":2}]"#, r#"[{"a":1}]"#, true);
        check(r#"[{"a":1},{"a":1}]"#, r#"[{"a":1}]"#, false);
        check(r#"[{"a":2}]"#, r#"[{"a":1}]"#, false);
        check(r#"[{}]"#, r#"[{"a":1}]"#, false);
    }

    /// A server at this address on a shared store.
    fn server(shared: &Arc<SharedStore>, address: &str) -> (Arc<Api>, KubernetesService) {
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
        let address = address.parse().unwrap();
        (api, KubernetesService { address, services, node_port: 0, reconcile_endpoints: true })
    }

    async fn endpoints_of(api: &Arc<Api>) -> (Vec<String>, Vec<String>) {
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
        let shared = Arc::new(SharedStore::default());
        let (first, at_first) = server(&shared, "10.9.0.2:6443");
        let (second, at_second) = server(&shared, "10.9.0.1:6443");
        at_first.ensure(&first).await.unwrap();
        assert_eq!(endpoints_of(&second).await.0, ["10.9.0.2"]);
        for _ in 0..2 {
            at_second.ensure(&second).await.unwrap();
            at_first.ensure(&first).await.unwrap();
        }
        let both = ["10.9.0.1", "10.9.0.2"].map(str::to_owned).to_vec();
        assert_eq!(endpoints_of(&first).await, (both.clone(), both));
        at_first.leave(&first).await.unwrap();
        let left = vec!["10.9.0.1".to_owned()];
        assert_eq!(endpoints_of(&second).await, (left.clone(), left));
        // the last server keeps its endpoint, so that clients find it after a restart
        at_second.leave(&second).await.unwrap();
        assert_eq!(endpoints_of(&second).await.0, ["10.9.0.1"]);
    }
}
