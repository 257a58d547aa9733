//! The mandatory and suggested flow schemas and priority levels, and the status of flow schemas.
//!
//! Mandatory ones are kept exactly as defined here. Suggested ones are created if missing, and updated while
//! their annotation permits it.

use crate::loopback;
use futures_util::{StreamExt, stream};
use names::Names;
use rest::{Api, ApiError, Collection};
use schema::Value;
use std::sync::Arc;

pub(super) const GROUP: &str = "flowcontrol.apiserver";
pub(super) const SCHEMAS: &str = "flowschemas";
pub(super) const LEVELS: &str = "prioritylevelconfigurations";
/// Field managers of the objects and of the status.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The condition of a schema whose level does not exist.
const DANGLING: &str = "Dangling";

/// Concurrent writes, so that the store batches them.
const CONCURRENCY: usize = 8;

struct Level {
    name: &'static str,
    mandatory: bool,
    /// Shares and lendable percent; `None` for the exempt level.
    limits: Option<(i64, i64)>,
    /// Queues and hand size; without queues requests are rejected.
    queues: Option<(i64, i64)>,
}

const fn level(name: &'static str, limits: (i64, i64), queues: (i64, i64)) -> Level {
    Level { name, mandatory: false, limits: Some(limits), queues: Some(queues) }
}

const ALL_LEVELS: &[Level] = &[
    Level { name: "exempt", mandatory: true, limits: None, queues: None },
    Level { name: "catch-all", mandatory: true, limits: Some((5, 0)), queues: None },
    level("system", (30, 33), (64, 6)),
    level("node-high", (40, 25), (64, 6)),
    level("leader-election", (10, 0), (16, 4)),
    level("workload-high", (40, 50), (128, 6)),
    level("workload-low", (100, 90), (128, 6)),
    level("global-default", (20, 50), (128, 6)),
];

struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    /// Subjects separated by spaces: `group:NAME`, `user:NAME`, `account:NAME` in `kube-system`.
    subjects: &'static str,
    /// `verbs groups: resources`, `GET paths`; empty matches everything.
    rules: &'static [&'static str],
}

const ALL_USERS: &str = "group:system:unauthenticated group:system:authenticated";
const HOLD: &str = "get,create,update";

const ALL_SCHEMAS: &[Schema] = &[
    Schema {
        name: "exempt",
        level: "exempt",
        precedence: 1,
        distinguisher: "",
        subjects: "group:system:masters",
        rules: &[],
    },
    Schema {
        name: "catch-all",
        level: "catch-all",
        precedence: 10000,
        distinguisher: "ByUser",
        subjects: ALL_USERS,
        rules: &[],
    },
    Schema {
        name: "system-nodes",
        level: "system",
        precedence: 500,
        distinguisher: "ByUser",
        subjects: "group:system:nodes",
        rules: &[],
    },
    Schema {
        name: "system-node-high",
        level: "node-high",
        precedence: 400,
        distinguisher: "ByUser",
        subjects: "group:system:nodes",
        rules: &["* - nodes,nodes/status cluster", "* coordination leases"],
    },
    Schema {
        name: "probes",
        level: "exempt",
        precedence: 2,
        distinguisher: "",
        subjects: ALL_USERS,
        rules: &["get /healthz,/readyz,/livez"],
    },
    Schema {
        name: "system-leader-election",
        level: "leader-election",
        precedence: 100,
        distinguisher: "ByUser",
        subjects: "user:system:{prefix}-controller-manager user:system:{prefix}-scheduler account:*",
        rules: &["HOLD coordination leases"],
    },
    Schema {
        name: "workload-leader-election",
        level: "leader-election",
        precedence: 200,
        distinguisher: "ByUser",
        subjects: "account:*",
        rules: &["HOLD - endpoints,configmaps", "HOLD coordination leases"],
    },
    Schema {
        name: "endpoint-controller",
        level: "workload-high",
        precedence: 150,
        distinguisher: "ByUser",
        subjects: "user:system:{prefix}-controller-manager account:endpoint-controller account:endpointslicemirroring-controller",
        rules: &["HOLD - endpoints"],
    },
    Schema {
        name: "{prefix}-controller-manager",
        level: "workload-high",
        precedence: 800,
        distinguisher: "ByNamespace",
        subjects: "user:system:{prefix}-controller-manager",
        rules: &[],
    },
    Schema {
        name: "{prefix}-scheduler",
        level: "workload-high",
        precedence: 800,
        distinguisher: "ByNamespace",
        subjects: "user:system:{prefix}-scheduler",
        rules: &[],
    },
    Schema {
        name: "{prefix}-system-service-accounts",
        level: "workload-high",
        precedence: 900,
        distinguisher: "ByNamespace",
        subjects: "account:*",
        rules: &[],
    },
    Schema {
        name: "service-accounts",
        level: "workload-low",
        precedence: 9000,
        distinguisher: "ByUser",
        subjects: "group:system:serviceaccounts",
        rules: &[],
    },
    Schema {
        name: "global-default",
        level: "global-default",
        precedence: 9900,
        distinguisher: "ByUser",
        subjects: ALL_USERS,
        rules: &[],
    },
];

fn texts(list: &str) -> Value {
    Value::List(list.split(',').map(Value::from).collect())
}

impl Level {
    fn spec(&self) -> Value {
        let mut spec = Value::map();
        let Some((shares, lendable)) = self.limits else {
            spec.set(&["type"], "Exempt");
            return spec;
        };
        spec.set(&["type"], "Limited");
        spec.set(&["limited", "nominalConcurrencyShares"], shares);
        spec.set(&["limited", "lendablePercent"], lendable);
        match self.queues {
            None => spec.set(&["limited", "limitResponse", "type"], "Reject"),
            Some((queues, hand)) => {
                spec.set(&["limited", "limitResponse", "type"], "Queue");
                for (field, number) in [("queues", queues), ("handSize", hand), ("queueLengthLimit", 50)] {
                    spec.set(&["limited", "limitResponse", "queuing", field], number);
                }
            }
        }
        spec
    }
}

impl Schema {
    fn spec(&self, names: &Names) -> Value {
        let mut spec = Value::map();
        spec.set(&["priorityLevelConfiguration", "name"], self.level);
        spec.set(&["matchingPrecedence"], self.precedence);
        if !self.distinguisher.is_empty() {
            spec.set(&["distinguisherMethod", "type"], self.distinguisher);
        }
        let subjects = self.subjects.split(' ').map(|text| subject(text, names));
        let mut rule = Value::map();
        rule.set(&["subjects"], Value::List(subjects.collect()));
        let everything = ["* * * cluster", "* *"];
        let rules = if self.rules.is_empty() { &everything } else { self.rules };
        for text in rules {
            let (field, one) = rule_of(text, names);
            let mut list = rule.items(&[field]).to_vec();
            list.push(one);
            rule.set(&[field], list);
        }
        spec.set(&["rules"], Value::List(vec![rule]));
        spec
    }
}

fn subject(text: &str, names: &Names) -> Value {
    let (kind, name) = text.split_once(':').unwrap_or(("user", text));
    let name = with_names(name, names);
    let mut out = Value::map();
    match kind {
        "group" => {
            out.set(&["kind"], "Group");
            out.set(&["group", "name"], name);
        }
        "account" => {
            out.set(&["kind"], "ServiceAccount");
            out.set(&["serviceAccount", "name"], name);
            out.set(&["serviceAccount", "namespace"], names.system_namespace());
        }
        _ => {
            out.set(&["kind"], "User");
            out.set(&["user", "name"], name);
        }
    }
    out
}

/// The field of a rule, and the rule.
fn rule_of(text: &str, names: &Names) -> (&'static str, Value) {
    let fields: Vec<&str> = text.split(' ').collect();
    let verbs = if fields[0] == "HOLD" { HOLD } else { fields[0] };
    let mut out = Value::map();
    out.set(&["verbs"], texts(verbs));
    let [_, group, resources, scope @ ..] = &fields[..] else {
        out.set(&["nonResourceURLs"], texts(fields.get(1).unwrap_or(&"*")));
        return ("nonResourceRules", out);
    };
    let group = match *group {
        "-" => String::new(),
        "*" => "*".to_owned(),
        stem => names.group(stem),
    };
    out.set(&["apiGroups"], Value::List(vec![group.into()]));
    out.set(&["resources"], texts(resources));
    if !scope.is_empty() {
        out.set(&["clusterScope"], true);
    }
    out.set(&["namespaces"], texts("*"));
    ("resourceRules", out)
}

fn with_names(text: &str, names: &Names) -> String {
    text.replace("{prefix}", &names.prefix)
}

/// A mandatory or suggested object.
pub(super) struct BootstrapObject {
    pub(super) plural: &'static str,
    name: String,
    mandatory: bool,
    spec: Value,
}

pub(super) fn bootstrap_objects(names: &Names) -> Vec<BootstrapObject> {
    let levels = ALL_LEVELS.iter().map(|level| BootstrapObject {
        plural: LEVELS,
        name: level.name.to_owned(),
        mandatory: level.mandatory,
        spec: level.spec(),
    });
    let schemas = ALL_SCHEMAS.iter().map(|schema| BootstrapObject {
        plural: SCHEMAS,
        name: with_names(schema.name, names),
        mandatory: matches!(schema.name, "exempt" | "catch-all"),
        spec: schema.spec(names),
    });
    levels.chain(schemas).collect()
}

fn version(api: &Api) -> String {
    format!("{}/v1beta3", api.names.group(GROUP))
}

pub(super) fn collections(api: &Api) -> Vec<Arc<Collection>> {
    let resources = api.resources();
    let resources_of_both =
        [SCHEMAS, LEVELS].into_iter().filter_map(|plural| resources.get(&version(api), plural));
    resources_of_both.map(|resource| resource.collection.clone()).collect()
}

/// All objects of one of the two kinds, in the newer version.
pub(super) fn all(api: &Api, group_version: &str, plural: &str) -> Vec<Value> {
    let resources = api.resources();
    let Some(resource) = resources.get(group_version, plural) else { return Vec::new() };
    let snapshot = resource.collection.cache.snapshot();
    let objects = snapshot.range(None, None);
    objects.filter_map(|(_, object)| resource.tree(object).ok()).collect()
}

/// Creates and reconciles the objects. Failures are logged and retried later.
pub(super) async fn ensure(api: &Arc<Api>) {
    let annotation = format!("apf.{}/autoupdate-spec", api.names.well_known_domain);
    let (schemas, levels) = (all(api, &version(api), SCHEMAS), all(api, &version(api), LEVELS));
    let writes = bootstrap_objects(&api.names).into_iter().filter_map(|desired| {
        let existing = if desired.plural == LEVELS { &levels } else { &schemas };
        let existing = existing.iter().find(|it| it.text(&["metadata", "name"]) == desired.name);
        let next = reconciled(existing, &desired, &annotation)?;
        let exists = existing.is_some();
        Some(async move {
            // a concurrent server of the same store writes the same
            if let Err(why) = loopback::ignore_conflict(write(api, &desired, exists, &next).await) {
                tracing::warn!(name = desired.name, %why, "a flow control object could not be reconciled");
            }
        })
    });
    stream::iter(writes).buffer_unordered(CONCURRENCY).collect::<()>().await
}

/// The next state of an object; `None` if it is up to date.
pub(super) fn reconciled(
    existing: Option<&Value>,
    desired: &BootstrapObject,
    annotation: &str,
) -> Option<Value> {
    let Some(existing) = existing else {
        let mut object = Value::map();
        object.set(&["metadata", "name"], desired.name.as_str());
        annotate(&mut object, annotation, "true");
        object.set(&["spec"], desired.spec.clone());
        return Some(object);
    };
    let annotated = existing.at(&["metadata", "annotations"]).and_then(|all| all.at(&[annotation]));
    let annotated = annotated.and_then(Value::as_str);
    let untouched = existing.at(&["metadata", "generation"]).and_then(Value::as_int) == Some(1);
    let is_managed = desired.mandatory || annotated == Some("true") || annotated.is_none() && untouched;
    let value = if is_managed { "true" } else { "false" };
    let mut next = existing.clone();
    if is_managed {
        next.set(&["spec"], desired.spec.clone());
    }
    if annotated != Some(value) {
        annotate(&mut next, annotation, value);
    }
    (next != *existing).then_some(next)
}

fn annotate(object: &mut Value, key: &str, text: &str) {
    let existing = object.at(&["metadata", "annotations"]).and_then(Value::as_map);
    let mut annotations = existing.cloned().unwrap_or_default();
    annotations.insert(key.to_owned(), text);
    object.set(&["metadata", "annotations"], annotations);
}

async fn write(
    api: &Arc<Api>,
    desired: &BootstrapObject,
    exists: bool,
    object: &Value,
) -> Result<(), ApiError> {
    let resources = api.resources();
    let Some(resource) = resources.get(&version(api), desired.plural) else { return Ok(()) };
    let name = if exists { &*desired.name } else { "" };
    let target = loopback::WriteTarget { resource, namespace: "", name, subresource: "" };
    loopback::write_as(api, target, PRODUCER, object).await.map(drop)
}

/// Updates the `Dangling` condition of every schema.
pub(super) async fn update_statuses(api: &Arc<Api>) {
    let (schemas, levels) = (all(api, &version(api), SCHEMAS), all(api, &version(api), LEVELS));
    let now = env::unix_seconds(&api.world);
    let writes = schemas.into_iter().filter_map(|schema| {
        let level = schema.text(&["spec", "priorityLevelConfiguration", "name"]);
        let exists = levels.iter().any(|it| it.text(&["metadata", "name"]) == level);
        let condition = dangling(&schema, level, exists, now)?;
        Some(async move {
            if let Err(why) = apply_condition(api, &schema, condition).await {
                tracing::debug!(%why, "the status of a flow schema could not be written");
            }
        })
    });
    stream::iter(writes).buffer_unordered(CONCURRENCY).collect::<()>().await
}

/// The condition; `None` if the schema has it already.
pub(super) fn dangling(schema: &Value, level: &str, exists: bool, now: i64) -> Option<Value> {
    let (status, reason, rest) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}");
    let current = schema.items(&["status", "conditions"]).iter().find(|it| it.text(&["type"]) == DANGLING);
    let expected = [("status", status), ("reason", reason), ("message", &*message)];
    if current.is_some_and(|it| expected.iter().all(|(field, text)| it.text(&[field]) == *text)) {
        return None;
    }
    let since =
        current.filter(|it| it.text(&["status"]) == status).map(|it| it.text(&["lastTransitionTime"]));
    let since = since.map_or_else(|| schema::time::format_time(now), str::to_owned);
    let mut condition = Value::map();
    for (field, text) in [
        ("type", DANGLING),
        ("status", status),
        ("reason", reason),
        ("message", &message),
        ("lastTransitionTime", &since),
    ] {
        condition.set(&[field], text);
    }
    Some(condition)
}

async fn apply_condition(api: &Arc<Api>, schema: &Value, condition: Value) -> Result<(), ApiError> {
    let resources = api.resources();
    let Some(resource) = resources.get(&version(api), SCHEMAS) else { return Ok(()) };
    let name = schema.text(&["metadata", "name"]);
    let mut object = Value::map();
    object.set(&["apiVersion"], version(api));
    object.set(&["kind"], "FlowSchema");
    object.set(&["metadata", "name"], name);
    object.set(&["status", "conditions"], Value::List(vec![condition]));
    let target = loopback::WriteTarget { resource, namespace: "", name, subresource: "status" };
    loopback::apply(api, target, CONSUMER, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expanded rules of some objects.
    #[test]
    fn rules_are_expanded() {
        let names = Names::kubernetes();
        let all = bootstrap_objects(&names);
        let spec =
            |name: &str| all.iter().find(|it| it.plural == SCHEMAS && it.name == name).map(|it| &it.spec);
        let high = spec("system-node-high").unwrap();
        let rules = high.items(&["rules"])[0].items(&["resourceRules"]).to_vec();
        assert_eq!(rules[0].at(&["clusterScope"]), Some(&true.into()));
        assert_eq!(crate::string_lists::list_of(&rules[1], &["apiGroups"]), ["coordination.k8s.io"]);
        assert_eq!(rules[1].at(&["clusterScope"]), None);
        let manager = spec("kube-controller-manager").unwrap();
        assert_eq!(manager.items(&["rules"])[0].items(&["nonResourceRules"]).len(), 1);
        assert!(spec("probes").unwrap().items(&["rules"])[0].items(&["resourceRules"]).is_empty());
    }

    #[test]
    fn changes_of_operators_stay_unless_mandatory() {
        let all = bootstrap_objects(&Names::kubernetes());
        let (mandatory, suggested) = (&all[0], &all[2]);
        let existing = |desired: &BootstrapObject, annotation: Option<&str>, generation: i64| {
            let mut object = reconciled(None, desired, "k").unwrap();
            object.set(&["metadata", "generation"], generation);
            object.set(&["spec", "type"], "Other");
            object.unset(&["metadata", "annotations"]);
            if let Some(text) = annotation {
                annotate(&mut object, "k", text);
            }
            object
        };
        let spec_type = |desired, annotation, generation| {
            let next = reconciled(Some(&existing(desired, annotation, generation)), desired, "k");
            next.map(|next| next.text(&["spec", "type"]).to_owned()).unwrap_or_default()
        };
        assert_eq!(spec_type(mandatory, Some("false"), 5), "Exempt");
        assert_eq!(spec_type(suggested, Some("true"), 5), "Limited");
        assert_eq!(spec_type(suggested, None, 1), "Limited");
        assert_eq!(spec_type(suggested, None, 2), "Other");
        assert_eq!(spec_type(suggested, Some("false"), 1), "");
    }
}
