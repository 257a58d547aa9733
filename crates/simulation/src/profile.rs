//! The profile of a simulation: its nodes, and how pods behave on them.
//!
//! ```yaml
//! apiVersion: simulation.pintle.io/v1alpha1
//! kind: SimulationProfile
//! nodes:
//! - count: 3
//!   name: small                # small-0, small-1, small-2
//!   capacity: {cpu: 4, memory: 16Gi, pods: 110, ephemeral-storage: 100Gi}
//!   labels: {disk: ssd}
//!   zones: [a, b]              # in turn
//!   taints: [{key: dedicated, value: tests, effect: NoSchedule}]
//!   annotations: {owner: me}
//!   set: {silent-after: 1m, silent-for: 2m}
//! pods:
//! - labels: {app: flaky}       # also: namespace, ownerKind, container
//!   set: {run-for: 10s, exit-code: 1}
//! ```

use crate::behaviour::{ContainerBehaviour, Rule, setting};
use crate::node_settings::NodeSettings;
use crate::stages::Stage;
use crate::stages::runner::parse_yaml;
use api::Quantity;
use api::core::v1::Taint;
use names::simulation::{API_VERSION, KWOK_API_VERSION, KWOK_STAGE, PREFIX, PROFILE};
use schema::Value;
use schema::yaml::{self, Limits};
use std::collections::BTreeMap;

/// The most nodes of a simulation: each has a range of 256 addresses in half of 10.0.0.0/8.
pub const MAX_NODES: u32 = 32_768;
const DEFAULT_NAME: &str = "node";

/// Nodes that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeShape {
    pub count: u32,
    /// Begins the names of the nodes; a dash and a number follow.
    pub name: String,
    pub capacity: BTreeMap<String, Quantity>,
    pub labels: BTreeMap<String, String>,
    /// Zones that the nodes get in turn.
    pub zones: Vec<String>,
    pub taints: Vec<Taint>,
    pub annotations: BTreeMap<String, String>,
    /// Values by the name of the setting.
    pub set: BTreeMap<String, String>,
}

impl Default for NodeShape {
    fn default() -> Self {
        let amounts = [("cpu", "8"), ("memory", "32Gi"), ("ephemeral-storage", "200Gi"), ("pods", "110")];
        let amounts =
            amounts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.parse().ok()?)));
        NodeShape {
            count: 1,
            name: DEFAULT_NAME.to_owned(),
            capacity: amounts.collect(),
            labels: BTreeMap::new(),
            zones: Vec::new(),
            taints: Vec::new(),
            annotations: BTreeMap::new(),
            set: BTreeMap::new(),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    pub nodes: Vec<NodeShape>,
    pub rules: Vec<Rule>,
    /// Stages of kwok, from documents of their own.
    pub stages: Vec<Stage>,
}

impl Profile {
    /// A number of nodes of the default shape.
    pub fn of_nodes(count: u32) -> Self {
        Profile { nodes: vec![NodeShape { count, ..NodeShape::default() }], ..Profile::default() }
    }

    /// Reads the documents of a file: at most one profile, and stages of kwok. The errors are all that is wrong with them.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<String>> {
        let text = std::str::from_utf8(text).map_err(|why| vec![why.to_string()])?;
        let (mut profile, mut stages, mut errors) = (None, Vec::new(), Vec::new());
        for document in documents(text) {
            let parsed = match yaml::parse(document.as_bytes(), Limits::default()) {
                Ok(parsed) => parsed,
                Err(why) => {
                    errors.push(why.cause().to_owned());
                    continue;
                }
            };
            errors.extend(parsed.repeated.iter().cloned());
            let root = &parsed.value;
            match (root.text(&["apiVersion"]), root.text(&["kind"])) {
                (API_VERSION, PROFILE) if profile.is_some() => {
                    errors.push(format!("the file has more than one {PROFILE}"));
                }
                (API_VERSION, PROFILE) => profile = Some(Self::read(root, &mut errors)),
                (KWOK_API_VERSION, KWOK_STAGE) => match parse_yaml(document.as_bytes()) {
                    Ok(document) => match Stage::read(&document) {
                        Ok(stage) => stages.push(stage),
                        Err(mistakes) => errors.extend(mistakes),
                    },
                    Err(why) => errors.push(why),
                },
                _ => errors.push(format!(
                    "apiVersion and kind must be {API_VERSION} and {PROFILE}, or {KWOK_API_VERSION} and {KWOK_STAGE}"
                )),
            }
        }
        let profile = Profile { stages, ..profile.unwrap_or_default() };
        if errors.is_empty() { Ok(profile) } else { Err(errors) }
    }

    fn read(root: &Value, errors: &mut Vec<String>) -> Self {
        let mut reader = Reader::default();
        let mut profile = Profile::default();
        for (name, value) in reader.fields("", root) {
            match name {
                "apiVersion" | "kind" => {}
                "nodes" => profile.nodes = reader.list("nodes", value, Reader::shape),
                "pods" => profile.rules = reader.list("pods", value, Reader::rule),
                _ => reader.unknown(name),
            }
        }
        reader.check_names(&profile.nodes);
        errors.append(&mut reader.errors);
        profile
    }
}

/// The documents of a file: lines of three dashes are between them.
fn documents(text: &str) -> impl Iterator<Item = String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match (line.trim_end(), documents.last_mut()) {
            ("---", _) => documents.push(String::new()),
            (_, Some(document)) => {
                document.push_str(line);
                document.push('\n');
            }
            (_, None) => {}
        }
    }
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    documents.into_iter().filter(move |it| !it.lines().all(is_empty))
}

#[derive(Default)]
struct Reader {
    errors: Vec<String>,
}

impl Reader {
    fn unknown(&mut self, path: &str) {
        self.errors.push(format!("{path}: unknown field"));
    }

    fn wrong(&mut self, path: &str, expected: &str) {
        self.errors.push(format!("{path}: must be {expected}"));
    }

    fn fields<'v>(&mut self, path: &str, value: &'v Value) -> Vec<(&'v str, &'v Value)> {
        match value.as_map() {
            Some(map) => map.iter().filter(|(_, value)| !value.is_null()).collect(),
            None => {
                self.wrong(if path.is_empty() { "the profile" } else { path }, "an object");
                Vec::new()
            }
        }
    }

    fn list<T>(&mut self, path: &str, value: &Value, read: fn(&mut Self, &str, &Value) -> T) -> Vec<T> {
        match value.as_list() {
            Some(items) => {
                let items = items.iter().enumerate();
                items.map(|(at, item)| read(self, &format!("{path}[{at}]"), item)).collect()
            }
            None => {
                self.wrong(path, "a list");
                Vec::new()
            }
        }
    }

    /// A text; numbers and truths are taken as they are written.
    fn text(&mut self, path: &str, value: &Value) -> String {
        match (value.as_str(), value.as_int(), value.as_bool()) {
            (Some(text), ..) => text.to_owned(),
            (_, Some(number), _) => number.to_string(),
            (.., Some(truth)) => truth.to_string(),
            _ => {
                self.wrong(path, "a text");
                String::new()
            }
        }
    }

    fn texts(&mut self, path: &str, value: &Value) -> BTreeMap<String, String> {
        let fields = self.fields(path, value).into_iter();
        fields.map(|(key, value)| (key.to_owned(), self.text(&format!("{path}.{key}"), value))).collect()
    }

    fn shape(&mut self, path: &str, value: &Value) -> NodeShape {
        let mut shape = NodeShape::default();
        for (name, value) in self.fields(path, value) {
            let at = format!("{path}.{name}");
            match name {
                "count" => match value.as_int().and_then(|it| u32::try_from(it).ok()) {
                    Some(count) => shape.count = count,
                    None => self.wrong(&at, "a number from 0 on"),
                },
                "name" => shape.name = self.text(&at, value),
                "capacity" => {
                    for (resource, text) in self.texts(&at, value) {
                        match text.parse() {
                            Ok(amount) => _ = shape.capacity.insert(resource, amount),
                            Err(_) => self.wrong(&format!("{at}.{resource}"), "a quantity"),
                        }
                    }
                }
                "labels" => shape.labels = self.texts(&at, value),
                "zones" => shape.zones = self.list(&at, value, Self::text),
                "taints" => shape.taints = self.list(&at, value, Self::taint),
                "annotations" => shape.annotations = self.texts(&at, value),
                "set" => shape.set = self.node_settings(&at, value),
                _ => self.unknown(&at),
            }
        }
        shape
    }

    fn taint(&mut self, path: &str, value: &Value) -> Taint {
        let mut taint = Taint::default();
        for (name, text) in self.texts(path, value) {
            match &*name {
                "key" => taint.key = text,
                "value" => taint.value = text,
                "effect" => taint.effect = text,
                _ => self.unknown(&format!("{path}.{name}")),
            }
        }
        taint
    }

    fn rule(&mut self, path: &str, value: &Value) -> Rule {
        let mut rule = Rule::default();
        for (name, value) in self.fields(path, value) {
            let at = format!("{path}.{name}");
            match name {
                "namespace" => rule.namespace = self.text(&at, value),
                "labels" => rule.labels = self.texts(&at, value),
                "ownerKind" => rule.owner_kind = self.text(&at, value),
                "container" => rule.container = self.text(&at, value),
                "set" => rule.set = self.settings(&at, value),
                _ => self.unknown(&at),
            }
        }
        rule
    }

    fn settings(&mut self, path: &str, value: &Value) -> BTreeMap<String, String> {
        let settings = self.texts(path, value);
        for (name, text) in &settings {
            match setting(name) {
                None => self.unknown(&format!("{path}.{name}")),
                Some(apply) => {
                    if let Err(why) = apply(&mut ContainerBehaviour::default(), text) {
                        self.errors.push(format!("{path}.{name}: {text:?}: {why}"));
                    }
                }
            }
        }
        settings
    }

    fn node_settings(&mut self, path: &str, value: &Value) -> BTreeMap<String, String> {
        let settings = self.texts(path, value);
        let annotations = settings.iter().map(|(name, text)| (format!("{PREFIX}{name}"), text.clone()));
        let (_, errors) = NodeSettings::read(&annotations.collect());
        self.errors.extend(errors.into_iter().map(|why| format!("{path}: {why}")));
        settings
    }

    /// Names of shapes are different, and there are not too many nodes.
    fn check_names(&mut self, shapes: &[NodeShape]) {
        for (at, shape) in shapes.iter().enumerate() {
            if shapes[..at].iter().any(|it| it.name == shape.name) {
                self.errors.push(format!("nodes[{at}].name: {:?} is the name of another shape", shape.name));
            }
        }
        if shapes.iter().fold(0_u32, |sum, it| sum.saturating_add(it.count)) > MAX_NODES {
            self.errors.push(format!("nodes: more than {MAX_NODES} nodes"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: simulation.pintle.io/v1alpha1\nkind: SimulationProfile\n";

    #[test]
    fn a_profile_has_shapes_and_rules() {
        let text = format!(
            "{HEAD}nodes:\n- count: 3\n  name: small\n  capacity: {{cpu: 4, example.com/gpu: 2}}\n  labels: {{disk: ssd}}\n  \
             zones: [a, b]\n  taints: [{{key: k, value: v, effect: NoSchedule}}]\n- name: other\npods:\n- labels: {{app: x}}\n  \
             set: {{exit-code: 1, ignore-stop: true}}\n"
        );
        let profile = Profile::parse(text.as_bytes()).unwrap();
        let shape = &profile.nodes[0];
        assert_eq!((shape.count, &*shape.name, shape.zones.len()), (3, "small", 2));
        let amount = |name: &str| shape.capacity[name].to_string();
        assert_eq!(
            (amount("cpu"), amount("example.com/gpu"), amount("pods")),
            ("4".into(), "2".into(), "110".into())
        );
        assert_eq!(shape.taints[0].effect, "NoSchedule");
        assert_eq!(profile.nodes[1].count, 1);
        assert_eq!(profile.rules[0].set["exit-code"], "1");
    }

    #[test]
    fn a_file_has_stages_beside_the_profile() {
        let stage = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: s}\nspec:\n  \
                     resourceRef: {kind: Pod}\n  next: {delete: true}\n";
        let profile =
            Profile::parse(format!("# stages\n---\n{stage}---\n{HEAD}nodes: [{{}}]\n").as_bytes()).unwrap();
        assert_eq!((profile.nodes.len(), profile.stages.len()), (1, 1));
        assert!(Profile::parse(stage.as_bytes()).unwrap().nodes.is_empty());
        let wrong = Profile::parse(stage.replace("delete", "vanish").as_bytes()).unwrap_err();
        assert_eq!(wrong, ["Stage \"s\".spec.next.vanish: is not understood"]);
        let other = Profile::parse(b"kind: Other\n").unwrap_err();
        assert!(other[0].starts_with("apiVersion and kind must be"), "{other:?}");
    }

    #[test]
    fn all_mistakes_are_reported() {
        let text = "HEADnodes:\n- {count: -1, size: 3, capacity: {cpu: lots}, set: {loud: 1}}\n- {name: node}\n- {count: 40000}\n\
                    pods:\n- {set: {runs: 1s, run-for: soon}}\n";
        let errors = Profile::parse(text.replace("HEAD", HEAD).as_bytes()).unwrap_err();
        let all = errors.join("\n");
        for expected in [
            "nodes[0].count: must be a number from 0 on",
            "nodes[0].size: unknown field",
            "nodes[0].capacity.cpu: must be a quantity",
            "nodes[0].set: simulation.pintle.io/loud is not a setting of nodes",
            "nodes[1].name: \"node\" is the name of another shape",
            "nodes: more than 32768 nodes",
            "pods[0].set.runs: unknown field",
            "pods[0].set.run-for: \"soon\"",
        ] {
            assert!(all.contains(expected), "{expected}\n{all}");
        }
    }
}
