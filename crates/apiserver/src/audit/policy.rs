//! Audit policy: ordered rules that select requests and the level of their events.
//!
//! What always holds: a policy that was read has only known fields and values, so that a slip of the pen cannot
//! leave out what somebody meant to record. A request that no rule fits is not recorded.

use auth::{Attributes, User};
use names::Names;
use schema::Value;
use schema::value::Map;
use schema::yaml;
use std::fmt::Display;

/// How much of a request is recorded; each level holds what those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    /// Who, what, when, and how it ended.
    Metadata,
    /// What was sent, too.
    Request,
    /// What was answered, too.
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

/// A moment of a request at which something is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The caller is known and nothing has been done yet.
    RequestReceived,
    /// The head of an answer went out whose body takes its time.
    ResponseStarted,
    /// All is done.
    ResponseComplete,
    /// The server made a mistake.
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

/// Some of the stages.
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

/// What is recorded of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    pub omitted: Stages,
    /// Objects are shown without the record of who owns which field.
    pub without_managed_fields: bool,
}

/// The rules of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omitted: Stages,
    without_managed_fields: bool,
}

/// One rule. An empty list is every one.
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

/// Everything that is wrong with a policy, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct BadPolicy(Vec<String>);

impl Policy {
    /// What is recorded of a request; `user` is absent where nobody knows who calls.
    pub fn judge(&self, user: Option<&User>, asked: &Attributes<'_>) -> Verdict {
        let found = self.rules.iter().find(|rule| rule.fits(user, asked));
        let (level, omitted) = found.map_or((Level::None, Stages::default()), |rule| {
            (rule.level.unwrap_or(Level::None), rule.omitted)
        });
        let own = found.and_then(|rule| rule.without_managed_fields);
        Verdict {
            level,
            omitted: Stages(omitted.0 | self.omitted.0),
            without_managed_fields: own.unwrap_or(self.without_managed_fields),
        }
    }

    /// Reads a policy file.
    pub fn parse(text: &str, names: &Names) -> Result<Policy, BadPolicy> {
        let document = yaml::parse(text.as_bytes(), yaml::Limits::default())
            .map_err(|why| BadPolicy(vec![why.cause().to_owned()]))?;
        let lines = rule_lines(text, document.value.items(&["rules"]).len());
        let mut reader = Reader { wrong: document.repeated, lines };
        let policy = reader.policy(&document.value, &format!("{}/v1", names.group("audit")));
        if reader.wrong.is_empty() { Ok(policy) } else { Err(BadPolicy(reader.wrong)) }
    }
}

impl Rule {
    fn fits(&self, user: Option<&User>, asked: &Attributes<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        if !self.users.is_empty() && !user.is_some_and(|user| has(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &User| user.groups.iter().any(|group| has(&self.groups, group));
        if !self.groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, asked.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return asked.resource_request
                && (self.namespaces.is_empty() || has(&self.namespaces, asked.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|one| one.fit(asked)));
        }
        if !self.paths.is_empty() {
            return !asked.resource_request && self.paths.iter().any(|path| path_fits(path, asked.path));
        }
        true
    }
}

impl Resources {
    fn fit(&self, asked: &Attributes<'_>) -> bool {
        if self.group != asked.api_group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.iter().any(|name| name == asked.name) {
            return false;
        }
        let (resource, part) = (asked.resource, asked.subresource);
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            None => part.is_empty() && pattern == resource,
            Some((of, "*")) if of == resource => true,
            Some(("*", wanted)) => !part.is_empty() && wanted == part,
            Some((of, wanted)) => of == resource && wanted == part,
        })
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    let below = |prefix: &str| path.starts_with(prefix.trim_end_matches('*'));
    pattern == "*" || pattern == path || pattern.ends_with('*') && below(pattern)
}

/// Reads the tree of a policy and gathers what is wrong with it.
struct Reader {
    wrong: Vec<String>,
    /// In which line each rule begins, where that can be told.
    lines: Option<Vec<usize>>,
}

impl Reader {
    fn complain(&mut self, place: &str, why: impl Display) {
        self.wrong.push(if place.is_empty() { why.to_string() } else { format!("{place}: {why}") });
    }

    fn policy(&mut self, value: &Value, api_version: &str) -> Policy {
        let mut policy =
            Policy { rules: Vec::new(), omitted: Stages::default(), without_managed_fields: false };
        let Some(map) = value.as_map() else {
            self.complain("", "there is no policy in it");
            return policy;
        };
        let (given, kind) = (value.text(&["apiVersion"]), value.text(&["kind"]));
        if (given, kind) != (api_version, "Policy") {
            let why = format!(
                "apiVersion and kind must be {api_version:?} and \"Policy\", not {given:?} and {kind:?}"
            );
            self.complain("", why);
            return policy;
        }
        for (field, value) in map.iter() {
            match field {
                // what an object may say about itself means nothing here
                "apiVersion" | "kind" | "metadata" => {}
                "rules" => policy.rules = self.rules(value),
                "omitStages" => policy.omitted = self.stages(field, value),
                "omitManagedFields" => policy.without_managed_fields = self.truth(field, value),
                unknown => self.complain("", format!("unknown field {unknown:?}")),
            }
        }
        if policy.rules.is_empty() && self.wrong.is_empty() {
            self.complain("rules", "there is none");
        }
        policy
    }

    fn rules(&mut self, value: &Value) -> Vec<Rule> {
        let Some(items) = self.list("rules", value) else { return Vec::new() };
        let mut rules = Vec::new();
        for (nth, item) in items.iter().enumerate() {
            let line = self.lines.as_ref().and_then(|lines| lines.get(nth));
            let place = line.map_or(format!("rules[{nth}]"), |line| format!("line {line}: rules[{nth}]"));
            match item.as_map() {
                Some(map) => rules.push(self.rule(&place, map)),
                None => self.complain(&place, "must be a map"),
            }
        }
        rules
    }

    fn rule(&mut self, place: &str, map: &Map) -> Rule {
        let mut rule = Rule::default();
        for (field, value) in map.iter() {
            let at = format!("{place}.{field}");
            match field {
                "level" => rule.level = self.level(&at, value),
                "users" => rule.users = self.texts(&at, value),
                "userGroups" => rule.groups = self.texts(&at, value),
                "verbs" => rule.verbs = self.texts(&at, value),
                "namespaces" => rule.namespaces = self.texts(&at, value),
                "nonResourceURLs" => rule.paths = self.paths(&at, value),
                "resources" => rule.resources = self.resources(&at, value),
                "omitStages" => rule.omitted = self.stages(&at, value),
                "omitManagedFields" => rule.without_managed_fields = Some(self.truth(&at, value)),
                unknown => self.complain(place, format!("unknown field {unknown:?}")),
            }
        }
        if map.get("level").is_none() {
            self.complain(&format!("{place}.level"), "it must be there");
        }
        let for_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
        if for_resources && !rule.paths.is_empty() {
            let why = "a rule is either for resources or for other URLs, not for both";
            self.complain(&format!("{place}.nonResourceURLs"), why);
        }
        rule
    }

    fn level(&mut self, at: &str, value: &Value) -> Option<Level> {
        let found = Level::ALL.into_iter().find(|level| value.as_str() == Some(level.name()));
        if found.is_none() {
            let names = Level::ALL.map(Level::name).join(", ");
            self.complain(at, format!("{} is no level; there are {names}", schema::problem::shown(value)));
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
                    self.complain(
                        &format!("{at}[{nth}]"),
                        format!("{name:?} is no stage; there are {names}"),
                    );
                }
            }
        }
        stages
    }

    fn paths(&mut self, at: &str, value: &Value) -> Vec<String> {
        let paths = self.texts(at, value);
        for (nth, path) in paths.iter().enumerate().filter(|(_, path)| *path != "*") {
            let place = format!("{at}[{nth}]");
            if !path.starts_with('/') {
                self.complain(&place, format!("{path:?} does not begin with a slash"));
            }
            if path.find('*').is_some_and(|star| star + 1 < path.len()) {
                self.complain(&place, format!("in {path:?} the * is not at the end"));
            }
        }
        paths
    }

    fn resources(&mut self, at: &str, value: &Value) -> Vec<Resources> {
        let items = self.list(at, value).unwrap_or_default();
        let mut all = Vec::new();
        for (nth, item) in items.iter().enumerate() {
            let place = format!("{at}[{nth}]");
            let Some(map) = item.as_map() else {
                self.complain(&place, "must be a map");
                continue;
            };
            let mut one = Resources::default();
            for (field, value) in map.iter() {
                let at = format!("{place}.{field}");
                match field {
                    "group" => one.group = self.text(&at, value),
                    "resources" => one.resources = self.texts(&at, value),
                    "resourceNames" => one.names = self.texts(&at, value),
                    unknown => self.complain(&place, format!("unknown field {unknown:?}")),
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
                self.complain(
                    &format!("{place}.group"),
                    format!("{:?} cannot be the name of one", one.group),
                );
            }
            if !one.names.is_empty() && one.resources.is_empty() {
                self.complain(&format!("{place}.resourceNames"), "names need resources that have them");
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
            self.complain(at, "must be a list");
        }
        list
    }

    fn texts(&mut self, at: &str, value: &Value) -> Vec<String> {
        let items = self.list(at, value).unwrap_or_default();
        items.iter().enumerate().map(|(nth, item)| self.text(&format!("{at}[{nth}]"), item)).collect()
    }

    fn text(&mut self, at: &str, value: &Value) -> String {
        if value.as_str().is_none() && !value.is_null() {
            self.complain(at, format!("must be text, not {}", schema::problem::shown(value)));
        }
        value.as_str().unwrap_or_default().to_owned()
    }

    fn truth(&mut self, at: &str, value: &Value) -> bool {
        if value.as_bool().is_none() && !value.is_null() {
            self.complain(at, format!("must be true or false, not {}", schema::problem::shown(value)));
        }
        value.as_bool().unwrap_or(false)
    }
}

/// In which line each of `count` rules begins, where they are written one below the other.
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

    fn asked<'a>(user: &'a User, verb: &'a str, what: &'a str) -> Attributes<'a> {
        let plain = Attributes {
            user,
            verb,
            api_group: "",
            version: "v1",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path: what,
            resource_request: false,
        };
        // group:namespace:resource/part:name
        let Some((group, rest)) = what.split_once(':') else { return plain };
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
        let level = |user, verb, what| policy.judge(Some(user), &asked(user, verb, what)).level;
        use Level::{Metadata, Request, RequestResponse};
        for (user, verb, what, expected) in [
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
            assert_eq!(level(user, verb, what), expected, "{} {verb} {what}", user.name);
        }
        // nobody is no user and in no group
        assert_eq!(policy.judge(None, &asked(&quiet, "get", "/version")).level, Metadata);
        let verdict = policy.judge(Some(&ops), &asked(&ops, "get", "/x"));
        assert!(verdict.omitted.has(Stage::Panic) && verdict.omitted.has(Stage::RequestReceived));
        assert!(!verdict.omitted.has(Stage::ResponseComplete) && !verdict.without_managed_fields);
        assert!(policy.judge(Some(&other), &asked(&other, "get", "/x")).without_managed_fields);
    }

    #[test]
    fn all_mistakes_are_told_with_rule_and_line() {
        for (text, parts) in [
            ("", &["there is no policy in it"][..]),
            ("kind: Policy\nrules: []", &["not \"\" and \"Policy\""]),
            (
                "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]",
                &["audit.k8s.io/v1beta1"],
            ),
            (HEAD, &["rules: there is none"]),
            (&format!("{HEAD}rules: {{"), &["line "]),
            (&format!("{HEAD}rules: no"), &["rules: must be a list"]),
            (
                &format!(
                    "{HEAD}rules:\n- level: metadata\n\n- users: [a]\n  verb: [get]\n# so\n- level: 3\n"
                ),
                &[
                    "line 4: rules[0].level: \"metadata\" is no level; there are None, Metadata, Request",
                    "line 6: rules[1]: unknown field \"verb\"",
                    "line 6: rules[1].level: it must be there",
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
            let told = Policy::parse(text, &Names::kubernetes()).unwrap_err().to_string();
            assert_eq!(told.lines().count(), 1, "{told}");
            for part in parts {
                assert!(told.contains(part), "{part} is not in {told}");
            }
        }
    }
}
