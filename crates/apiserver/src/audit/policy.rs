//! Audit policy: ordered rules that select requests and the level of their events.
//!
//! Invariants: a parsed policy has only known fields and values, so that a typo cannot drop events. A request
//! that matches no rule is not recorded.

use auth::{Attributes, User};
use names::Names;
use schema::Value;
use schema::value::Map;
use schema::yaml;
use std::fmt::Display;

/// The level of an event; each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    /// User, request, time and outcome.
    Metadata,
    /// The request body, too.
    Request,
    /// The response body, too.
    RequestResponse,
}

impl Level {
    const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// A stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The user is authenticated and nothing has been done yet.
    RequestReceived,
    /// The head of a long-running response was sent.
    ResponseStarted,
    /// The request has ended.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    pub fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    fn add(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }
}

/// The level and stages of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub level: Level,
    pub omitted: Stages,
    /// Whether managed fields are omitted.
    pub without_managed_fields: bool,
}

/// The policy of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omitted: Stages,
    without_managed_fields: bool,
}

/// A rule. An empty list matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    level: Option<Level>,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omitted: Stages,
    without_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// All errors in a policy, on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct BadPolicy(Vec<String>);

impl Policy {
    /// Evaluates the policy for a request; `user` is `None` before authentication.
    pub fn evaluate(&self, user: Option<&User>, attributes: &Attributes<'_>) -> Selection {
        let found = self.rules.iter().find(|rule| rule.fits(user, attributes));
        let (level, omitted) = found.map_or((Level::None, Stages::default()), |rule| {
            (rule.level.unwrap_or(Level::None), rule.omitted)
        });
        let own = found.and_then(|rule| rule.without_managed_fields);
        Selection {
            level,
            omitted: Stages(omitted.0 | self.omitted.0),
            without_managed_fields: own.unwrap_or(self.without_managed_fields),
        }
    }

    /// Parses a policy file.
    pub fn parse(text: &str, names: &Names) -> Result<Policy, BadPolicy> {
        let document = yaml::parse(text.as_bytes(), yaml::Limits::default())
            .map_err(|why| BadPolicy(vec![why.cause().to_owned()]))?;
        let lines = rule_lines(text, document.value.items(&["rules"]).len());
        let mut reader = Reader { errors: document.repeated, lines };
        let policy = reader.policy(&document.value, &format!("{}/v1", names.group("audit")));
        if reader.errors.is_empty() { Ok(policy) } else { Err(BadPolicy(reader.errors)) }
    }
}

impl Rule {
    fn fits(&self, user: Option<&User>, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        if !self.users.is_empty() && !user.is_some_and(|user| has(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &User| user.groups.iter().any(|group| has(&self.groups, group));
        if !self.groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.resource_request
                && (self.namespaces.is_empty() || has(&self.namespaces, attributes.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|one| one.fit(attributes)));
        }
        if !self.paths.is_empty() {
            return !attributes.resource_request
                && self.paths.iter().any(|path| path_fits(path, attributes.path));
        }
        true
    }
}

impl Resources {
    fn fit(&self, attributes: &Attributes<'_>) -> bool {
        if self.group != attributes.api_group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.iter().any(|name| name == attributes.name) {
            return false;
        }
        let (resource, part) = (attributes.resource, attributes.subresource);
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            None => part.is_empty() && pattern == resource,
            Some((of, "*")) if of == resource => true,
            Some(("*", subresource)) => !part.is_empty() && subresource == part,
            Some((of, subresource)) => of == resource && subresource == part,
        })
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    let below = |prefix: &str| path.starts_with(prefix.trim_end_matches('*'));
    pattern == "*" || pattern == path || pattern.ends_with('*') && below(pattern)
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
            self.error(at, format!("{} is no level; there are {names}", schema::problem::shown(value)));
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
            self.error(at, format!("must be text, not {}", schema::problem::shown(value)));
        }
        value.as_str().unwrap_or_default().to_owned()
    }

    fn boolean(&mut self, at: &str, value: &Value) -> bool {
        if value.as_bool().is_none() && !value.is_null() {
            self.error(at, format!("must be true or false, not {}", schema::problem::shown(value)));
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    fn policy(rules: &str) -> Policy {
        Policy::parse(&format!("{HEAD}{rules}"), &Names::kubernetes()).unwrap()
    }

    fn attributes<'a>(user: &'a User, verb: &'a str, request: &'a str) -> Attributes<'a> {
        let plain = Attributes {
            user,
            verb,
            api_group: "",
            version: "v1",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path: request,
            resource_request: false,
        };
        // group:namespace:resource/part:name
        let Some((group, rest)) = request.split_once(':') else { return plain };
        let mut parts = rest.split(':');
        let namespace = parts.next().unwrap();
        let (resource, subresource) = match parts.next().unwrap().split_once('/') {
            Some(both) => both,
            None => (rest.split(':').nth(1).unwrap(), ""),
        };
        let name = parts.next().unwrap_or("");
        Attributes {
            api_group: group,
            namespace,
            resource,
            subresource,
            name,
            resource_request: true,
            ..plain
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = policy(
            "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
             - {level: None, users: [quiet], verbs: [get, list]}\n\
             - {level: Request, userGroups: [ops], omitManagedFields: false, omitStages: [Panic]}\n\
             - {level: RequestResponse, resources: [{group: apps, resources: ['*/scale', 'deployments/*', sets]}]}\n\
             - {level: Request, resources: [{resources: [pods, 'pods/log']}, {resources: [secrets], resourceNames: [a]}]}\n\
             - {level: Request, namespaces: ['', inner], resources: [{group: batch}]}\n\
             - {level: Metadata, nonResourceURLs: ['/healthz*', '/version']}\n\
             - {level: None, nonResourceURLs: ['*']}\n\
             - {level: Metadata, namespaces: [inner]}\n",
        );
        let (quiet, ops) = (User::named("quiet"), User { groups: vec!["ops".into()], ..User::named("o") });
        let other = User::named("other");
        let level = |user, verb, request| policy.evaluate(Some(user), &attributes(user, verb, request)).level;
        use Level::{Metadata, Request, RequestResponse};
        for (user, verb, request, expected) in [
            (&quiet, "get", "batch::jobs", Level::None),
            (&quiet, "create", "batch::jobs", Request),
            (&ops, "get", "/nothing", Request),
            (&other, "get", "apps:a:deployments/status", RequestResponse),
            (&other, "get", "apps:a:deployments", RequestResponse),
            (&other, "get", "apps:a:foo/scale", RequestResponse),
            (&other, "get", "apps:a:sets", RequestResponse),
            (&other, "get", "apps:a:sets/status", Level::None),
            (&other, "get", ":a:pods", Request),
            (&other, "get", ":a:pods/log", Request),
            (&other, "get", ":a:pods/exec", Level::None),
            (&other, "get", ":a:secrets:a", Request),
            (&other, "get", ":a:secrets:b", Level::None),
            (&other, "get", "batch:inner:jobs", Request),
            (&other, "get", "batch:outer:jobs", Level::None),
            (&other, "get", ":inner:anything", Metadata),
            (&other, "get", "/healthz/ping", Metadata),
            (&other, "get", "/version", Metadata),
            (&other, "get", "/versions", Level::None),
        ] {
            assert_eq!(level(user, verb, request), expected, "{} {verb} {request}", user.name);
        }
        // no user is in no group
        assert_eq!(policy.evaluate(None, &attributes(&quiet, "get", "/version")).level, Metadata);
        let selection = policy.evaluate(Some(&ops), &attributes(&ops, "get", "/x"));
        assert!(selection.omitted.has(Stage::Panic) && selection.omitted.has(Stage::RequestReceived));
        assert!(!selection.omitted.has(Stage::ResponseComplete) && !selection.without_managed_fields);
        assert!(policy.evaluate(Some(&other), &attributes(&other, "get", "/x")).without_managed_fields);
    }

    #[test]
    fn all_errors_are_reported_with_rule_and_line() {
        for (text, parts) in [
            ("", &["the file contains no policy"][..]),
            ("kind: Policy\nrules: []", &["not \"\" and \"Policy\""]),
            (
                "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]",
                &["audit.k8s.io/v1beta1"],
            ),
            (HEAD, &["rules: at least one is required"]),
            (&format!("{HEAD}rules: {{"), &["line "]),
            (&format!("{HEAD}rules: no"), &["rules: must be a list"]),
            (
                &format!(
                    "{HEAD}rules:\n- level: metadata\n\n- users: [a]\n  verb: [get]\n# so\n- level: 3\n"
                ),
                &[
                    "line 4: rules[0].level: \"metadata\" is no level; there are None, Metadata, Request",
                    "line 6: rules[1]: unknown field \"verb\"",
                    "line 6: rules[1].level: is required",
                    "line 9: rules[2].level: 3 is no level",
                ],
            ),
            (
                &format!("{HEAD}rules: [{{level: None, nonResourceURLs: [x, /a*b], namespaces: [a]}}]"),
                &["rules[0].nonResourceURLs[0]: \"x\"", "[1]: in \"/a*b\" the *", "not for both"],
            ),
            (
                &format!(
                    "{HEAD}omitStages: [Bar]\nextra: 1\nomitManagedFields: 7\nrules:\n  - level: None\n    resources:\n    - {{group: A, resourceNames: [x]}}\n    - 5\n  - 3"
                ),
                &[
                    "omitStages[0]: \"Bar\" is no stage",
                    "unknown field \"extra\"",
                    "omitManagedFields: must be true or false, not 7",
                    "line 7: rules[0].resources[0].group: \"A\"",
                    "resources[0].resourceNames: names need resources",
                    "resources[1]: must be a map",
                    "line 11: rules[1]: must be a map",
                ],
            ),
        ] {
            let errors = Policy::parse(text, &Names::kubernetes()).unwrap_err().to_string();
            assert_eq!(errors.lines().count(), 1, "{errors}");
            for part in parts {
                assert!(errors.contains(part), "{part} is not in {errors}");
            }
        }
    }
}
