//! Resource quotas: the usage of an object, and whether the quotas of its namespace allow a write.
//!
//! A quota bounds only the resources in its status, so a quota that no controller has seen yet allows everything.

use crate::qos::qos_class;
use crate::resource_list;
use crate::unstructured as read;
use crate::volumes::storage_class;
use names::Names;
use schema::quantity::Quantity;
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

type Amounts = BTreeMap<String, Quantity>;

/// Resources that each container must specify where a quota bounds them.
const EXPLICIT: &[&str] =
    &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// Resources that are also counted under their plain name.
const PLAIN: &[&str] = &["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// A write: group and plural of the resource, the new state, and the old one if there is one.
pub struct QuotaRequest<'w> {
    pub group: &'w str,
    pub plural: &'w str,
    pub object: &'w Value,
    pub old: Option<&'w Value>,
}

/// Usage that requires a quota that covers it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LimitedResource {
    pub group: String,
    pub plural: String,
    /// Parts of the names of limited amounts.
    pub contains: Vec<String>,
    /// Scopes whose objects are limited.
    pub scopes: Vec<Scope>,
}

/// A scope of a quota: a condition on objects.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Scope {
    pub name: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.name, self.operator, self.values.join(" "))
    }
}

/// The reason of a rejected write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A quota forbids it, or a required one is missing.
    Forbidden(String),
    /// No quota covers the scopes of the object.
    Uncovered(String),
}

/// Whether updates of such objects can change their usage.
pub fn follows_changes(group: &str, plural: &str) -> bool {
    group.is_empty() && matches!(plural, "services" | "persistentvolumeclaims")
}

/// The index and the new usage of each quota that changes, or why the write is refused.
pub fn charge(
    quotas: &[Value],
    request: &QuotaRequest<'_>,
    limited: &[LimitedResource],
    names: &Names,
) -> Result<Vec<(usize, Map)>, Refusal> {
    if request.old.is_some() && !follows_changes(request.group, request.plural) {
        return Ok(Vec::new());
    }
    let (group, plural) = (request.group, request.plural);
    let is_pod = group.is_empty() && plural == "pods";
    let usage = usage(group, plural, request.object, names);
    let nothing = Quantity::new(0);
    let of_this = |it: &&LimitedResource| it.group == group && it.plural == plural;
    let contains = limited.iter().filter(of_this).flat_map(|it| &it.contains);
    let mut uncovered: BTreeSet<&str> = contains
        .flat_map(|part| usage.iter().filter(move |(name, _)| name.contains(part.as_str())))
        .filter(|(_, amount)| **amount > nothing)
        .map(|(name, _)| name.as_str())
        .collect();
    let mut concerned = Vec::new();
    for (at, quota) in quotas.iter().enumerate() {
        let hard = read::map(quota, &["status", "hard"]);
        let bounded: BTreeSet<&str> =
            hard.keys().filter(|name| concerns(group, plural, name, names)).collect();
        if bounded.is_empty() || !in_scope(quota, request.object, is_pod) {
            continue;
        }
        let name = quota.text(&["metadata", "name"]);
        if is_pod {
            let failed = |why| Refusal::Forbidden(format!("failed quota: {name}: {why}"));
            explicit(request.object, &bounded).map_err(failed)?;
        }
        let used = read::map(quota, &["status", "used"]);
        if bounded.iter().any(|it| !used.contains(it)) {
            let bounded: Vec<_> = bounded.into_iter().collect();
            let why = format!("status unknown for quota: {name}, resources: {}", bounded.join(","));
            return Err(Refusal::Forbidden(why));
        }
        uncovered.retain(|name| !bounded.contains(name));
        concerned.push((at, hard, used));
    }
    let before = request.old.map(|old| self::usage(group, plural, old, names)).unwrap_or_default();
    let mut delta = usage.clone();
    // released amounts are not credited here: the quota controller recounts
    for (name, amount) in before {
        if let Some(left) = delta.get_mut(&name) {
            *left = left.minus(&amount);
        }
    }
    delta.retain(|_, amount| *amount > nothing);
    if delta.is_empty() {
        return Ok(Vec::new());
    }
    if !uncovered.is_empty() {
        let names: Vec<_> = uncovered.into_iter().collect();
        return Err(Refusal::Forbidden(format!("insufficient quota to consume: {}", names.join(","))));
    }
    if is_pod {
        covered(quotas, request.object, limited)?;
    }
    let mut changed = Vec::new();
    for (at, hard, used) in concerned {
        let requested: Vec<_> = delta.iter().filter(|(name, _)| hard.contains(name)).collect();
        if requested.is_empty() {
            continue;
        }
        let mut next = used.clone();
        let mut exceeded = Vec::new();
        for (name, amount) in requested {
            let (used, hard) = (amount_of(used, name), amount_of(hard, name));
            let sum = used.plus(amount);
            if sum > hard {
                exceeded.push((name, amount.to_string(), used.to_string(), hard.to_string()));
            }
            next.insert(name.clone(), sum.to_string());
        }
        if !exceeded.is_empty() {
            let list = |pick: fn(&(&String, String, String, String)) -> (String, String)| {
                let formatted = exceeded.iter().map(pick).map(|(name, amount)| format!("{name}={amount}"));
                formatted.collect::<Vec<_>>().join(",")
            };
            return Err(Refusal::Forbidden(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quotas[at].text(&["metadata", "name"]),
                list(|(name, amount, ..)| ((*name).clone(), amount.clone())),
                list(|(name, _, amount, _)| ((*name).clone(), amount.clone())),
                list(|(name, .., amount)| ((*name).clone(), amount.clone())),
            )));
        }
        changed.push((at, next));
    }
    Ok(changed)
}

fn amount_of(list: &Map, name: &str) -> Quantity {
    resource_list::parse(list.get(name).unwrap_or(&Value::Null))
}

/// Group and plural of the resource whose objects a bound counts, if it counts objects alone.
pub fn counts(name: &str) -> Option<(&str, &str)> {
    if PLAIN.contains(&name) {
        return Some(("", name));
    }
    let counted = name.strip_prefix("count/")?;
    Some(counted.split_once('.').map_or(("", counted), |(plural, group)| (group, plural)))
}

/// The usage of objects of the resources that a quota bounds, without those that such objects never use.
pub fn used<'o>(
    quota: &Value,
    group: &str,
    plural: &str,
    objects: impl IntoIterator<Item = &'o Value>,
    names: &Names,
) -> BTreeMap<String, Quantity> {
    let hard = read::map(quota, &["spec", "hard"]);
    let bounded = hard.keys().filter(|name| concerns(group, plural, name, names));
    let mut used: Amounts = bounded.map(|name| (name.to_owned(), Quantity::new(0))).collect();
    let is_pod = group.is_empty() && plural == "pods";
    for object in objects.into_iter().filter(|it| in_scope(quota, it, is_pod)) {
        for (name, amount) in usage(group, plural, object, names) {
            if let Some(sum) = used.get_mut(&name) {
                *sum = sum.plus(&amount);
            }
        }
    }
    used
}

/// The name under which objects of a resource are counted.
fn counted(group: &str, plural: &str) -> String {
    match group {
        "" => format!("count/{plural}"),
        group => format!("count/{plural}.{group}"),
    }
}

/// Whether a bound concerns objects of this resource.
pub fn concerns(group: &str, plural: &str, name: &str, names: &Names) -> bool {
    if name == counted(group, plural) {
        return true;
    }
    match (group, plural) {
        ("", "pods") => {
            let compute = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
            name == "pods"
                || matches!(compute, "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with(resource_list::HUGE_PAGES)
                || name.strip_prefix("requests.").is_some_and(|it| {
                    it.starts_with(resource_list::HUGE_PAGES) || !resource_list::is_native(it)
                })
        }
        ("", "services") => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        ("", "persistentvolumeclaims") => {
            let class = format!(".storageclass.{}/", names.group("storage"));
            matches!(name, "persistentvolumeclaims" | "requests.storage")
                || name
                    .split_once(&class)
                    .is_some_and(|(_, of)| matches!(of, "persistentvolumeclaims" | "requests.storage"))
        }
        ("", plural) => PLAIN.contains(&plural) && name == plural,
        _ => false,
    }
}

/// The usage of an object.
fn usage(group: &str, plural: &str, object: &Value, names: &Names) -> Amounts {
    let one = Quantity::new(1);
    let mut usage = Amounts::from([(counted(group, plural), one.clone())]);
    match (group, plural) {
        // a terminated pod uses nothing but its place in the count
        ("", "pods") if matches!(object.text(&["status", "phase"]), "Failed" | "Succeeded") => {}
        ("", "pods") => usage.extend(pod_usage(object)),
        ("", "services") => {
            let ports = object.items(&["spec", "ports"]).len() as i64;
            usage.insert("services".to_owned(), one.clone());
            let (nodeports, balancers) = match object.text(&["spec", "type"]) {
                "NodePort" => (ports, 0),
                "LoadBalancer" => {
                    let given = object.items(&["spec", "ports"]).iter();
                    let given = given.filter(|it| read::int(it, &["nodePort"]) != 0).count() as i64;
                    let all = object.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
                    (if all.unwrap_or(true) { ports } else { given }, 1)
                }
                _ => (0, 0),
            };
            usage.insert("services.nodeports".to_owned(), Quantity::new(nodeports));
            usage.insert("services.loadbalancers".to_owned(), Quantity::new(balancers));
        }
        ("", "persistentvolumeclaims") => {
            let size = amount_of(read::map(object, &["spec", "resources", "requests"]), "storage");
            let class = storage_class(object, names);
            let of_class = |what: &str| format!("{class}.storageclass.{}/{what}", names.group("storage"));
            for (what, amount) in [("persistentvolumeclaims", &one), ("requests.storage", &size)] {
                usage.insert(what.to_owned(), amount.clone());
                if !class.is_empty() {
                    usage.insert(of_class(what), amount.clone());
                }
            }
        }
        ("", plural) if PLAIN.contains(&plural) => {
            usage.insert(plural.to_owned(), one);
        }
        _ => {}
    }
    usage
}

fn pod_usage(pod: &Value) -> Amounts {
    let mut totals = [Amounts::new(), Amounts::new()];
    for (total, list) in totals.iter_mut().zip(["requests", "limits"]) {
        for container in pod.items(&["spec", "containers"]) {
            add(total, read::map(container, &["resources", list]));
        }
        for container in pod.items(&["spec", "initContainers"]) {
            for (name, value) in read::map(container, &["resources", list]).iter() {
                let value = resource_list::parse(value);
                let most = total.entry(name.to_owned()).or_insert_with(|| value.clone());
                if value > *most {
                    *most = value;
                }
            }
        }
        let overhead = read::map(pod, &["spec", "overhead"]);
        if list == "requests" || !total.is_empty() {
            add(total, overhead);
        }
    }
    let [requests, limits] = totals;
    compute(&requests, &limits)
}

fn add(total: &mut Amounts, list: &Map) {
    for (name, value) in list.iter() {
        let value = resource_list::parse(value);
        let sum = total.get(name).map_or_else(|| value.clone(), |before| before.plus(&value));
        total.insert(name.to_owned(), sum);
    }
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), Quantity::new(1))]);
    for (name, amount) in requests {
        let plain = matches!(&**name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with(resource_list::HUGE_PAGES);
        if plain {
            usage.insert(name.clone(), amount.clone());
        }
        if plain || !resource_list::is_native(name) {
            usage.insert(format!("requests.{name}"), amount.clone());
        }
    }
    for (name, amount) in limits {
        if matches!(&**name, "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

/// Checks that every container specifies the compute resources that are bounded.
fn explicit(pod: &Value, bounded: &BTreeSet<&str>) -> Result<(), String> {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod.items(&["spec", list]) {
            let amounts = |list: &str| {
                let mut amounts = Amounts::new();
                add(&mut amounts, read::map(container, &["resources", list]));
                amounts
            };
            let specified = compute(&amounts("requests"), &amounts("limits"));
            for name in
                EXPLICIT.iter().filter(|name| bounded.contains(*name) && !specified.contains_key(**name))
            {
                missing.entry(name).or_default().insert(container.text(&["name"]));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let formatted: Vec<_> = missing
        .into_iter()
        .map(|(name, containers)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        })
        .collect();
    Err(format!("must specify {}", formatted.join("; ")))
}

/// The scopes that a quota has.
fn scopes_of(quota: &Value) -> Vec<Scope> {
    let plain = quota.items(&["spec", "scopes"]).iter().map(|scope| Scope {
        name: read::text(scope).to_owned(),
        operator: "Exists".to_owned(),
        values: Vec::new(),
    });
    let selected = quota.items(&["spec", "scopeSelector", "matchExpressions"]).iter().map(|it| Scope {
        name: it.text(&["scopeName"]).to_owned(),
        operator: it.text(&["operator"]).to_owned(),
        values: it.items(&["values"]).iter().map(|value| read::text(value).to_owned()).collect(),
    });
    plain.chain(selected).collect()
}

/// Whether an object is in all scopes of a quota. Scopes select pods only.
fn in_scope(quota: &Value, object: &Value, is_pod: bool) -> bool {
    scopes_of(quota).iter().all(|scope| is_pod && pod_in_scope(object, scope))
}

/// Checks that some quota covers each limited scope that a pod is in.
fn covered(quotas: &[Value], pod: &Value, limited: &[LimitedResource]) -> Result<(), Refusal> {
    let of_pod = |scope: &&Scope| pod_in_scope(pod, scope);
    let needed: Vec<_> = limited.iter().flat_map(|it| &it.scopes).filter(of_pod).collect();
    if needed.is_empty() {
        return Ok(());
    }
    let scopes: Vec<_> = quotas.iter().flat_map(scopes_of).collect();
    let had: BTreeSet<_> = scopes.iter().filter(of_pod).map(|scope| &scope.name).collect();
    let missing = needed.into_iter().filter(|scope| !had.contains(&scope.name)).map(Scope::to_string);
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("insufficient quota to match these scopes: [{}]", missing.join(" "));
    Err(Refusal::Uncovered(why))
}

fn pod_in_scope(pod: &Value, scope: &Scope) -> bool {
    let ends = read::opt_int(pod, &["spec", "activeDeadlineSeconds"]).is_some_and(|it| it >= 0);
    let best_effort = || qos_class(pod) == "BestEffort";
    match &*scope.name {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => {
            let class = pod.text(&["spec", "priorityClassName"]);
            let listed = scope.values.iter().any(|it| it == class);
            match &*scope.operator {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => !class.is_empty() && listed,
                "NotIn" => !listed,
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
        _ => false,
    }
}

/// Whether a pod has affinity terms that select pods of other namespaces.
fn has_cross_namespace_affinity(pod: &Value) -> bool {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let elsewhere =
        |term: &Value| !term.items(&["namespaces"]).is_empty() || read::has(term, &["namespaceSelector"]);
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let Some(affinity) = pod.at(&["spec", "affinity", kind]) else { return false };
        affinity.items(&[REQUIRED]).iter().any(elsewhere)
            || affinity
                .items(&[PREFERRED])
                .iter()
                .any(|it| it.at(&["podAffinityTerm"]).is_some_and(elsewhere))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;

    fn charged(quota: &str, plural: &str, object: &str, old: Option<&str>) -> Result<Vec<Value>, String> {
        let quotas = [json(quota)];
        let (object, old) = (json(object), old.map(json));
        let written = QuotaRequest { group: "", plural, object: &object, old: old.as_ref() };
        let changed = charge(&quotas, &written, &[], &Names::kubernetes());
        let changed = changed.map_err(|why| match why {
            Refusal::Forbidden(why) | Refusal::Uncovered(why) => why,
        })?;
        Ok(changed.into_iter().map(|(_, used)| Value::Map(used)).collect())
    }

    const PODS: &str = r#"{"metadata":{"name":"q"},"status":{"hard":{"pods":"2","requests.cpu":"1"},"used":{"pods":"1","requests.cpu":"500m"}}}"#;

    #[test]
    fn pods_are_counted_and_summed() {
        let pod = |resources: &str| {
            format!(r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#)
        };
        assert_eq!(
            charged(PODS, "pods", &pod(r#"{"requests":{"cpu":"250m"}}"#), None),
            Ok(vec![json(r#"{"pods":"2","requests.cpu":"750m"}"#)])
        );
        assert_eq!(
            charged(PODS, "pods", &pod(r#"{"requests":{"cpu":"1"}}"#), None),
            Err("exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=500m, limited: requests.cpu=1"
                .to_owned())
        );
        assert_eq!(
            charged(PODS, "pods", &pod("{}"), None),
            Err("failed quota: q: must specify requests.cpu for: c".to_owned())
        );
        assert_eq!(charged(PODS, "configmaps", "{}", None), Ok(vec![]));
    }

    #[test]
    fn growing_claims_cost_the_difference() {
        const QUOTA: &str = r#"{"metadata":{"name":"q"},"status":{"hard":{"requests.storage":"3Gi"},"used":{"requests.storage":"1Gi"}}}"#;
        let claim =
            |size: &str| format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#);
        let grown = charged(QUOTA, "persistentvolumeclaims", &claim("2Gi"), Some(&claim("1Gi")));
        assert_eq!(grown, Ok(vec![json(r#"{"requests.storage":"2Gi"}"#)]));
        assert!(charged(QUOTA, "persistentvolumeclaims", &claim("4Gi"), Some(&claim("1Gi"))).is_err());
        assert_eq!(charged(QUOTA, "persistentvolumeclaims", &claim("1Gi"), Some(&claim("2Gi"))), Ok(vec![]));
    }

    #[test]
    fn limited_usage_needs_a_quota() {
        let scope = |values: &[&str]| Scope {
            name: "PriorityClass".to_owned(),
            operator: "In".to_owned(),
            values: values.iter().map(|it| (*it).to_owned()).collect(),
        };
        let (plural, contains) = ("pods".to_owned(), vec!["cpu".to_owned()]);
        let limited = [LimitedResource {
            plural,
            contains,
            scopes: vec![scope(&["high", "higher"])],
            ..LimitedResource::default()
        }];
        let check = |quotas: &[Value], pod: &str| {
            let pod = json(pod);
            let written = QuotaRequest { group: "", plural: "pods", object: &pod, old: None };
            charge(quotas, &written, &limited, &Names::kubernetes()).map(|it| it.len())
        };
        let asks = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#;
        let high = r#"{"spec":{"priorityClassName":"high","containers":[{"name":"c"}]}}"#;
        let quota = |hard: &str, more: &str| {
            json(&format!(
                r#"{{"spec":{{{more}}},"status":{{"hard":{{{hard}:"9"}},"used":{{{hard}:"0"}}}}}}"#
            ))
        };
        let why = "insufficient quota to consume: cpu,requests.cpu".to_owned();
        assert_eq!(check(&[], asks), Err(Refusal::Forbidden(why)));
        let cpu = [quota(r#""cpu""#, ""), quota(r#""requests.cpu""#, "")];
        assert_eq!(check(&cpu, asks), Ok(2));
        let why = "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]".to_owned();
        assert_eq!(check(&[], high), Err(Refusal::Uncovered(why)));
        let scoped = quota(r#""pods""#, r#""scopes":["PriorityClass"]"#);
        assert_eq!(check(&[scoped], high), Ok(1));
    }

    #[test]
    fn scopes_select_the_counted_objects() {
        let quota = |scope: &str| {
            format!(
                r#"{{"metadata":{{"name":"q"}},"spec":{{"scopes":[{scope:?}]}},"status":{{"hard":{{"pods":"1"}},"used":{{"pods":"0"}}}}}}"#
            )
        };
        let pod = r#"{"spec":{"activeDeadlineSeconds":5,"containers":[{"name":"c"}]}}"#;
        for (scope, counts) in [
            ("Terminating", 1),
            ("NotTerminating", 0),
            ("BestEffort", 1),
            ("NotBestEffort", 0),
            ("PriorityClass", 0),
            ("CrossNamespacePodAffinity", 0),
        ] {
            assert_eq!(charged(&quota(scope), "pods", pod, None).map(|it| it.len()), Ok(counts), "{scope}");
        }
    }

    #[test]
    fn usage_is_summed_up() {
        let quota = json(
            r#"{"spec":{"hard":{"pods":"9","requests.cpu":"9","count/pods":"9","secrets":"9"},
                "scopes":["NotBestEffort"]}}"#,
        );
        let pod = |more: &str| {
            json(&format!(
                r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"300m"}}}}}}]}}{more}}}"#
            ))
        };
        let ended = pod(r#","status":{"phase":"Failed"}"#);
        let best = json(r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        let used = used(&quota, "", "pods", &[pod(""), pod(""), ended, best], &Names::kubernetes());
        let formatted: Vec<_> = used.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(formatted, ["count/pods=3", "pods=2", "requests.cpu=600m"]);
    }

    #[test]
    fn plain_counts_name_their_resource() {
        for (name, expected) in [
            ("secrets", Some(("", "secrets"))),
            ("count/deployments.apps", Some(("apps", "deployments"))),
            ("count/widgets.a.example", Some(("a.example", "widgets"))),
            ("count/pods", Some(("", "pods"))),
            ("pods", None),
            ("requests.cpu", None),
        ] {
            assert_eq!(counts(name), expected, "{name}");
        }
    }

    #[test]
    fn a_quota_without_sums_refuses() {
        let quota = r#"{"metadata":{"name":"q"},"status":{"hard":{"secrets":"1","count/secrets":"1"}}}"#;
        let expected = "status unknown for quota: q, resources: count/secrets,secrets";
        assert_eq!(charged(quota, "secrets", "{}", None), Err(expected.to_owned()));
    }
}
