//! The strict parser of policy files, which reports all errors.

use super::rules::{Level, Policy, Resources, Rule, Stage, Stages};
use names::Names;
use schema::Value;
use schema::value::Map;
use schema::yaml;
use std::fmt::Display;

/// All errors in a policy, on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidPolicy(Vec<String>);

impl Policy {
    /// Parses a policy file.
    pub fn parse(text: &str, names: &Names) -> Result<Policy, InvalidPolicy> {
        let document = yaml::parse(text.as_bytes(), yaml::Limits::default())
            .map_err(|why| InvalidPolicy(vec![why.cause().to_owned()]))?;
        let lines = rule_lines(text, document.value.items(&["rules"]).len());
        let mut reader = Reader { errors: document.repeated, lines };
        let policy = reader.policy(&document.value, &format!("{}/v1", names.group("audit")));
        if reader.errors.is_empty() { Ok(policy) } else { Err(InvalidPolicy(reader.errors)) }
    }
}

/// Parses a policy and collects its errors.
struct Reader {
    errors: Vec<String>,
    /// The line of each rule, if known.
    lines: Option<Vec<usize>>,
}

impl Reader {
    fn error(&mut self, path: &str, why: impl Display) {
        self.errors.push(if path.is_empty() { why.to_string() } else { format!("{path}: {why}") });
    }

    fn policy(&mut self, value: &Value, api_version: &str) -> Policy {
        let mut policy =
            Policy { rules: Vec::new(), omitted: Stages::default(), without_managed_fields: false };
        let Some(map) = value.as_map() else {
            self.error("", "the file contains no policy");
            return policy;
        };
        let (version, kind) = (value.text(&["apiVersion"]), value.text(&["kind"]));
        if (version, kind) != (api_version, "Policy") {
            let why = format!(
                "apiVersion and kind must be {api_version:?} and \"Policy\", not {version:?} and {kind:?}"
            );
            self.error("", why);
            return policy;
        }
        for (field, value) in map.iter() {
            match field {
                // object metadata is ignored
                "apiVersion" | "kind" | "metadata" => {}
                "rules" => policy.rules = self.rules(value),
                "omitStages" => policy.omitted = self.stages(field, value),
                "omitManagedFields" => policy.without_managed_fields = self.boolean(field, value),
                unknown => self.error("", format!("unknown field {unknown:?}")),
            }
        }
        if policy.rules.is_empty() && self.errors.is_empty() {
            self.error("rules", "at least one is required");
        }
        policy
    }

    fn rules(&mut self, value: &Value) -> Vec<Rule> {
        let Some(items) = self.list("rules", value) else { return Vec::new() };
        let mut rules = Vec::new();
        for (nth, item) in items.iter().enumerate() {
            let line = self.lines.as_ref().and_then(|lines| lines.get(nth));
            let path = line.map_or(format!("rules[{nth}]"), |line| format!("line {line}: rules[{nth}]"));
            match item.as_map() {
                Some(map) => rules.push(self.rule(&path, map)),
                None => self.error(&path, "must be a map"),
            }
        }
        rules
    }

    fn rule(&mut self, path: &str, map: &Map) -> Rule {
        let mut rule = Rule::default();
        for (field, value) in map.iter() {
            let at = format!("{path}.{field}");
            match field {
                "level" => rule.level = self.level(&at, value),
                "users" => rule.users = self.texts(&at, value),
                "userGroups" => rule.groups = self.texts(&at, value),
                "verbs" => rule.verbs = self.texts(&at, value),
                "namespaces" => rule.namespaces = self.texts(&at, value),
                "nonResourceURLs" => rule.paths = self.paths(&at, value),
                "resources" => rule.resources = self.resources(&at, value),
                "omitStages" => rule.omitted = self.stages(&at, value),
                "omitManagedFields" => rule.without_managed_fields = Some(self.boolean(&at, value)),
                unknown => self.error(path, format!("unknown field {unknown:?}")),
            }
        }
        if map.get("level").is_none() {
            self.error(&format!("{path}.level"), "is required");
        }
        let for_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
        if for_resources && !rule.paths.is_empty() {
            let why = "a rule is either for resources or for other URLs, not for both";
            self.error(&format!("{path}.nonResourceURLs"), why);
        }
        rule
    }

    fn level(&mut self, at: &str, value: &Value) -> Option<Level> {
        let found = Level::ALL.into_iter().find(|level| value.as_str() == Some(level.name()));
        if found.is_none() {
            let names = Level::ALL.map(Level::name).join(", ");
            self.error(
                at,
                format!("{} is no level; there are {names}", schema::problem::format_value(value)),
            );
        }
        found
    }

    fn stages(&mut self, at: &str, value: &Value) -> Stages {
        let mut stages = Stages::default();
        for (nth, name) in self.texts(at, value).iter().enumerate() {
            match Stage::ALL.into_iter().find(|stage| stage.name() == name) {
                Some(stage) => stages.add(stage),
                None => {
                    let names = Stage::ALL.map(Stage::name).join(", ");
                    self.error(&format!("{at}[{nth}]"), format!("{name:?} is no stage; there are {names}"));
                }
            }
        }
        stages
    }

    fn paths(&mut self, at: &str, value: &Value) -> Vec<String> {
        let paths = self.texts(at, value);
        for (nth, path) in paths.iter().enumerate().filter(|(_, path)| *path != "*") {
            let location = format!("{at}[{nth}]");
            if !path.starts_with('/') {
                self.error(&location, format!("{path:?} does not begin with a slash"));
            }
            if path.find('*').is_some_and(|star| star + 1 < path.len()) {
                self.error(&location, format!("in {path:?} the * is not at the end"));
            }
        }
        paths
    }

    fn resources(&mut self, at: &str, value: &Value) -> Vec<Resources> {
        let items = self.list(at, value).unwrap_or_default();
        let mut all = Vec::new();
        for (nth, item) in items.iter().enumerate() {
            let path = format!("{at}[{nth}]");
            let Some(map) = item.as_map() else {
                self.error(&path, "must be a map");
                continue;
            };
            let mut one = Resources::default();
            for (field, value) in map.iter() {
                let at = format!("{path}.{field}");
                match field {
                    "group" => one.group = self.text(&at, value),
                    "resources" => one.resources = self.texts(&at, value),
                    "resourceNames" => one.names = self.texts(&at, value),
                    unknown => self.error(&path, format!("unknown field {unknown:?}")),
                }
            }
            let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let label = |label: &str| {
                !label.is_empty()
                    && label.chars().all(part)
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            if !one.group.is_empty() && (one.group.len() > 253 || !one.group.split('.').all(label)) {
                self.error(&format!("{path}.group"), format!("{:?} cannot be the name of one", one.group));
            }
            if !one.names.is_empty() && one.resources.is_empty() {
                self.error(&format!("{path}.resourceNames"), "names need resources that have them");
            }
            all.push(one);
        }
        all
    }

    fn list(&mut self, at: &str, value: &Value) -> Option<Vec<Value>> {
        if value.is_null() {
            return Some(Vec::new());
        }
        let list = value.as_list().map(<[Value]>::to_vec);
        if list.is_none() {
            self.error(at, "must be a list");
        }
        list
    }

    fn texts(&mut self, at: &str, value: &Value) -> Vec<String> {
        let items = self.list(at, value).unwrap_or_default();
        items.iter().enumerate().map(|(nth, item)| self.text(&format!("{at}[{nth}]"), item)).collect()
    }

    fn text(&mut self, at: &str, value: &Value) -> String {
        if value.as_str().is_none() && !value.is_null() {
            self.error(at, format!("must be text, not {}", schema::problem::format_value(value)));
        }
        value.as_str().unwrap_or_default().to_owned()
    }

    fn boolean(&mut self, at: &str, value: &Value) -> bool {
        if value.as_bool().is_none() && !value.is_null() {
            self.error(at, format!("must be true or false, not {}", schema::problem::format_value(value)));
        }
        value.as_bool().unwrap_or(false)
    }
}

/// The line of each of `count` rules, if they are in block style.
fn rule_lines(text: &str, count: usize) -> Option<Vec<usize>> {
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with("rules:")).skip(1);
    let mut found = Vec::new();
    let mut column = None;
    for (nth, line) in lines.by_ref() {
        let indent = line.len() - line.trim_start().len();
        match line.trim_start() {
            "" => continue,
            rest if rest.starts_with('#') => continue,
            rest if rest.starts_with('-') && *column.get_or_insert(indent) == indent => found.push(nth + 1),
            // the next field of the policy
            _ if indent == 0 => break,
            _ => {}
        }
    }
    (found.len() == count).then_some(found)
}
