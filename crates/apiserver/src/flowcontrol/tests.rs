use super::plan::{CATCH_ALL, Plan};
use super::*;
use auth::User;
use flowcontrol::Shape;
use names::Names;
use schema::Value;

/// The mandatory and suggested objects.
fn default_objects(names: &Names) -> (Vec<Value>, Vec<Value>) {
    let (levels, schemas): (Vec<_>, Vec<_>) =
        objects::bootstrap_objects(names).into_iter().partition(|it| it.plural == objects::LEVELS);
    let objects = |all: Vec<objects::BootstrapObject>| {
        all.iter().filter_map(|it| objects::reconciled(None, it, "k")).collect()
    };
    (objects(schemas), objects(levels))
}

fn counters() -> Arc<Counters> {
    Counters::new(&Registry::default())
}

/// The plan of a new cluster.
fn plan() -> Plan {
    let names = Names::kubernetes();
    let (schemas, levels) = default_objects(&names);
    let world: World = env::Simulated::new(0, 1);
    Plan::read(&schemas, &levels, 600, (&Plan::default(), &counters()), &world)
}

fn classify(plan: &Plan, user: &str, groups: &[&str], text: &str) -> (String, String) {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = User { groups, ..User::named(user) }.authenticated();
    let fields: Vec<&str> = text.split(' ').collect();
    let blank = Attributes {
        user: &user,
        verb: fields[0],
        api_group: "",
        version: "v1",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: "",
        resource_request: false,
    };
    let attributes = match fields[1..] {
        [path] => Attributes { path, ..blank },
        [group, resource, namespace] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let api_group = group.trim_matches('-');
            let namespace = namespace.trim_matches('-');
            Attributes { api_group, resource, subresource, namespace, resource_request: true, ..blank }
        }
        _ => panic!("{text}"),
    };
    let classification = plan.classify(&attributes).unwrap();
    (classification.schema.name.clone(), classification.level.name.clone())
}

#[test]
fn requests_are_classified_as_upstream_does() {
    let plan = plan();
    let node = &["system:nodes"][..];
    let account = &["system:serviceaccounts"][..];
    for (user, groups, text, schema, level) in [
        ("root", &["system:masters"][..], "delete - pods x", "exempt", "exempt"),
        ("bob", &[], "get /healthz", "probes", "exempt"),
        ("bob", &[], "get /healthz/etcd", "global-default", "global-default"),
        ("bob", &[], "get - pods x", "global-default", "global-default"),
        ("system:node:a", node, "update - nodes/status -", "system-node-high", "node-high"),
        (
            "system:node:a",
            node,
            "update coordination.k8s.io leases kube-node-lease",
            "system-node-high",
            "node-high",
        ),
        ("system:node:a", node, "get - secrets x", "system-nodes", "system"),
        (
            "system:kube-scheduler",
            &[],
            "update coordination.k8s.io leases kube-system",
            "system-leader-election",
            "leader-election",
        ),
        ("system:kube-scheduler", &[], "list - pods -", "kube-scheduler", "workload-high"),
        (
            "system:serviceaccount:kube-system:endpoint-controller",
            account,
            "update - endpoints x",
            "endpoint-controller",
            "workload-high",
        ),
        (
            "system:serviceaccount:kube-system:x",
            account,
            "get - configmaps x",
            "workload-leader-election",
            "leader-election",
        ),
        (
            "system:serviceaccount:kube-system:x",
            account,
            "list - pods -",
            "kube-system-service-accounts",
            "workload-high",
        ),
        ("system:serviceaccount:ns:x", account, "list - pods -", "service-accounts", "workload-low"),
    ] {
        assert_eq!(
            classify(&plan, user, groups, text),
            (schema.to_owned(), level.to_owned()),
            "{user} {text}"
        );
    }
}

#[test]
fn seats_are_shared_out_and_levels_outlive_changes() {
    let first = plan();
    let level = |plan: &Plan, name: &str| plan.levels.iter().find(|it| it.name == name).unwrap().clone();
    assert_eq!(level(&first, "workload-low").bounds.nominal, 245);
    assert_eq!(level(&first, CATCH_ALL).level.shape(), Shape::Refuse);
    let (schemas, mut levels) = default_objects(&Names::kubernetes());
    let at = levels.iter().position(|it| it.text(&["metadata", "name"]) == "system").unwrap();
    levels[at].set(&["spec", "limited", "nominalConcurrencyShares"], 60);
    let world: World = env::Simulated::new(0, 1);
    let second = Plan::read(&schemas, &levels, 600, (&first, &counters()), &world);
    let (before, after) = (level(&first, "system"), level(&second, "system"));
    assert!(Arc::ptr_eq(&before.level, &after.level));
    assert!(after.level.limit() > before.bounds.nominal);
    // a level with another queue configuration is a new one
    levels[at].set(&["spec", "limited", "limitResponse", "queuing", "queues"], 7);
    let third = Plan::read(&schemas, &levels, 600, (&second, &counters()), &world);
    assert!(!Arc::ptr_eq(&level(&third, "system").level, &after.level));
    second.lend(600);
    assert!(second.levels.iter().all(|level| level.is_exempt() || level.level.limit() >= 1));
}

#[test]
fn pages_show_levels_queues_and_requests() {
    let plan = plan();
    let system = plan.levels.iter().find(|it| it.name == "leader-election").unwrap();
    let held: Vec<_> = (0..system.bounds.nominal)
        .map(|_| system.level.ask(1, flowcontrol::Width::default(), Vec::new))
        .collect();
    let about =
        || ["schema", "bob", "bob", "get", "/p", "ns", "n", "v1", "pods", ""].map(str::to_owned).to_vec();
    let waiting = system.level.ask(1, flowcontrol::Width::default(), about);
    let page = |name: &str| debug_pages::page(name, true, &plan).unwrap();
    let levels = page("dump_priority_levels");
    assert!(
        levels.lines().any(|line| line.starts_with("leader-election,") && line.ends_with("25")),
        "{levels}"
    );
    assert!(levels.contains("exempt,") && levels.contains("<none>"), "{levels}");
    assert_eq!(page("dump_queues").lines().filter(|line| line.starts_with("leader-election,")).count(), 16);
    let requests = page("dump_requests");
    assert!(requests.lines().any(|line| line.contains("bob") && line.contains("pods")), "{requests}");
    assert!(debug_pages::page("other", false, &plan).is_none());
    drop((held, waiting));
}

#[test]
fn a_schema_without_level_is_dangling() {
    let mut schema = Value::map();
    let condition = objects::dangling(&schema, "gone", false, 0).unwrap();
    assert_eq!((condition.text(&["status"]), condition.text(&["reason"])), ("True", "NotFound"));
    schema.set(&["status", "conditions"], Value::List(vec![condition]));
    assert_eq!(objects::dangling(&schema, "gone", false, 9), None);
    let mut changed = schema.clone();
    let conditions = changed.at_mut(&["status", "conditions"]).and_then(Value::as_list_mut).unwrap();
    conditions[0].set(&["reason"], "Other");
    let condition = objects::dangling(&changed, "gone", false, 9).unwrap();
    assert_eq!(
        (condition.text(&["reason"]), condition.text(&["lastTransitionTime"])),
        ("NotFound", "1970-01-01T00:00:00Z")
    );
    let condition = objects::dangling(&schema, "gone", true, 9).unwrap();
    assert_eq!(condition.text(&["lastTransitionTime"]), "1970-01-01T00:00:09Z");
}
