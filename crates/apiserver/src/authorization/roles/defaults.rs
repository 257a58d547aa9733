//! The bootstrap roles and bindings, parsed from `policy.txt`.
//!
//! The head of `policy.txt` describes its syntax. A test parses the whole file, because a server omits lines
//! that it cannot parse.

use super::read;
use names::Names;
use rest::Api;
use schema::{Map, Value};

const POLICY: &str = include_str!("policy.txt");
const GROUP: &str = "rbac.authorization";

/// A bootstrap object.
#[derive(Debug, Clone)]
pub(super) struct BootstrapObject {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
    pub object: Value,
}

/// The role of all authenticated users.
pub(super) const BASIC_USER: &str = "system:basic-user";

impl BootstrapObject {
    /// Permits SelfSubjectReviews, where they are served.
    pub fn permit_self_review(&mut self, api: &Api) {
        let (group, plural) = (api.names.group("authentication"), "selfsubjectreviews");
        if api.resources().get(&format!("{group}/v1alpha1"), plural).is_none() {
            return;
        }
        let mut rule = Value::map();
        for (field, one) in [("verbs", "create"), ("apiGroups", &*group), ("resources", plural)] {
            rule.set(&[field], vec![Value::from(one)]);
        }
        self.add(rule);
    }

    fn add(&mut self, rule: Value) {
        if let Some(Value::List(rules)) = self.object.at_mut(&["rules"]) {
            rules.push(rule);
        }
    }
}

/// The annotation by which an operator opts out of reconciliation.
pub(super) fn autoupdate_annotation(names: &Names) -> String {
    names.well_known_under(GROUP, "autoupdate")
}

/// All objects for the enabled feature gates, in the order of the file.
pub(super) fn all(names: &Names, enabled_gates: &[String]) -> Vec<BootstrapObject> {
    let mut out: Vec<BootstrapObject> = Vec::new();
    let mut is_enabled = true;
    for line in lines(names) {
        let (line, gate) = line.split_once(" if ").unwrap_or((&line, ""));
        let open = gate.is_empty() || enabled_gates.iter().any(|it| it == gate);
        match line.strip_prefix("  ") {
            None => {
                is_enabled = open;
                out.extend(head(line, names).filter(|_| open));
            }
            Some(line) => {
                if let Some(last) = out.last_mut().filter(|_| is_enabled && open) {
                    extend(last, line, names);
                }
            }
        }
    }
    out
}

fn lines(names: &Names) -> impl Iterator<Item = String> {
    let fields = [
        ("{api}", &names.api_domain),
        ("{well-known}", &names.well_known_domain),
        ("{prefix}", &names.prefix),
        ("{agent}", &names.agent),
    ];
    let spelled = move |line: &str| {
        fields.iter().fold(line.to_owned(), |line, (field, with)| line.replace(field, with))
    };
    POLICY.lines().filter(|line| !line.starts_with('#')).map(spelled).collect::<Vec<_>>().into_iter()
}

fn head(line: &str, names: &Names) -> Option<BootstrapObject> {
    let mut fields = line.split(' ');
    let plural = match fields.next()? {
        "clusterrole" => "clusterroles",
        "role" => "roles",
        "clusterrolebinding" => "clusterrolebindings",
        "rolebinding" => "rolebindings",
        _ => return None,
    };
    let path = fields.next()?;
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    let mut object = Value::map();
    object.set(&["metadata", "name"], name);
    if !namespace.is_empty() {
        object.set(&["metadata", "namespace"], namespace);
    }
    let mut labels = Map::new();
    labels.insert(names.well_known("bootstrapping"), "rbac-defaults");
    let mut role = name;
    let set_label = |set: &str| format!("{}/aggregate-to-{set}", names.group(GROUP));
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        match field {
            "into" => {
                labels.insert(set_label(value), "true");
            }
            "from" => {
                let mut chosen = Map::new();
                chosen.insert(set_label(value), "true");
                let mut selector = Value::map();
                selector.set(&["matchLabels"], chosen);
                object.set(&["aggregationRule", "clusterRoleSelectors"], vec![selector]);
            }
            "to" => role = value,
            _ => return None,
        }
    }
    object.set(&["metadata", "labels"], labels);
    let mut annotations = Map::new();
    annotations.insert(autoupdate_annotation(names), "true");
    object.set(&["metadata", "annotations"], annotations);
    if plural.ends_with("bindings") {
        object.set(&["roleRef", "apiGroup"], names.group(GROUP));
        object.set(&["roleRef", "kind"], if namespace.is_empty() { "ClusterRole" } else { "Role" });
        object.set(&["roleRef", "name"], role);
    }
    Some(BootstrapObject { plural, namespace: namespace.to_owned(), name: name.to_owned(), object })
}

fn extend(object: &mut BootstrapObject, line: &str, names: &Names) {
    let (list, item) = if object.plural.ends_with("bindings") {
        ("subjects", subject(line, names))
    } else {
        ("rules", rule(line))
    };
    let Some(item) = item else { return };
    let mut items = object.object.items(&[list]).to_vec();
    items.push(item);
    object.object.set(&[list], items);
}

fn subject(line: &str, names: &Names) -> Option<Value> {
    let (kind, name) = line.split_once(' ')?;
    let mut out = Value::map();
    out.set(&["kind"], kind);
    match (kind, name.split_once('/')) {
        ("ServiceAccount", Some((namespace, name))) => {
            out.set(&["namespace"], namespace);
            out.set(&["name"], name);
        }
        ("User" | "Group", _) => {
            out.set(&["apiGroup"], names.group(GROUP));
            out.set(&["name"], name);
        }
        _ => return None,
    }
    Some(out)
}

fn rule(line: &str) -> Option<Value> {
    let fields = |text: &str| {
        let field = |one| Value::from(if one == "-" { "" } else { one });
        Value::List(text.split(',').map(field).collect())
    };
    let mut out = Value::map();
    let (verbs, rest) = line.split_once(' ')?;
    out.set(&["verbs"], fields(verbs));
    if let Some(paths) = rest.strip_prefix("at ") {
        out.set(&["nonResourceURLs"], fields(paths));
        return Some(out);
    }
    let (groups, rest) = rest.strip_prefix("of ")?.split_once(": ")?;
    let (resources, named) = rest.split_once(" named ").map_or((rest, None), |(a, b)| (a, Some(b)));
    out.set(&["apiGroups"], fields(groups));
    out.set(&["resources"], fields(resources));
    if let Some(named) = named {
        out.set(&["resourceNames"], fields(named));
    }
    Some(out)
}

/// The rules of a bootstrap role.
pub(crate) fn bootstrap_rules(names: &names::Names, role: &str) -> Vec<auth::rbac::Rule> {
    let all = all(names, &[]).into_iter();
    let mut named = all.filter(|one| one.plural == "clusterroles" && one.name == role);
    named.next().map(|one| read::rules(&one.object)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All gates in the file.
    fn gates(names: &Names) -> Vec<String> {
        lines(names).filter_map(|line| line.split_once(" if ").map(|(_, gate)| gate.to_owned())).collect()
    }

    #[test]
    fn every_line_is_understood_in_every_dialect() {
        for names in [Names::kubernetes(), Names::neutral("acme.example", "acme")] {
            let lines: Vec<_> = lines(&names).collect();
            let all = all(&names, &gates(&names));
            let heads = lines.iter().filter(|line| !line.starts_with(' ')).count();
            let items = |one: &BootstrapObject| {
                one.object.items(&["rules"]).len() + one.object.items(&["subjects"]).len()
            };
            assert_eq!((all.len(), all.iter().map(items).sum::<usize>()), (heads, lines.len() - heads));
            assert!(lines.iter().all(|line| !line.contains('{')), "an unknown placeholder");
        }
        let names = Names::kubernetes();
        let counts = |enabled_gates: &[String]| {
            let all = all(&names, enabled_gates);
            let count = |plural: &str| all.iter().filter(|one| one.plural == plural).count();
            ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count)
        };
        assert_eq!(counts(&[]), [63, 44, 7, 7]);
        assert_eq!(counts(&gates(&names)), [66, 46, 7, 7]);
    }

    #[test]
    fn rules_behind_gates_depend_on_their_gate() {
        let rules = |gate: &str, role: &str| {
            let all = all(&Names::kubernetes(), &[gate.to_owned()]);
            let role = all.iter().find(|one| one.plural == "clusterroles" && one.name == role);
            role.map(|one| one.object.items(&["rules"]).len())
        };
        let set = "system:controller:statefulset-controller";
        assert_eq!((rules("Another", set), rules("StatefulSetAutoDeletePVC", set)), (Some(8), Some(9)));
        let versions = "system:controller:storage-version-garbage-collector";
        assert_eq!((rules("Another", versions), rules("StorageVersionAPI", versions)), (None, Some(3)));
    }
}
