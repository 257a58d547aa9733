//! FlowSchemas: which requests form a flow, by user and resource.

use super::status::{self, fixed};
use crate::check::{self, Problems};
use crate::{conditions, metadata, read};
use rest::hooks::{
    CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, SubresourceHooks, Subresources,
    UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, Reason, quoted};
use schema::{Path, Value, decode};
use std::sync::LazyLock;
use std::time::Duration;

const MOST_PRECEDENCE: i64 = 10_000;
const METHODS: &str = r#""ByNamespace", "ByUser""#;
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// The specs of the schemas that cannot be changed.
static MANDATORY: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    const ALL: &str = r#""resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,
        "namespaces":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]"#;
    let group = |name: &str| format!(r#"{{"kind":"Group","group":{{"name":"{name}"}}}}"#);
    let exempt = format!(
        r#"{{"priorityLevelConfiguration":{{"name":"exempt"}},"matchingPrecedence":1,"rules":[{{"subjects":[{}],{ALL}}}]}}"#,
        group("system:masters")
    );
    let catch_all = format!(
        r#"{{"priorityLevelConfiguration":{{"name":"catch-all"}},"matchingPrecedence":{MOST_PRECEDENCE},
        "distinguisherMethod":{{"type":"ByUser"}},"rules":[{{"subjects":[{},{}],{ALL}}}]}}"#,
        group("system:unauthenticated"),
        group("system:authenticated")
    );
    let read = |text: String| decode::json_untyped(text.as_bytes()).map(|it| it.value).unwrap_or_default();
    vec![("exempt", read(exempt)), ("catch-all", read(catch_all))]
});

pub(super) fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| validate(object)), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State]),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[status::status(|object, _, _| validate(object))];

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    spec(object, &path, &mut out);
    let name = object.text(&["metadata", "name"]);
    if let Some((_, expected)) = MANDATORY.iter().find(|(one, _)| *one == name)
        && object.at(&["spec"]) != Some(expected)
    {
        out.push(check::invalid_formatted(&path, &format_spec(object), &fixed(name)));
    }
    let path = Path::ROOT.field("status");
    conditions::distinct(object.items(&["status", "conditions"]), &path.field("conditions"), &mut out);
    out
}

/// The spec as error messages show it, without pointed-to values.
fn format_spec(object: &Value) -> String {
    let level = quoted(object.text(&["spec", "priorityLevelConfiguration", "name"]));
    let precedence = read::int(object, &["spec", "matchingPrecedence"]);
    let method = if read::has(object, &["spec", "distinguisherMethod"]) { "0x0" } else { "nil" };
    let rules = if object.items(&["spec", "rules"]).is_empty() { "(nil)" } else { "{...}" };
    format!(
        "flowcontrol.FlowSchemaSpec{{PriorityLevelConfiguration:flowcontrol.PriorityLevelConfigurationReference{{Name:{level}}}, \
         MatchingPrecedence:{precedence}, DistinguisherMethod:(*flowcontrol.FlowDistinguisherMethod)({method}), \
         Rules:[]flowcontrol.PolicyRulesWithSubjects{rules}}}"
    )
}

fn spec(object: &Value, path: &Path<'_>, out: &mut Problems) {
    let precedence = read::int(object, &["spec", "matchingPrecedence"]);
    let mut refuse =
        |why: &str| out.push(check::invalid_int(&path.field("matchingPrecedence"), precedence, why));
    if precedence <= 0 {
        refuse("must be a positive value");
    }
    if precedence > MOST_PRECEDENCE {
        refuse(&format!("must not be greater than {MOST_PRECEDENCE}"));
    }
    if precedence == 1 && object.text(&["metadata", "name"]) != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) = object.at(&["spec", "distinguisherMethod"]).filter(|it| !it.is_null()) {
        let kind = method.text(&["type"]);
        if !matches!(kind, "ByNamespace" | "ByUser") {
            let formatted = format!("flowcontrol.FlowDistinguisherMethod{{Type:{}}}", quoted(kind));
            let path = path.field("distinguisherMethod");
            out.push(not_supported(&path.field("type"), &formatted, METHODS));
        }
    }
    let level = object.text(&["spec", "priorityLevelConfiguration", "name"]);
    let reference = path.field("priorityLevelConfiguration");
    if level.is_empty() {
        out.push(Problem::required(&reference.field("name"), "must reference a priority level"));
    } else {
        check::subdomain(level, &reference.field("name"), out);
    }
    let path = path.field("rules");
    for (at, one) in object.items(&["spec", "rules"]).iter().enumerate() {
        rule(one, &path.index(at), out);
    }
}

fn not_supported(path: &Path<'_>, formatted: &str, supported: &str) -> Problem {
    let message = format!("Unsupported value: {formatted}: supported values: {supported}");
    Problem { reason: Reason::NotSupported, field: path.to_string(), message }
}

fn rule(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    let subjects = rule.items(&["subjects"]);
    if subjects.is_empty() {
        out.push(Problem::required(&path.field("subjects"), "subjects must contain at least one value"));
    }
    for (at, one) in subjects.iter().enumerate() {
        subject(one, &path.field("subjects").index(at), out);
    }
    let (on_resources, on_paths) = (rule.items(&["resourceRules"]), rule.items(&["nonResourceRules"]));
    if on_resources.is_empty() && on_paths.is_empty() {
        const WHY: &str = "at least one of resourceRules and nonResourceRules has to be non-empty";
        out.push(Problem::required(path, WHY));
    }
    for (at, one) in on_resources.iter().enumerate() {
        resource_rule(one, &path.field("resourceRules").index(at), out);
    }
    for (at, one) in on_paths.iter().enumerate() {
        path_rule(one, &path.field("nonResourceRules").index(at), out);
    }
}

fn subject(subject: &Value, path: &Path<'_>, out: &mut Problems) {
    // which field goes with which kind, in the order in which the others are refused
    const FIELDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.text(&["kind"]);
    let Some((_, own)) = FIELDS.iter().find(|(one, _)| *one == kind) else {
        out.push(check::unsupported(&path.field("kind"), kind, &["Group", "ServiceAccount", "User"]));
        return;
    };
    match subject.at(&[own]).filter(|it| !it.is_null()) {
        None => {
            let why = format!("{own} is required when subject kind is '{kind}'");
            out.push(Problem::required(&path.field(own), &why));
        }
        Some(account) if kind == "ServiceAccount" => service_account(account, &path.field(own), out),
        Some(named) => check::required_field(named, "name", &path.field(own), out),
    }
    for (other, field) in FIELDS {
        if field != *own && read::has(subject, &[field]) {
            let why = format!("{field} is forbidden when subject kind is not '{other}'");
            out.push(Problem::forbidden(&path.field(field), &why));
        }
    }
}

fn service_account(account: &Value, path: &Path<'_>, out: &mut Problems) {
    match account.text(&["name"]) {
        "" => out.push(Problem::required(&path.field("name"), "")),
        "*" => {}
        name => check::subdomain(name, &path.field("name"), out),
    }
    match account.text(&["namespace"]) {
        "" => {
            const WHY: &str = "must specify namespace for service account";
            out.push(Problem::required(&path.field("namespace"), WHY));
        }
        namespace => check::label(namespace, &path.field("namespace"), out),
    }
}

/// A list with at least one item, where a star stands alone. Gives whether its items are to be looked at.
fn listed(
    rule: &Value,
    (field, none, others): (&str, &str, &str),
    path: &Path<'_>,
    out: &mut Problems,
) -> bool {
    let items = rule.items(&[field]);
    let star = items.iter().any(|one| one.as_str() == Some("*"));
    if items.is_empty() {
        out.push(Problem::required(&path.field(field), none));
    } else if star && items.len() > 1 {
        let why = format!("if '*' is present, must not specify other {others}");
        out.push(check::invalid_formatted(&path.field(field), &check::format_texts(items), &why));
    }
    !star
}

fn verbs(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    let words = ("verbs", "verbs must contain at least one value", "verbs");
    let given = rule.items(&["verbs"]);
    if listed(rule, words, path, out) && !given.iter().all(|one| VERBS.contains(&read::text(one))) {
        let supported: Vec<_> = VERBS.iter().map(|one| quoted(one)).collect();
        out.push(not_supported(&path.field("verbs"), &check::format_texts(given), &supported.join(", ")));
    }
}

fn resource_rule(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    verbs(rule, path, out);
    let groups = ("apiGroups", "resource rules must supply at least one api group", "api groups");
    listed(rule, groups, path, out);
    let resources = ("resources", "resource rules must supply at least one resource", "resources");
    listed(rule, resources, path, out);
    let given = rule.items(&["namespaces"]);
    if given.is_empty() && read::flag(rule, &["clusterScope"]) {
        return;
    }
    const NONE: &str = "resource rules that are not cluster scoped must supply at least one namespace";
    if listed(rule, ("namespaces", NONE, "namespaces"), path, out) {
        let path = path.field("namespaces");
        for (at, one) in given.iter().enumerate() {
            let name = read::text(one);
            for why in metadata::label_name(name, false) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                out.push(Problem::invalid_text(&path.index(at), name, &why));
            }
        }
    }
}

fn path_rule(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    verbs(rule, path, out);
    let words = ("nonResourceURLs", "nonResourceURLs must contain at least one value", "non-resource URLs");
    if listed(rule, words, path, out) {
        let path = path.field("nonResourceURLs");
        for (at, one) in rule.items(&["nonResourceURLs"]).iter().enumerate() {
            url(read::text(one), &path.index(at), out);
        }
    }
}

/// A path from the root, where a star may only stand for the last part.
fn url(url: &str, path: &Path<'_>, out: &mut Problems) {
    let mut refuse = |why: &str| out.push(Problem::invalid_text(path, url, why));
    if url.is_empty() {
        return refuse("must not be empty");
    }
    if url == "/" {
        return;
    }
    if !url.starts_with('/') {
        return refuse("must start with slash");
    }
    if url.contains(' ') {
        refuse("must not contain white-space");
    }
    if url.contains("//") {
        refuse("must not contain double slash");
    }
    let stars = url.matches('*').count();
    if stars > 1 || stars == 1 && !url.ends_with("/*") {
        refuse("wildcard can only do suffix matching");
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let method = object.text(&["spec", "distinguisherMethod", "type"]);
    let conditions = object.items(&["status", "conditions"]);
    let dangling = conditions.iter().find(|one| one.text(&["type"]) == "Dangling");
    vec![
        metadata::name(object),
        object.text(&["spec", "priorityLevelConfiguration", "name"]).into(),
        Value::Int(read::int(object, &["spec", "matchingPrecedence"])),
        metadata::or(method, "<none>"),
        metadata::age(object, now),
        dangling.map_or("?", |one| one.text(&["status"])).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn mandatory_schemas_do_not_change() {
        for (name, spec) in MANDATORY.iter() {
            let mut object = json(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
            object.set(&["spec"], spec.clone());
            assert_eq!(problems(&validate(&object)), [""; 0], "{name}");
            object.set(&["spec", "matchingPrecedence"], 5);
            assert_eq!(validate(&object).len(), 1, "{name}");
        }
    }

    #[test]
    fn stars_stand_for_the_last_part() {
        let check = |path: &str, expected: &[&str]| {
            let mut out = Problems::new();
            url(path, &Path::ROOT.field("u"), &mut out);
            let found: Vec<_> = out.iter().filter_map(|it| it.message.rsplit(": ").next()).collect();
            assert_eq!(found, expected, "{path}");
        };
        check("/", &[]);
        check("/a/*", &[]);
        check("/a*", &["wildcard can only do suffix matching"]);
        check("/a/*/b", &["wildcard can only do suffix matching"]);
        check("a", &["must start with slash"]);
        check("/a //b", &["must not contain white-space", "must not contain double slash"]);
    }
}
