//! Admission policies and their bindings: checks of writes, written as expressions.
//!
//! The objects are checked for their form, and their expressions for being some. Nothing is enforced from here.

use crate::check::{self, Problems};
use crate::{admissionregistration::webhook, metadata, node_selection as scheduling, read};
use cel::{Declaration, Env};
use rest::hooks::{CreateHooks, Hooks, ReadHooks, UpdateHooks};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::collections::HashSet;
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| policy(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| policy(object)), ..UpdateHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

pub fn binding_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| binding(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| binding(object)), ..UpdateHooks::default() },
        read: ReadHooks { cells: Some(binding_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

fn policy(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let nothing = Value::map();
    let spec = object.at(&["spec"]).unwrap_or(&nothing);
    webhook::supported(spec, "failurePolicy", &["Fail", "Ignore"], &path, &mut out);
    if let Some(kind) = spec.at(&["paramKind"]) {
        param_kind(kind, &path.field("paramKind"), &mut out);
    }
    let at = path.field("matchConstraints");
    match spec.at(&["matchConstraints"]) {
        None => out.push(Problem::required(&at, "")),
        Some(matches) => {
            match_resources(matches, &at, &mut out);
            // an expression is type-checked against known kinds only
            if matches.items(&["resourceRules"]).is_empty() {
                out.push(Problem::required(&at.field("resourceRules"), ""));
            }
        }
    }
    let (validations, at) = (spec.items(&["validations"]), path.field("validations"));
    if validations.is_empty() {
        out.push(Problem::required(&at, ""));
    }
    let env = environment(spec.at(&["paramKind"]).is_some());
    for (nth, one) in validations.iter().enumerate() {
        validation(one, &env, &at.index(nth), &mut out);
    }
    out
}

/// The variables of expressions: the object and its old state, the request, and the parameters, if any.
pub fn environment(params: bool) -> Env {
    let texts =
        |fields: &[&'static str]| fields.iter().map(|it| (*it, Declaration::string())).collect::<Vec<_>>();
    let kind = || Declaration::object("kubernetes.GroupVersionKind", texts(&["group", "version", "kind"]));
    let resource =
        || Declaration::object("kubernetes.GroupVersionResource", texts(&["group", "version", "resource"]));
    let many = || Declaration::list(Declaration::string());
    let mut user = texts(&["username", "uid"]);
    user.extend([("groups", many()), ("extra", Declaration::map(many()))]);
    let mut request = texts(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    request.extend([
        ("kind", kind()),
        ("requestKind", kind()),
        ("resource", resource()),
        ("requestResource", resource()),
        ("userInfo", Declaration::object("kubernetes.UserInfo", user)),
        ("dryRun", Declaration::bool()),
        ("options", Declaration::any()),
    ]);
    let env = Env::new()
        .variable("object", Declaration::any())
        .variable("oldObject", Declaration::any())
        .variable("request", Declaration::object("kubernetes.AdmissionRequest", request));
    if params { env.variable("params", Declaration::any()) } else { env }
}

fn param_kind(kind: &Value, path: &Path<'_>, out: &mut Problems) {
    let (version, at) = (kind.text(&["apiVersion"]), path.field("apiVersion"));
    check::required(version, &at, out);
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        out.push(Problem::invalid_text(&at, version, &detail));
    } else if let Some((group, version)) = version.split_once('/') {
        check::subdomain(group, &at, out);
        let format_errors = format::dns1035_label(version);
        out.extend(format_errors.iter().map(|why| Problem::invalid_text(&at, version, why)));
    }
    let (name, at) = (kind.text(&["kind"]), path.field("kind"));
    check::required(name, &at, out);
    let format_errors = format::dns1035_label(&name.to_lowercase());
    if !name.is_empty() && !format_errors.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", format_errors.join(","));
        out.push(Problem::invalid_text(&at, name, &detail));
    }
}

fn match_resources(matches: &Value, path: &Path<'_>, out: &mut Problems) {
    for field in ["namespaceSelector", "objectSelector"] {
        scheduling::label_selector(matches.at(&[field]), &path.field(field), out);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let at = path.field(field);
        for (nth, rule) in matches.items(&[field]).iter().enumerate() {
            named_rule(rule, &at.index(nth), out);
        }
    }
    webhook::supported(matches, "matchPolicy", &["Equivalent", "Exact"], path, out);
}

fn named_rule(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    let at = path.field("resourceNames");
    let mut seen = HashSet::new();
    for (nth, name) in rule.items(&["resourceNames"]).iter().map(read::text).enumerate() {
        let format_errors = format::path_segment(name);
        out.extend(format_errors.iter().map(|why| Problem::invalid_text(&at.index(nth), name, why)));
        if !seen.insert(name) {
            out.push(check::duplicate_text(&at.index(nth), name));
        }
    }
    webhook::rule_with_operations(rule, path, out);
}

fn validation(one: &Value, env: &Env, path: &Path<'_>, out: &mut Problems) {
    let (expression, message) = (one.text(&["expression"]).trim(), one.text(&["message"]));
    let broken = |text: &str| text.contains(['\n', '\r']);
    let at = path.field("message");
    if expression.is_empty() {
        out.push(Problem::required(&path.field("expression"), "expression is not specified"));
    } else if let Err(why) = env.compile_rule(expression) {
        let text = one.text(&["expression"]);
        out.push(Problem::invalid_text(&path.field("expression"), text, &why.to_string()));
    }
    if !message.is_empty() && message.trim().is_empty() {
        out.push(Problem::invalid_text(&at, message, "message must be non-empty if specified"));
    } else if broken(message.trim()) {
        out.push(Problem::invalid_text(&at, message, "message must not contain line breaks"));
    } else if broken(expression) && message.trim().is_empty() {
        out.push(Problem::required(&at, "message must be specified if expression contains line breaks"));
    }
    webhook::supported(one, "reason", REASONS, path, out);
}

fn binding(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let nothing = Value::map();
    let spec = object.at(&["spec"]).unwrap_or(&nothing);
    let (policy, at) = (spec.text(&["policyName"]), path.field("policyName"));
    check::required(policy, &at, &mut out);
    if !policy.is_empty() {
        check::subdomain(policy, &at, &mut out);
    }
    if let Some(reference) = spec.at(&["paramRef"]) {
        param_ref(reference, &path.field("paramRef"), &mut out);
    }
    if let Some(matches) = spec.at(&["matchResources"]) {
        match_resources(matches, &path.field("matchResources"), &mut out);
    }
    out
}

fn param_ref(reference: &Value, path: &Path<'_>, out: &mut Problems) {
    let (name, at) = (reference.text(&["name"]), path.field("name"));
    check::required(name, &at, out);
    let format_errors = format::path_segment(name);
    out.extend(format_errors.iter().map(|why| Problem::invalid_text(&at, name, why)));
    let namespace = reference.text(&["namespace"]);
    if !namespace.is_empty() {
        check::label(namespace, &path.field("namespace"), out);
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let validations = object.items(&["spec", "validations"]).len() as i64;
    let kind = match object.at(&["spec", "paramKind"]) {
        Some(kind) => format!("{}/{}", kind.text(&["apiVersion"]), kind.text(&["kind"])),
        None => "<unset>".to_owned(),
    };
    vec![metadata::name(object), validations.into(), kind.into(), metadata::age(object, now)]
}

fn binding_cells(object: &Value, now: Duration) -> Vec<Value> {
    let policy = object.text(&["spec", "policyName"]);
    let reference = match object.at(&["spec", "paramRef"]) {
        Some(it) if it.text(&["namespace"]).is_empty() => it.text(&["name"]).to_owned(),
        Some(it) => format!("{}/{}", it.text(&["namespace"]), it.text(&["name"])),
        None => "<unset>".to_owned(),
    };
    vec![metadata::name(object), policy.into(), reference.into(), metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(problems: Problems) -> Vec<String> {
        problems.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    fn json(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).expect("JSON").value
    }

    #[test]
    fn a_policy_needs_match_constraints_and_validations() {
        let rule = r#"{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}"#;
        let good = json(&format!(
            r#"{{"spec":{{"matchConstraints":{{"resourceRules":[{rule}]}},"validations":[{{"expression":"true"}}]}}}}"#
        ));
        assert_eq!(lines(policy(&good)), Vec::<String>::new());
        assert_eq!(
            lines(policy(&Value::map())),
            ["spec.matchConstraints: Required value", "spec.validations: Required value"]
        );
        let mut named = good.clone();
        named.set(&["spec", "validations"], vec![json(r#"{"expression":"true\n&& true","reason":"Bogus"}"#)]);
        assert_eq!(
            lines(policy(&named)),
            [
                "spec.validations[0].message: Required value: message must be specified if expression contains line breaks",
                r#"spec.validations[0].reason: Unsupported value: "Bogus": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized""#,
            ]
        );
    }

    #[test]
    fn expressions_use_declared_variables_only() {
        let wrong =
            |text: &str, params: bool| environment(params).compile_rule(text).err().map(|it| it.to_string());
        for text in [
            "object.metadata.namespace == 'a' || oldObject == null",
            "request.namespace == 'a' && request.userInfo.groups.exists(it, it == 'b')",
            "request.kind.group == '' && request.resource.resource == 'pods' && !request.dryRun",
            "has(request.options.fieldManager)",
        ] {
            assert_eq!(wrong(text, false), None, "{text}");
        }
        assert_eq!(wrong("params.data.x == object.data.x", true), None);
        assert!(wrong("params.x == 1", false).unwrap().contains("undeclared reference to 'params'"));
        assert!(wrong("request.uid == ''", false).unwrap().contains("undefined field 'uid'"));
        assert_eq!(wrong("'a'", false).unwrap(), "cel expression must evaluate to a bool");
    }

    #[test]
    fn a_binding_names_a_policy() {
        assert_eq!(lines(binding(&Value::map())), ["spec.policyName: Required value"]);
        let object = json(r#"{"spec":{"policyName":"p","paramRef":{"name":"a/b"}}}"#);
        assert_eq!(
            lines(binding(&object)),
            [r#"spec.paramRef.name: Invalid value: "a/b": may not contain '/'"#]
        );
    }
}
