//! The work of a simulation: requests of users, which follow from the seed and from what they requested before.

use super::choice::Choice;
use super::fields::{is_terminating, uid};
use super::history::{ObjectKey, Objects};
use super::objects;
use serde_json::{Value, json};

/// The most workloads of a kind at once, in a namespace.
const MOST: usize = 4;
/// Namespaces that last.
const NAMESPACES: [&str; 2] = ["one", "two"];
/// The namespaces with quotas.
const LIMITED: &str = "limited";

/// A request of a user.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: &'static str,
    pub key: ObjectKey,
    /// Such as `scale` and `eviction`; often empty.
    pub subresource: &'static str,
    pub body: Value,
}

/// Requests that are sent at the same time.
#[derive(Debug, Clone)]
pub struct Action {
    pub what: String,
    pub requests: Vec<Request>,
}

/// A workload that users have requested.
#[derive(Debug, Clone)]
struct RequestedWorkload {
    resource: &'static str,
    namespace: String,
    name: String,
}

/// See the module.
pub struct Workload {
    choice: Choice,
    requested: Vec<RequestedWorkload>,
    /// Namespaces that come and go.
    passing: Vec<String>,
    cordoned: Vec<String>,
    made: u64,
}

fn request(method: &'static str, resource: &str, namespace: &str, name: &str, body: Value) -> Request {
    Request { method, key: ObjectKey::new(resource, namespace, name), subresource: "", body }
}

fn one(what: impl Into<String>, request: Request) -> Action {
    Action { what: what.into(), requests: vec![request] }
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Workload {
            choice: Choice::new(seed),
            requested: Vec::new(),
            passing: Vec::new(),
            cordoned: Vec::new(),
            made: 0,
        }
    }

    /// The first actions: namespaces and a quota.
    pub fn start(&mut self) -> Vec<Action> {
        let namespace =
            |name: &str| one(name, request("POST", "namespaces", "", name, objects::config_map(name)));
        let mut actions: Vec<Action> = NAMESPACES.into_iter().chain([LIMITED]).map(namespace).collect();
        let hard = json!({"count/configmaps": "8", "pods": "6"});
        actions.push(one("quota", request("POST", "resourcequotas", LIMITED, "quota", objects::quota(hard))));
        actions
    }

    /// The next action.
    pub fn next(&mut self, state: &Objects) -> Action {
        match self.choice.below(100) {
            0..=19 => self.create(),
            20..=34 => self.scale(),
            35..=49 => self.roll(),
            50..=55 => self.delete(),
            56..=63 => self.evict(state),
            64..=67 => self.drain(state),
            68..=71 => self.uncordon(),
            72..=79 => self.compete(state),
            80..=87 => self.garbage(state),
            88..=91 => self.hold(state),
            92..=95 => self.namespace(),
            96..=97 => self.delete_pod(state),
            _ => self.suspend(),
        }
    }

    /// The last actions, after which the cluster can converge.
    pub fn finish(&mut self) -> Vec<Action> {
        let mut actions: Vec<Action> = Vec::new();
        while !self.cordoned.is_empty() {
            actions.push(self.uncordon());
        }
        for it in self.requested.iter().filter(|it| it.resource == "cronjobs.batch") {
            let body = json!({"spec": {"suspend": true}});
            actions.push(one("suspend", request("PATCH", it.resource, &it.namespace, &it.name, body)));
        }
        actions
    }

    fn namespace_of_now(&self) -> String {
        let all: Vec<&str> = NAMESPACES.into_iter().chain(self.passing.iter().map(String::as_str)).collect();
        (*self.choice.pick(&all)).to_owned()
    }

    fn new_name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn create(&mut self) -> Action {
        let namespace = self.namespace_of_now();
        let resource = *self.choice.pick(&[
            "deployments.apps",
            "deployments.apps",
            "deployments.apps",
            "statefulsets.apps",
            "statefulsets.apps",
            "jobs.batch",
            "jobs.batch",
            "cronjobs.batch",
            "daemonsets.apps",
        ]);
        let count =
            self.requested.iter().filter(|it| it.resource == resource && it.namespace == namespace).count();
        let most = if resource == "daemonsets.apps" || resource == "cronjobs.batch" { 1 } else { MOST };
        if resource != "jobs.batch" && count >= most {
            return self.roll();
        }
        let name = self.new_name(&resource[..1]);
        let choice = &self.choice;
        let body = match resource {
            "deployments.apps" => objects::deployment(choice, &name),
            "statefulsets.apps" => objects::stateful_set(choice, &name),
            "jobs.batch" => objects::job(choice, &name),
            "cronjobs.batch" => objects::cron_job(choice, &name),
            _ => objects::daemon_set(choice, &name),
        };
        let mut requests = vec![request("POST", resource, &namespace, &name, body)];
        if resource == "deployments.apps" || resource == "statefulsets.apps" {
            if choice.chance(50) {
                requests.push(request("POST", "services", &namespace, &name, objects::service(&name)));
            }
            if choice.chance(60) {
                let budget = objects::budget(choice, &name);
                requests.push(request("POST", "poddisruptionbudgets.policy", &namespace, &name, budget));
            }
        }
        self.requested.push(RequestedWorkload { resource, namespace: namespace.clone(), name: name.clone() });
        Action { what: format!("create {resource} {namespace}/{name}"), requests }
    }

    /// A workload of these resources that users have requested.
    fn draw(&self, resources: &[&str]) -> Option<usize> {
        let found: Vec<usize> = (0..self.requested.len())
            .filter(|at| resources.contains(&self.requested[*at].resource))
            .collect();
        if found.is_empty() { None } else { Some(*self.choice.pick(&found)) }
    }

    fn scale(&mut self) -> Action {
        let Some(at) = self.draw(&["deployments.apps", "statefulsets.apps"]) else { return self.create() };
        let it = &self.requested[at];
        let replicas = self.choice.below(7);
        let body = json!({"spec": {"replicas": replicas}});
        let what = format!("scale {} {}/{} to {replicas}", it.resource, it.namespace, it.name);
        one(what, request("PATCH", it.resource, &it.namespace, &it.name, body))
    }

    fn roll(&mut self) -> Action {
        let resources = ["deployments.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps"];
        let Some(at) = self.draw(&resources) else { return self.hold(&Objects::default()) };
        self.made += 1;
        let it = &self.requested[at];
        // sometimes a rollback
        let version = if self.choice.chance(25) { self.choice.below(3) } else { self.made };
        let body = objects::new_version(version);
        let what = format!("roll {} {}/{} to {version}", it.resource, it.namespace, it.name);
        one(what, request("PATCH", it.resource, &it.namespace, &it.name, body))
    }

    fn delete(&mut self) -> Action {
        if self.requested.is_empty() {
            return self.create();
        }
        let it = self.requested.remove(self.choice.place(&self.requested));
        let policy = *self.choice.pick(&["Background", "Background", "Foreground"]);
        let mut requests = Vec::new();
        let options = json!({"propagationPolicy": policy});
        requests.push(request("DELETE", it.resource, &it.namespace, &it.name, options));
        for resource in ["services", "poddisruptionbudgets.policy"] {
            requests.push(request("DELETE", resource, &it.namespace, &it.name, json!({})));
        }
        Action { what: format!("delete {} {}/{} {policy}", it.resource, it.namespace, it.name), requests }
    }

    fn draw_pods(&self, state: &Objects, most: u64) -> Vec<ObjectKey> {
        let pods: Vec<&ObjectKey> =
            state.of("pods").filter(|(_, it)| !is_terminating(it)).map(|(key, _)| key).collect();
        if pods.is_empty() {
            return Vec::new();
        }
        (0..self.choice.between(1, most)).map(|_| (*self.choice.pick(&pods)).clone()).collect()
    }

    fn evict(&mut self, state: &Objects) -> Action {
        let pods = self.draw_pods(state, 4);
        Action {
            what: format!("evict {} pods", pods.len()),
            requests: pods.into_iter().map(eviction).collect(),
        }
    }

    fn delete_pod(&mut self, state: &Objects) -> Action {
        let pods = self.draw_pods(state, 2);
        let delete = |key| Request { method: "DELETE", key, subresource: "", body: json!({}) };
        Action {
            what: format!("delete {} pods", pods.len()),
            requests: pods.into_iter().map(delete).collect(),
        }
    }

    /// Cordons a node and evicts all of its pods.
    fn drain(&mut self, state: &Objects) -> Action {
        let nodes: Vec<&str> = state.of("nodes").map(|(key, _)| &*key.name).collect();
        if nodes.is_empty() || self.cordoned.len() >= 2 {
            return self.uncordon();
        }
        let node = (*self.choice.pick(&nodes)).to_owned();
        let mut requests =
            vec![request("PATCH", "nodes", "", &node, json!({"spec": {"unschedulable": true}}))];
        let of_daemon = |pod: &Value| super::fields::controller(pod, "DaemonSet").is_some();
        let pods = state.of("pods").filter(|(_, it)| it["spec"]["nodeName"] == *node && !of_daemon(it));
        requests.extend(pods.map(|(key, _)| eviction(key.clone())));
        self.cordoned.push(node.clone());
        Action { what: format!("drain {node}"), requests }
    }

    fn uncordon(&mut self) -> Action {
        match self.cordoned.pop() {
            Some(node) => {
                let body = json!({"spec": {"unschedulable": null}});
                one(format!("uncordon {node}"), request("PATCH", "nodes", "", &node, body))
            }
            None => self.create(),
        }
    }

    /// Many clients create objects where only some may, and others delete some.
    fn compete(&mut self, state: &Objects) -> Action {
        let mut requests = Vec::new();
        for _ in 0..self.choice.between(2, 8) {
            let name = self.new_name("q");
            let is_pod = self.choice.chance(40);
            let resource = if is_pod { "pods" } else { "configmaps" };
            let body = match is_pod {
                false => objects::config_map(&name),
                true => json!({
                    "metadata": {"name": name, "annotations": {"simulation.pintle.io/run-for": "40s"}},
                    "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                             "containers": [{"name": "c", "image": "example.com/c:1"}]},
                }),
            };
            requests.push(request("POST", resource, LIMITED, &name, body));
        }
        for resource in ["configmaps", "pods"] {
            let present: Vec<&ObjectKey> = state
                .within(resource, LIMITED)
                .map(|it| it.0)
                .filter(|it| it.name.starts_with('q'))
                .collect();
            for key in present {
                if self.choice.chance(40) {
                    let delete =
                        Request { method: "DELETE", key: key.clone(), subresource: "", body: json!({}) };
                    let at = self.choice.place(&requests);
                    requests.insert(at, delete);
                }
            }
        }
        Action { what: format!("{} requests under a quota", requests.len()), requests }
    }

    /// Owners and dependents: makes some, gives dependents a second owner, deletes owners.
    fn garbage(&mut self, state: &Objects) -> Action {
        let namespace = (*self.choice.pick(&NAMESPACES)).to_owned();
        let owners: Vec<(String, String)> = state
            .within("configmaps", &namespace)
            .filter(|(key, it)| key.name.starts_with("owner-") && !is_terminating(it))
            .map(|(key, it)| (key.name.clone(), uid(it).to_owned()))
            .collect();
        if owners.len() < 2 || self.choice.chance(25) {
            let name = self.new_name("owner");
            return one(
                "create owner",
                request("POST", "configmaps", &namespace, &name, objects::config_map(&name)),
            );
        }
        if self.choice.chance(45) {
            let mut requests = Vec::new();
            for _ in 0..self.choice.between(1, 4) {
                let mut of = vec![self.choice.pick(&owners).clone()];
                let second = self.choice.pick(&owners).clone();
                if self.choice.chance(30) && !of.contains(&second) {
                    of.push(second);
                }
                let name = self.new_name("dependent");
                let body = objects::dependent(&name, &of, self.choice.chance(50));
                requests.push(request("POST", "configmaps", &namespace, &name, body));
            }
            return Action { what: format!("create {} dependents", requests.len()), requests };
        }
        let owner = &self.choice.pick(&owners).0;
        let policy = *self.choice.pick(&["Background", "Foreground", "Orphan"]);
        let options = json!({"propagationPolicy": policy});
        one(
            format!("delete {namespace}/{owner} {policy}"),
            request("DELETE", "configmaps", &namespace, owner, options),
        )
    }

    /// Makes or deletes an object with a finalizer of the simulation.
    fn hold(&mut self, state: &Objects) -> Action {
        let namespace = (*self.choice.pick(&NAMESPACES)).to_owned();
        let held: Vec<&ObjectKey> = state
            .within("configmaps", &namespace)
            .map(|it| it.0)
            .filter(|it| it.name.starts_with("held-"))
            .collect();
        if held.len() < 3 || self.choice.chance(30) {
            let name = self.new_name("held");
            let body = objects::held_config_map(&name);
            return one("create held", request("POST", "configmaps", &namespace, &name, body));
        }
        let key = (*self.choice.pick(&held)).clone();
        one(format!("delete {key}"), Request { method: "DELETE", key, subresource: "", body: json!({}) })
    }

    fn namespace(&mut self) -> Action {
        if self.passing.is_empty() || self.passing.len() < 2 && self.choice.chance(50) {
            let name = self.new_name("passing");
            self.passing.push(name.clone());
            return one(
                format!("create namespace {name}"),
                request("POST", "namespaces", "", &name, objects::config_map(&name)),
            );
        }
        let name = self.passing.remove(self.choice.place(&self.passing));
        self.requested.retain(|it| it.namespace != name);
        one(format!("delete namespace {name}"), request("DELETE", "namespaces", "", &name, json!({})))
    }

    fn suspend(&mut self) -> Action {
        let Some(at) = self.draw(&["jobs.batch", "cronjobs.batch"]) else { return self.create() };
        let it = &self.requested[at];
        let suspends = self.choice.chance(50);
        let body = json!({"spec": {"suspend": suspends}});
        let what = format!("suspend {} {}/{}: {suspends}", it.resource, it.namespace, it.name);
        one(what, request("PATCH", it.resource, &it.namespace, &it.name, body))
    }
}

fn eviction(key: ObjectKey) -> Request {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": key.name, "namespace": key.namespace}});
    Request { method: "POST", key, subresource: "eviction", body }
}
