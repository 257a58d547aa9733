//! Endpoints: for each service that selects pods, the addresses of these, ready or not.
//!
//! This is the old form of what endpoint slices say; it has an end at so many addresses.

pub(crate) mod subsets;

use crate::Context;
use crate::backends::{self, Backends, Triggers};
use crate::pods::state;
use client::events::EventType;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run, unless};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use names::Names;
use std::sync::Arc;
use std::time::Duration;

/// How many addresses an object has at the most.
const MOST: usize = 1000;
const TRUNCATED: &str = "truncated";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How long is waited for more changes of pods.
    pub batch_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 5, batch_period: Duration::ZERO }
    }
}

struct Loop {
    context: Context,
    backends: Backends,
    endpoints: Informer<Endpoints>,
    written: WriteTracker<Endpoints>,
    triggers: Triggers,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::default();
    let backends = Backends::watch(&context, &queue, options.batch_period);
    let endpoints = context.informer::<Endpoints>();
    let news = queue.clone();
    endpoints.listen(move |change| {
        if change.is_deletion() {
            news.add(change.key());
        }
    });
    backends.synced().await;
    endpoints.synced().await;
    // those whose service went while nobody looked; a lease of old is kept in some
    let leader = context.names.well_known_under("control-plane.alpha", "leader");
    let left = endpoints.all();
    let left = left.iter().filter(|it| !it.annotations().contains_key(&leader));
    left.for_each(|it| queue.add(Key::of(&**it)));
    let this = Loop {
        context,
        backends,
        written: WriteTracker::new(endpoints.clone()),
        endpoints,
        triggers: Triggers::default(),
    };
    run::run(Arc::new(this), queue, options.workers).await;
}

impl Reconcile for Loop {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpoint"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let api: Api<Endpoints> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let Some(service) = self.backends.services.get(key) else {
            self.triggers.forget(key);
            if let Some(there) = self.endpoints.get(key) {
                unless(404, api.delete(&key.name, &DeleteParams::default()).await)?;
                self.written.deleted(key, &there);
            }
            return Ok(Action::AwaitChange);
        };
        if !backends::selects(&service) {
            return Ok(Action::AwaitChange);
        }
        let pods = self.backends.pods_of(&service);
        // remembered even if nothing is to be written
        let trigger = self.triggers.since_last(key, &service, &pods);
        let there = self.endpoints.get(key);
        let Some(next) = wanted(&service, &pods, there.as_deref(), trigger, &self.context.names) else {
            return Ok(Action::AwaitChange);
        };
        let written = match &there {
            None => api.create(&PostParams::default(), &next).await,
            Some(_) => api.replace(&key.name, &PostParams::default(), &next).await,
        };
        match written {
            Ok(now) => self.written.wrote(key, &now),
            Err(why) if there.is_none() && client::is_terminating(&why) => {}
            Err(why) => {
                let why = Failure::from(why);
                self.tell(&service, there.is_none(), &why);
                return Err(why);
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl Loop {
    fn tell(&self, service: &Service, creating: bool, why: &Failure) {
        let (of, why) = (Key::of(service), why.message());
        let (reason, message) = match creating {
            true => ("FailedToCreateEndpoint", format!("Failed to create endpoint for service {of}: {why}")),
            false => ("FailedToUpdateEndpoint", format!("Failed to update endpoint {of}: {why}")),
        };
        self.context.events.tell(service, EventType::Warning, reason, message);
    }
}

/// The address of a pod in the family that a service has first.
fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let spec = service.spec.as_ref()?;
    let all = backends::addresses(pod);
    let family = spec.ip_families.iter().flatten().next();
    let v6 = match (family, spec.cluster_ip.as_deref()) {
        (Some(family), _) => family == "IPv6",
        (None, Some(own)) if !backends::is_headless(service) => backends::is_v6(own),
        _ => backends::is_v6(all.first()?),
    };
    let ip = all.into_iter().find(|it| backends::is_v6(it) == v6)?;
    Some(EndpointAddress {
        ip: ip.to_owned(),
        hostname: backends::hostname(pod, service).cloned(),
        node_name: pod.spec.as_ref().and_then(|it| it.node_name.clone()),
        target_ref: Some(backends::reference(pod)),
    })
}

/// Who stands behind a service.
fn behind(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let publishes = spec.publish_not_ready_addresses.unwrap_or(false);
    let service_ports = spec.ports.as_deref().unwrap_or_default();
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| backends::is_reachable(pod, publishes)) {
        let Some(address) = address(service, pod) else { continue };
        let ready = publishes || state::is_ready(pod);
        let mut push = |ports: Option<Vec<EndpointPort>>| {
            let (yes, no) =
                if ready { (Some(vec![address.clone()]), None) } else { (None, Some(vec![address.clone()])) };
            subsets.push(EndpointSubset { addresses: yes, not_ready_addresses: no, ports });
        };
        // a service without an address needs no ports
        if service_ports.is_empty() && spec.cluster_ip.as_deref() == Some("None") {
            push(None);
        }
        for port in service_ports {
            if let Some(number) = backends::port(pod, port) {
                push(Some(vec![EndpointPort {
                    name: port.name.clone(),
                    port: number,
                    protocol: Some(backends::protocol(port.protocol.as_deref()).to_owned()),
                    app_protocol: port.app_protocol.clone(),
                }]));
            }
        }
    }
    subsets::repack(subsets)
}

/// The object as it should be, unless it is.
fn wanted(
    service: &Service,
    pods: &[Arc<Pod>],
    there: Option<&Endpoints>,
    trigger: Option<String>,
    names: &Names,
) -> Option<Endpoints> {
    let mut subsets = behind(service, pods);
    let truncated = subsets::truncate(&mut subsets, MOST);
    let over = names.well_known_under("endpoints", "over-capacity");
    let mut labels = service.labels().clone();
    let headless = names.well_known_under("service", "headless");
    match backends::is_headless(service) {
        true => drop(labels.insert(headless, String::new())),
        false => drop(labels.remove(&headless)),
    }
    if let Some(there) = there {
        let said = there.annotations().get(&over).map(String::as_str);
        let same = subsets::comparable(there.subsets.as_deref().unwrap_or_default())
            == subsets::comparable(&subsets);
        if same && *there.labels() == labels && said == truncated.then_some(TRUNCATED) {
            return None;
        }
    }
    let mut next = there.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta { name: service.metadata.name.clone(), ..ObjectMeta::default() },
        ..Endpoints::default()
    });
    next.subsets = Some(subsets).filter(|it| !it.is_empty());
    next.metadata.labels = Some(labels).filter(|it| !it.is_empty());
    let annotations = next.metadata.annotations.get_or_insert_default();
    let mut note = |name: String, value: Option<String>| match value {
        Some(value) => drop(annotations.insert(name, value)),
        None => drop(annotations.remove(&name)),
    };
    note(names.well_known_under("endpoints", "last-change-trigger-time"), trigger);
    note(over, truncated.then(|| TRUNCATED.to_owned()));
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn service(spec: Value) -> Service {
        let service =
            json!({"metadata": {"name": "s", "namespace": "ns", "labels": {"l": "v"}}, "spec": spec});
        serde_json::from_value(service).unwrap()
    }

    fn told(service: &Service, pods: &[Arc<Pod>]) -> Vec<String> {
        let subsets = behind(service, pods);
        let side = |all: &Option<Vec<EndpointAddress>>| {
            all.iter().flatten().map(|it| it.ip.clone()).collect::<Vec<_>>().join(",")
        };
        let ports = |it: &EndpointSubset| {
            it.ports.iter().flatten().map(|it| it.port.to_string()).collect::<Vec<_>>().join(",")
        };
        subsets
            .iter()
            .map(|it| format!("{} / {} : {}", side(&it.addresses), side(&it.not_ready_addresses), ports(it)))
            .collect()
    }

    #[test]
    fn addresses_are_those_of_the_first_family_and_ready_or_not() {
        let pods = [
            pod("a", &["10.0.0.1", "fd00::1"], true, json!({})),
            pod("b", &["10.0.0.2", "fd00::2"], false, json!({})),
            pod("c", &["10.0.0.3"], true, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})),
        ];
        let ports = json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 90, "targetPort": "no"}]);
        let check = |spec: Value, expected: &[&str]| assert_eq!(told(&service(spec), &pods), expected);
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
    fn only_what_is_otherwise_is_written() {
        let names = Names::kubernetes();
        let service = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let pods = [pod("a", &["10.0.0.1"], true, json!({}))];
        let time = || Some("2026-01-01T00:00:00Z".to_owned());
        let made = wanted(&service, &pods, None, time(), &names).unwrap();
        assert_eq!(made.labels().get("service.kubernetes.io/headless").map(String::as_str), Some(""));
        assert_eq!(made.annotations().values().cloned().collect::<Vec<_>>(), [time().unwrap()]);
        assert!(wanted(&service, &pods, Some(&made), None, &names).is_none());
        let later = wanted(&service, &[], Some(&made), None, &names).unwrap();
        assert!(later.subsets.is_none() && later.annotations().is_empty());
        let many: Vec<_> = (0..1200)
            .map(|it| {
                pod(&format!("p{it:04}"), &[&format!("10.0.{}.{}", it / 250, it % 250)], true, json!({}))
            })
            .collect();
        let cut = wanted(&service, &many, Some(&made), None, &names).unwrap();
        assert_eq!(cut.annotations()["endpoints.kubernetes.io/over-capacity"], "truncated");
        assert!(wanted(&service, &many, Some(&cut), None, &names).is_none());
    }
}
