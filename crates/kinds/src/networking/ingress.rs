//! Ingresses, and the classes that select their controller.

use crate::check::{self, Problems};
use crate::core::endpoints::DISPLAY_LIMIT;
use crate::core::service::{self, balancers};
use crate::{metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, ReadHooks, RepeatedMetadataErrors, SubresourceHooks,
    Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::time::Duration;

/// The group that served this kind first.
pub(crate) const ERROR_GROUP: &str = "extensions";
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const NOT_IN_PATHS: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_ENDS: &[&str] = &["/..", "/."];

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(create), ..CreateHooks::default() },
        update: UpdateHooks {
            validate: Some(|new, old, _| validate(new, Some(old))),
            ..UpdateHooks::default()
        },
        write: WriteHooks { error_group: Some(ERROR_GROUP), ..WriteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(Some(status))];

const CLASS: &[&str] = &["spec", "ingressClassName"];

fn class_annotation(names: &Names) -> String {
    names.well_known("ingress.class")
}

/// A new ingress that names no class gets the default one: the newest, where there are several.
pub fn give_class(object: &mut Value, context: &Context<'_>) {
    let annotation = class_annotation(context.names);
    if read::has(object, CLASS) || read::has(object, &["metadata", "annotations", &annotation]) {
        return;
    }
    let mark = context.names.well_known_under("ingressclass", "is-default-class");
    let mut defaults = (context.list)("ingressclasses", None);
    defaults.retain(|class| class.text(&["metadata", "annotations", &mark]) == "true");
    let age_and_name = |class: &Value| {
        let created = class.text(&["metadata", "creationTimestamp"]).to_owned();
        (std::cmp::Reverse(created), class.text(&["metadata", "name"]).to_owned())
    };
    if let Some(class) = defaults.iter().min_by_key(|class| age_and_name(class)) {
        object.set(CLASS, class.text(&["metadata", "name"]));
    }
}

fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = validate(object, None);
    let key = class_annotation(context.names);
    if let Some(class) = read::opt_text(object, &["metadata", "annotations", &key])
        && read::has(object, CLASS)
    {
        let path = Path::ROOT.field("annotations");
        let why = "can not be set when the class field is also set";
        out.push(Problem::invalid_text(&path.field(&key), class, why));
    }
    out
}

fn validate(object: &Value, old: Option<&Value>) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    let backend_of_all = object.at(&["spec", "defaultBackend"]).filter(|it| !it.is_null());
    let rules = object.items(&["spec", "rules"]);
    if rules.is_empty() && backend_of_all.is_none() {
        let why = "either `defaultBackend` or `rules` must be specified";
        out.push(check::invalid_formatted(&spec, "[]networking.IngressRule(nil)", why));
    }
    if let Some(one) = backend_of_all {
        backend(one, &spec.field("defaultBackend"), &mut out);
    }
    let rules_path = spec.field("rules");
    // rules and names that older servers took may stay
    let wildcards_unchecked = old.is_some_and(has_wrong_wildcard_rule);
    for (at, one) in rules.iter().enumerate() {
        rule(one, wildcards_unchecked, &rules_path.index(at), &mut out);
    }
    tls(object, old.is_some_and(has_wrong_secret_name), &spec.field("tls"), &mut out);
    if let Some(class) = read::opt_text(object, CLASS) {
        check::subdomain(class, &spec.field("ingressClassName"), &mut out);
    }
    out
}

fn has_wrong_wildcard_rule(object: &Value) -> bool {
    let rules = object.items(&["spec", "rules"]).iter();
    rules.filter(|one| one.text(&["host"]).contains('*')).any(|one| {
        let mut problems = Problems::new();
        paths(one, &Path::ROOT, &mut problems);
        !problems.is_empty()
    })
}

fn has_wrong_secret_name(object: &Value) -> bool {
    let secrets = object.items(&["spec", "tls"]).iter().map(|one| one.text(&["secretName"]));
    let mut given = secrets.filter(|name| !name.is_empty());
    given.any(|name| !format::dns1123_subdomain(name).is_empty())
}

/// A host name, or one with a star in front.
fn host(text: &str, path: &Path<'_>, out: &mut Problems) {
    let wrong =
        if text.contains('*') { format::wildcard_subdomain(text) } else { format::dns1123_subdomain(text) };
    out.extend(wrong.iter().map(|why| Problem::invalid_text(path, text, why)));
}

fn tls(object: &Value, secrets_unchecked: bool, path: &Path<'_>, out: &mut Problems) {
    for (at, one) in object.items(&["spec", "tls"]).iter().enumerate() {
        let path = path.index(at);
        let hosts = path.field("hosts");
        for (at, name) in one.items(&["hosts"]).iter().map(read::text).enumerate() {
            host(name, &hosts.index(at), out);
        }
        let secret = one.text(&["secretName"]);
        if !secret.is_empty() && !secrets_unchecked {
            check::subdomain(secret, &path.field("secretName"), out);
        }
    }
}

fn rule(one: &Value, wildcards_unchecked: bool, path: &Path<'_>, out: &mut Problems) {
    let name = one.text(&["host"]);
    if !name.is_empty() {
        let path = path.field("host");
        if format::parse_ip(name).is_some() {
            out.push(Problem::invalid_text(&path, name, "must be a DNS name, not an IP address"));
        }
        host(name, &path, out);
    }
    if !(wildcards_unchecked && name.contains('*')) {
        paths(one, path, out);
    }
}

fn paths(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    if !read::has(rule, &["http"]) {
        return;
    }
    let path = path.field("http");
    let path = path.field("paths");
    let paths = rule.items(&["http", "paths"]);
    if paths.is_empty() {
        out.push(Problem::required(&path, ""));
    }
    for (at, one) in paths.iter().enumerate() {
        http_path(one, &path.index(at), out);
    }
}

fn http_path(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(kind) = read::opt_text(one, &["pathType"]) else {
        out.push(Problem::required(&path.field("pathType"), "pathType must be specified"));
        return;
    };
    let text = one.text(&["path"]);
    let mut refuse = |why: &str| out.push(Problem::invalid_text(&path.field("path"), text, why));
    match kind {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                refuse("must be an absolute path");
            }
            for part in NOT_IN_PATHS.iter().filter(|part| text.contains(**part)) {
                refuse(&format!("must not contain '{part}'"));
            }
            for end in NOT_AT_ENDS.iter().filter(|end| text.ends_with(**end)) {
                refuse(&format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                refuse("must be an absolute path");
            }
        }
        other => out.push(check::unsupported(&path.field("pathType"), other, PATH_TYPES)),
    }
    let none = Value::map();
    backend(one.at(&["backend"]).unwrap_or(&none), &path.field("backend"), out);
}

fn backend(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let part = |field: &str| one.at(&[field]).filter(|it| !it.is_null());
    match (part("service"), part("resource")) {
        (Some(_), Some(_)) => {
            out.push(Problem::invalid_text(path, "", "cannot set both resource and service backends"));
        }
        (None, None) => {
            out.push(Problem::invalid_text(path, "", "resource or service backend is required"));
        }
        (None, Some(resource)) => reference(resource, &path.field("resource"), out),
        (Some(service), None) => service_backend(service, path, out),
    }
}

fn service_backend(service: &Value, path: &Path<'_>, out: &mut Problems) {
    let of_service = path.field("service");
    let name = service.text(&["name"]);
    let name_path = of_service.field("name");
    if name.is_empty() {
        out.push(Problem::required(&name_path, ""));
    } else {
        let wrong = service::name(name, false);
        out.extend(wrong.iter().map(|why| Problem::invalid_text(&name_path, name, why)));
    }
    let port = of_service.field("port");
    match (service.text(&["port", "name"]), read::int(service, &["port", "number"])) {
        ("", 0) => out.push(Problem::required(path, "port name or number is required")),
        ("", number) => check::port_number(number, &port.field("number"), out),
        (name, 0) => check::port_name(name, &port.field("name"), out),
        _ => out.push(Problem::invalid_text(path, "", "cannot set both port name & port number")),
    }
}

/// An object of some kind.
fn reference(one: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(group) = read::opt_text(one, &["apiGroup"]) {
        check::subdomain(group, &path.field("apiGroup"), out);
    }
    for field in ["kind", "name"] {
        let path = path.field(field);
        match one.text(&[field]) {
            "" => out.push(Problem::required(&path, &format!("{field} is required"))),
            text => {
                let wrong = format::path_segment(text);
                out.extend(wrong.iter().map(|why| Problem::invalid_text(&path, text, why)));
            }
        }
    }
}

fn status(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    service::load_balancer(new, &mut out);
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let ports = if object.items(&["spec", "tls"]).is_empty() { "80" } else { "80, 443" };
    vec![
        metadata::name(object),
        read::opt_text(object, CLASS).unwrap_or("<none>").into(),
        hosts(object.items(&["spec", "rules"])).into(),
        balancers(object).join(",").into(),
        ports.into(),
        metadata::age(object, now),
    ]
}

/// The first host names; rules that come after them count as more, with a name or without.
fn hosts(rules: &[Value]) -> String {
    let names = rules.iter().enumerate().map(|(at, rule)| (at, rule.text(&["host"])));
    let formatted: Vec<_> = names.filter(|(_, name)| !name.is_empty()).take(DISPLAY_LIMIT).collect();
    let joined = formatted.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(",");
    match formatted.last() {
        None => "*".to_owned(),
        Some((at, _)) if formatted.len() == DISPLAY_LIMIT && at + 1 < rules.len() => {
            format!("{joined} + {} more...", rules.len() - DISPLAY_LIMIT)
        }
        Some(_) => joined,
    }
}

/// Classes of ingresses.
pub fn class_hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default_class(object)), ..DecodeHooks::default() },
        create: CreateHooks { validate: Some(|object, _| validate_class(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| validate_class(object)),
            validate: Some(update_class),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors::CHANGE_FIRST,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(class_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

const PARAMETERS: &[&str] = &["spec", "parameters"];
const MOST_CONTROLLER_BYTES: usize = 250;

fn default_class(object: &mut Value) {
    if let Some(parameters) = object.at_mut(PARAMETERS).filter(|it| !it.is_null())
        && !read::has(parameters, &["scope"])
    {
        parameters.set(&["scope"], "Cluster");
    }
}

fn validate_class(object: &Value) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    let path = spec.field("controller");
    let controller = object.text(&["spec", "controller"]);
    if controller.len() > MOST_CONTROLLER_BYTES {
        out.push(Problem::too_long(&path, MOST_CONTROLLER_BYTES));
    }
    domain_and_path(controller, &path, &mut out);
    if let Some(parameters) = object.at(PARAMETERS).filter(|it| !it.is_null()) {
        class_parameters(parameters, &spec.field("parameters"), &mut out);
    }
    out
}

/// A domain, a slash, and a path.
fn domain_and_path(text: &str, path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        out.push(Problem::required(path, ""));
        return;
    }
    let Some((domain, rest)) = text.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty()) else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        out.push(Problem::invalid_text(path, text, why));
        return;
    };
    check::subdomain(domain, path, out);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || br"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(allowed) {
        let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        out.push(Problem::invalid_text(path, rest, why));
    }
}

fn class_parameters(parameters: &Value, path: &Path<'_>, out: &mut Problems) {
    reference(parameters, path, out);
    let namespace = read::opt_text(parameters, &["namespace"]);
    let namespace_path = path.field("namespace");
    match read::opt_text(parameters, &["scope"]) {
        None => out.push(Problem::required(&path.field("scope"), "")),
        Some("Namespace") => match namespace {
            None => {
                out.push(Problem::required(&namespace_path, "`parameters.scope` is set to 'Namespace'"));
            }
            Some(name) => check::label(name, &namespace_path, out),
        },
        Some("Cluster") => {
            if namespace.is_some() {
                out.push(Problem::forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'"));
            }
        }
        Some(other) => {
            out.push(check::unsupported(&path.field("scope"), other, &["Cluster", "Namespace"]));
        }
    }
}

fn update_class(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let (is, was) = (new.text(&["spec", "controller"]), old.text(&["spec", "controller"]));
    if is != was {
        let spec = Path::ROOT.field("spec");
        out.push(Problem::invalid_text(&spec.field("controller"), is, "field is immutable"));
    }
    out
}

fn class_cells(object: &Value, now: Duration) -> Vec<Value> {
    let parameters = match object.at(PARAMETERS).filter(|it| !it.is_null()) {
        None => "<none>".to_owned(),
        Some(it) => {
            let group = read::opt_text(it, &["apiGroup"]).map(|group| format!(".{group}"));
            format!("{}{}/{}", it.text(&["kind"]), group.unwrap_or_default(), it.text(&["name"]))
        }
    };
    vec![
        metadata::name(object),
        object.text(&["spec", "controller"]).into(),
        parameters.into(),
        metadata::age(object, now),
    ]
}

/// From `v1beta1`, where a backend is the name of a service and a port.
pub(crate) fn convert_v1beta1(object: &mut Value, _: &Names) {
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    if let Some(mut backend) = spec.unset(&["backend"]).filter(|it| !it.is_null()) {
        convert_backend(&mut backend);
        spec.set(&["defaultBackend"], backend);
    }
    read::each_mut(spec, &["rules"], |rule| {
        read::each_mut(rule, &["http", "paths"], |path| {
            if let Some(backend) = path.at_mut(&["backend"]) {
                convert_backend(backend);
            }
        });
    });
}

fn convert_backend(backend: &mut Value) {
    let name = backend.unset(&["serviceName"]).unwrap_or_default();
    let port = backend.unset(&["servicePort"]).unwrap_or_default();
    let names_port = port.as_str().is_some() || port.as_int().is_some_and(|it| it != 0);
    if read::text(&name).is_empty() && !names_port {
        return;
    }
    backend.set(&["service", "name"], read::text(&name));
    match port {
        Value::String(port) => backend.set(&["service", "port", "name"], Value::String(port)),
        port => backend.set(&["service", "port", "number"], port.as_int().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn the_newest_default_class_is_assigned() {
        let list = |_: &str, _: Option<&str>| {
            let class = |name: &str, created: &str, default: &str| {
                json(&format!(
                    r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{created}",
                        "annotations":{{"ingressclass.kubernetes.io/is-default-class":"{default}"}}}}}}"#
                ))
            };
            vec![
                class("old", "2020-01-01T00:00:00Z", "true"),
                class("b", "2021-01-01T00:00:00Z", "true"),
                class("a", "2021-01-01T00:00:00Z", "true"),
                class("newest", "2022-01-01T00:00:00Z", "false"),
            ]
        };
        let context = Context { list: &list, ..context() };
        let check = |object: &str, expected: Option<&str>| {
            let mut object = json(object);
            give_class(&mut object, &context);
            assert_eq!(read::opt_text(&object, CLASS), expected);
        };
        check(r#"{"spec":{}}"#, Some("a"));
        check(r#"{"spec":{"ingressClassName":"mine"}}"#, Some("mine"));
        check(r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"x"}},"spec":{}}"#, None);
    }

    #[test]
    fn invalid_fields_of_older_objects_may_stay() {
        let old = json(
            r#"{"spec":{"rules":[{"host":"*.a.b","http":{"paths":[]}}],"tls":[{"secretName":"not valid"}]}}"#,
        );
        assert_eq!(problems(&validate(&old, None)).len(), 2);
        assert_eq!(problems(&validate(&old, Some(&old))), [""; 0]);
    }

    #[test]
    fn further_hosts_are_summarized_as_more() {
        let check = |rules: &str, expected: &str| assert_eq!(hosts(json(rules).as_list().unwrap()), expected);
        check(r#"[]"#, "*");
        check(r#"[{},{"host":"a"}]"#, "a");
        check(r#"[{"host":"a"},{"host":"b"},{"host":"c"}]"#, "a,b,c");
        check(r#"[{"host":"a"},{},{"host":"b"},{"host":"c"},{}]"#, "a,b,c + 2 more...");
    }
}
