use super::*;
use auth::{Attributes, User};
use names::Names;

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
    Attributes { api_group: group, namespace, resource, subresource, name, resource_request: true, ..plain }
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
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", &["audit.k8s.io/v1beta1"]),
        (HEAD, &["rules: at least one is required"]),
        (&format!("{HEAD}rules: {{"), &["line "]),
        (&format!("{HEAD}rules: no"), &["rules: must be a list"]),
        (
            &format!("{HEAD}rules:\n- level: metadata\n\n- users: [a]\n  verb: [get]\n# so\n- level: 3\n"),
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
