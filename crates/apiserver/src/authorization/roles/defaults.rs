//! The roles and bindings that every cluster has, as objects.
//!
//! They are told in `policy.txt`, which says at its head how it is written. A test reads all of it, so that a
//! line that is not understood never gets as far as a server, where it would be left out.

use super::read;
use names::Names;
use rest::Api;
use schema::{Map, Value};

const POLICY: &str = include_str!("policy.txt");
const GROUP: &str = "rbac.authorization";

/// An object that every cluster has.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
    pub object: Value,
}

/// The role of everybody who is identified.
pub(super) const BASIC_USER: &str = "system:basic-user";

impl Wanted {
    /// Who may ask what they may do may also ask who they are, where that is served.
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

/// The annotation by which an operator keeps such an object as it is.
pub(super) fn kept_up_annotation(names: &Names) -> String {
    names.well_known_under(GROUP, "autoupdate")
}

/// All of them where these feature gates are open, in the order of the file.
pub(super) fn all(names: &Names, opened: &[String]) -> Vec<Wanted> {
    let mut out: Vec<Wanted> = Vec::new();
    let mut there = true;
    for line in lines(names) {
        let (line, gate) = line.split_once(" if ").unwrap_or((&line, ""));
        let open = gate.is_empty() || opened.iter().any(|it| it == gate);
        match line.strip_prefix("  ") {
            None => {
                there = open;
                out.extend(head(line, names).filter(|_| open));
            }
            Some(line) => {
                if let Some(last) = out.last_mut().filter(|_| there && open) {
                    extend(last, line, names);
                }
            }
        }
    }
    out
}

fn lines(names: &Names) -> impl Iterator<Item = String> {
    let words = [
        ("{api}", &names.api_domain),
        ("{well-known}", &names.well_known_domain),
        ("{prefix}", &names.prefix),
        ("{agent}", &names.agent),
    ];
    let spelled =
        move |line: &str| words.iter().fold(line.to_owned(), |line, (word, with)| line.replace(word, with));
    POLICY.lines().filter(|line| !line.starts_with('#')).map(spelled).collect::<Vec<_>>().into_iter()
}

fn head(line: &str, names: &Names) -> Option<Wanted> {
    let mut words = line.split(' ');
    let plural = match words.next()? {
        "clusterrole" => "clusterroles",
        "role" => "roles",
        "clusterrolebinding" => "clusterrolebindings",
        "rolebinding" => "rolebindings",
        _ => return None,
    };
    let path = words.next()?;
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
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        match word {
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
    annotations.insert(kept_up_annotation(names), "true");
    object.set(&["metadata", "annotations"], annotations);
    if plural.ends_with("bindings") {
        object.set(&["roleRef", "apiGroup"], names.group(GROUP));
        object.set(&["roleRef", "kind"], if namespace.is_empty() { "ClusterRole" } else { "Role" });
        object.set(&["roleRef", "name"], role);
    }
    Some(Wanted { plural, namespace: namespace.to_owned(), name: name.to_owned(), object })
}

fn extend(wanted: &mut Wanted, line: &str, names: &Names) {
    let (list, item) = if wanted.plural.ends_with("bindings") {
        ("subjects", subject(line, names))
    } else {
        ("rules", rule(line))
    };
    let Some(item) = item else { return };
    let mut items = wanted.object.items(&[list]).to_vec();
    items.push(item);
    wanted.object.set(&[list], items);
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
    let words = |text: &str| {
        let word = |one| Value::from(if one == "-" { "" } else { one });
        Value::List(text.split(',').map(word).collect())
    };
    let mut out = Value::map();
    let (verbs, rest) = line.split_once(' ')?;
    out.set(&["verbs"], words(verbs));
    if let Some(paths) = rest.strip_prefix("at ") {
        out.set(&["nonResourceURLs"], words(paths));
        return Some(out);
    }
    let (groups, rest) = rest.strip_prefix("of ")?.split_once(": ")?;
    let (resources, named) = rest.split_once(" named ").map_or((rest, None), |(a, b)| (a, Some(b)));
    out.set(&["apiGroups"], words(groups));
    out.set(&["resources"], words(resources));
    if let Some(named) = named {
        out.set(&["resourceNames"], words(named));
    }
    Some(out)
}

/// The rules of a role that every cluster has, as it is made.
pub(crate) fn rules_of_every_cluster(names: &names::Names, role: &str) -> Vec<auth::rbac::Rule> {
    let all = all(names, &[]).into_iter();
    let mut named = all.filter(|one| one.plural == "clusterroles" && one.name == role);
    named.next().map(|one| read::rules(&one.object)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every gate that the file names.
    fn gates(names: &Names) -> Vec<String> {
        lines(names).filter_map(|line| line.split_once(" if ").map(|(_, gate)| gate.to_owned())).collect()
    }

    #[test]
    fn every_line_is_understood_in_every_dialect() {
        for names in [Names::kubernetes(), Names::neutral("acme.example", "acme")] {
            let lines: Vec<_> = lines(&names).collect();
            let all = all(&names, &gates(&names));
            let heads = lines.iter().filter(|line| !line.starts_with(' ')).count();
            let items =
                |one: &Wanted| one.object.items(&["rules"]).len() + one.object.items(&["subjects"]).len();
            assert_eq!((all.len(), all.iter().map(items).sum::<usize>()), (heads, lines.len() - heads));
            assert!(lines.iter().all(|line| !line.contains('{')), "a name of the dialect is not known");
        }
        let names = Names::kubernetes();
        let counts = |opened: &[String]| {
            let all = all(&names, opened);
            let count = |plural: &str| all.iter().filter(|one| one.plural == plural).count();
            ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count)
        };
        assert_eq!(counts(&[]), [62, 43, 7, 7]);
        assert_eq!(counts(&gates(&names)), [64, 45, 7, 7]);
    }

    #[test]
    fn rules_behind_gates_are_there_where_these_are_open() {
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
