//! The endpoints controller: writes an `Endpoints` object for each service that selects pods.
//!
//! `Endpoints` are superseded by endpoint slices, and hold a limited number of addresses.

pub(crate) mod subsets;

use crate::Context;
use crate::backends::{self, Backends, Triggers};
use crate::pods::state;
use api::Resource;
use api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use api::meta::v1::{DeleteOptions, ObjectMeta};
use client::events::EventType;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run, unless};
use names::Names;
use std::sync::Arc;
use std::time::Duration;

/// The limit of addresses of an object.
const MOST: usize = 1000;
const TRUNCATED: &str = "truncated";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How long changes of pods are batched.
    pub batch_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 5, batch_period: Duration::ZERO }
    }
}

struct EndpointsController {
    context: Context,
    backends: Backends,
    endpoints: Informer<Endpoints>,
    written: WriteTracker<Endpoints>,
    triggers: Triggers,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let backends = Backends::watch(&context, &queue, options.batch_period);
    let endpoints = context.informer::<Endpoints>();
    let changed = queue.clone();
    endpoints.listen(move |change| {
        if change.is_deletion() {
            changed.add(change.key());
        }
    });
    backends.synced().await;
    endpoints.synced().await;
    // the service may be gone since the last run; objects with this annotation are locks of leader election
    let leader = context.names.well_known_under("control-plane.alpha", "leader");
    let existing = endpoints.all();
    let existing = existing.iter().filter(|it| !it.metadata.annotations.contains_key(&leader));
    existing.for_each(|it| queue.add(Key::of(&**it)));
    let controller = EndpointsController {
        context,
        backends,
        written: WriteTracker::new(endpoints.clone()),
        endpoints,
        triggers: Triggers::default(),
    };
    run::run(Arc::new(controller), queue, options.workers).await;
}

impl Reconcile for EndpointsController {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpoint"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let api: Api<Endpoints> = Api::namespaced(&self.context.client, &key.namespace);
        let Some(service) = self.backends.services.get(key) else {
            self.triggers.forget(key);
            if let Some(existing) = self.endpoints.get(key) {
                unless(404, api.delete(&key.name, &DeleteOptions::default()).await)?;
                self.written.deleted(key, &existing);
            }
            return Ok(Action::AwaitChange);
        };
        if !backends::selects(&service) {
            return Ok(Action::AwaitChange);
        }
        let pods = self.backends.pods_of(&service);
        // updated even if nothing is written
        let trigger = self.triggers.since_last(key, &service, &pods);
        let existing = self.endpoints.get(key);
        let Some(next) = desired(&service, &pods, existing.as_deref(), trigger, &self.context.names) else {
            return Ok(Action::AwaitChange);
        };
        let written = match &existing {
            None => api.create(&next).await,
            Some(_) => api.replace(&next).await,
        };
        match written {
            Ok(written) => self.written.wrote(key, &written),
            Err(error) if existing.is_none() && client::is_terminating(&error) => {}
            Err(error) => {
                self.record_failure(&service, existing.is_none(), &error);
                return Err(error.into());
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl EndpointsController {
    fn record_failure(&self, service: &Service, creating: bool, error: &client::Error) {
        let (key, why) = (Key::of(service), error.message());
        let (reason, message) = match creating {
            true => ("FailedToCreateEndpoint", format!("Failed to create endpoint for service {key}: {why}")),
            false => ("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {why}")),
        };
        self.context.events.record(service, EventType::Warning, reason, message);
    }
}

/// The address of a pod in the first family of a service.
fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let all = backends::addresses(pod);
    let v6 = match service.spec.ip_families.first() {
        Some(family) => family == "IPv6",
        None if !backends::is_headless(service) => backends::is_v6(&service.spec.cluster_ip),
        None => backends::is_v6(all.first()?),
    };
    let ip = all.into_iter().find(|it| backends::is_v6(it) == v6)?;
    Some(EndpointAddress {
        ip: ip.to_owned(),
        hostname: backends::hostname(pod, service).unwrap_or_default().to_owned(),
        node_name: Some(pod.spec.node_name.clone()).filter(|it| !it.is_empty()),
        target_ref: Some(Box::new(backends::reference(pod))),
        ..EndpointAddress::default()
    })
}

/// The subsets of a service.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let spec = &service.spec;
    let publishes = spec.publish_not_ready_addresses;
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| backends::is_reachable(pod, publishes)) {
        let Some(address) = address(service, pod) else { continue };
        let ready = publishes || state::is_ready(pod);
        let mut push = |ports: Vec<EndpointPort>| {
            let mut subset = EndpointSubset { ports, ..EndpointSubset::default() };
            match ready {
                true => subset.addresses.push(address.clone()),
                false => subset.not_ready_addresses.push(address.clone()),
            }
            subsets.push(subset);
        };
        // a headless service needs no ports
        if spec.ports.is_empty() && spec.cluster_ip == "None" {
            push(Vec::new());
        }
        for port in &spec.ports {
            if let Some(number) = backends::port(pod, port) {
                push(vec![EndpointPort {
                    name: port.name.clone(),
                    port: number,
                    protocol: backends::protocol(&port.protocol).to_owned(),
                    app_protocol: port.app_protocol.clone(),
                    ..EndpointPort::default()
                }]);
            }
        }
    }
    subsets::repack(subsets)
}

/// The desired object; `None` if the existing one is up to date.
fn desired(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: Option<&Endpoints>,
    trigger: Option<String>,
    names: &Names,
) -> Option<Endpoints> {
    let mut subsets = subsets(service, pods);
    let truncated = subsets::truncate(&mut subsets, MOST);
    let over = names.well_known_under("endpoints", "over-capacity");
    let mut labels = service.metadata.labels.clone();
    let headless = names.well_known_under("service", "headless");
    match backends::is_headless(service) {
        true => drop(labels.insert(headless, String::new())),
        false => drop(labels.remove(&headless)),
    }
    if let Some(existing) = existing {
        let annotation = existing.metadata.annotations.get(&over).map(String::as_str);
        let same = subsets::comparable(&existing.subsets) == subsets::comparable(&subsets);
        if same && existing.metadata.labels == labels && annotation == truncated.then_some(TRUNCATED) {
            return None;
        }
    }
    let mut next = existing.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta { name: service.name().to_owned(), ..ObjectMeta::default() },
        ..Endpoints::default()
    });
    next.subsets = subsets;
    next.metadata.labels = labels;
    let annotations = &mut next.metadata.annotations;
    let mut annotate = |name: String, value: Option<String>| match value {
        Some(value) => drop(annotations.insert(name, value)),
        None => drop(annotations.remove(&name)),
    };
    annotate(names.well_known_under("endpoints", "last-change-trigger-time"), trigger);
    annotate(over, truncated.then(|| TRUNCATED.to_owned()));
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn pod(name: &str, ips: &[&str], ready: bool, more: Value) -> Arc<Pod> {
        let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let ready = if ready { "True" } else { "False" };
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"podIPs": ips, "conditions": [{"type": "Ready", "status": ready}]},
        });
        for (name, value) in more.as_object().unwrap() {
            pod["metadata"][name] = value.clone();
        }
        Arc::new(object(pod))
    }

    fn service(spec: Value) -> Service {
        object(json!({"metadata": {"name": "s", "namespace": "ns", "labels": {"l": "v"}}, "spec": spec}))
    }

    /// The subsets of a service as `ready / not ready : ports`.
    fn format_value(service: &Service, pods: &[Arc<Pod>]) -> Vec<String> {
        let ips = |all: &[EndpointAddress]| all.iter().map(|it| it.ip.clone()).collect::<Vec<_>>().join(",");
        let ports =
            |it: &EndpointSubset| it.ports.iter().map(|it| it.port.to_string()).collect::<Vec<_>>().join(",");
        subsets(service, pods)
            .iter()
            .map(|it| format!("{} / {} : {}", ips(&it.addresses), ips(&it.not_ready_addresses), ports(it)))
            .collect()
    }

    #[test]
    fn addresses_are_of_the_first_family_and_ready_or_not() {
        let pods = [
            pod("a", &["10.0.0.1", "fd00::1"], true, json!({})),
            pod("b", &["10.0.0.2", "fd00::2"], false, json!({})),
            pod("c", &["10.0.0.3"], true, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
        ];
        let ports = json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 90, "targetPort": "no"}]);
        let check =
            |spec: Value, expected: &[&str]| assert_eq!(format_value(&service(spec), &pods), expected);
        check(json!({"clusterIP": "10.96.0.1", "ports": ports}), &["10.0.0.1 / 10.0.0.2 : 8080"]);
        check(
            json!({"clusterIP": "None", "ipFamilies": ["IPv6"], "ports": ports}),
            &["fd00::1 / fd00::2 : 8080"],
        );
        check(
            json!({"clusterIP": "10.96.0.1", "ports": ports, "publishNotReadyAddresses": true}),
            &["10.0.0.1,10.0.0.2,10.0.0.3 /  : 8080"],
        );
        check(json!({"clusterIP": "None"}), &["10.0.0.1 / 10.0.0.2 : "]);
        check(json!({"clusterIP": "10.96.0.1"}), &[]);
    }

    #[test]
    fn only_changes_are_written() {
        let names = Names::kubernetes();
        let service = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let pods = [pod("a", &["10.0.0.1"], true, json!({}))];
        let time = || Some("2026-01-01T00:00:00Z".to_owned());
        let new = desired(&service, &pods, None, time(), &names).unwrap();
        let headless = new.metadata.labels.get("service.kubernetes.io/headless");
        assert_eq!(headless.map(String::as_str), Some(""));
        assert_eq!(new.metadata.annotations.values().cloned().collect::<Vec<_>>(), [time().unwrap()]);
        assert!(desired(&service, &pods, Some(&new), None, &names).is_none());
        let later = desired(&service, &[], Some(&new), None, &names).unwrap();
        assert!(later.subsets.is_empty() && later.metadata.annotations.is_empty());
        let many: Vec<_> = (0..1200)
            .map(|it| {
                pod(&format!("p{it:04}"), &[&format!("10.0.{}.{}", it / 250, it % 250)], true, json!({}))
            })
            .collect();
        let cut = desired(&service, &many, Some(&new), None, &names).unwrap();
        assert_eq!(cut.metadata.annotations["endpoints.kubernetes.io/over-capacity"], "truncated");
        assert!(desired(&service, &many, Some(&cut), None, &names).is_none());
    }
}
