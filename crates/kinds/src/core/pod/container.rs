//! Containers of a pod: regular, init and ephemeral ones, with their ports, environment and probes.

use super::field_refs::{field_ref, resource_field_ref};
use super::security;
use super::volume::{self, Volumes};
use crate::check::{self, Problems, TextSet};
use crate::{quantities, read};
use schema::problem::Problem;
use schema::{Path, Value};
use std::collections::HashSet;

/// The parts of the pod that checks of containers read.
pub(super) struct Pod<'p> {
    pub volumes: Volumes<'p>,
    pub allow_privileged: bool,
}

const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];

pub(super) fn regular(items: &[Value], pod: &Pod<'_>, path: &Path<'_>, out: &mut Problems) {
    if items.is_empty() {
        out.push(Problem::required(path, ""));
        return;
    }
    let mut names = TextSet::default();
    for (at, one) in items.iter().enumerate() {
        let path = path.index(at);
        common(one, pod, &path, out);
        let name = one.text(&["name"]);
        if !names.insert(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
        lifecycle(one, &path, out);
        for field in PROBES {
            if let Some(probe) = one.at(&[field]).filter(|it| !it.is_null()) {
                probe_of(probe, field, &path.field(field), out);
            }
        }
    }
    host_ports(items.iter().enumerate(), path, out);
}

pub(super) fn init(items: &[Value], regular: &[Value], pod: &Pod<'_>, path: &Path<'_>, out: &mut Problems) {
    let mut names: TextSet<'_> = regular.iter().map(|it| it.text(&["name"])).collect();
    for (at, one) in items.iter().enumerate() {
        let item = path.index(at);
        common(one, pod, &item, out);
        let name = one.text(&["name"]);
        if names.contains(name) {
            out.push(check::duplicate_text(&item.field("name"), name));
        } else if !name.is_empty() {
            names.insert(name);
        }
        // they run one after another, so each has the ports of the host for itself
        host_ports(std::iter::once((0, one)), path, out);
        for field in ["lifecycle"].iter().chain(PROBES) {
            if read::has(one, &[field]) {
                out.push(Problem::forbidden(&item.field(field), "may not be set for init containers"));
            }
        }
    }
}

/// Containers that are added to a running pod for debugging.
pub(super) fn ephemeral(
    items: &[Value],
    others: [&[Value]; 2],
    pod: &Pod<'_>,
    path: &Path<'_>,
    out: &mut Problems,
) {
    const REFUSED: &str = "cannot be set for an Ephemeral Container";
    const FIELDS: &[&str] =
        &["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];
    if items.is_empty() {
        return;
    }
    let targets: HashSet<&str> = others.into_iter().flatten().map(|it| it.text(&["name"])).collect();
    let mut names = targets.clone();
    for (at, one) in items.iter().enumerate() {
        let path = path.index(at);
        common(one, pod, &path, out);
        image_is_trimmed(one, &path, out);
        let name = one.text(&["name"]);
        if !names.insert(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
        let target = one.text(&["targetContainerName"]);
        if !target.is_empty() && !targets.contains(target) {
            out.push(check::not_found(&path.field("targetContainerName"), target));
        }
        for field in FIELDS {
            let given = match one.at(&[field]) {
                None | Some(Value::Null) => false,
                Some(Value::List(items)) => !items.is_empty(),
                Some(Value::Map(fields)) if *field == "resources" => !fields.is_empty(),
                Some(_) => true,
            };
            if given {
                out.push(Problem::forbidden(&path.field(field), REFUSED));
            }
        }
        let mounts = path.field("volumeMounts");
        for (at, mount) in one.items(&["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(&[field]).is_empty() {
                    out.push(Problem::forbidden(&mounts.index(at).field(field), REFUSED));
                }
            }
        }
    }
}

pub(super) fn image_is_trimmed(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let image = one.text(&["image"]);
    if image.trim() != image {
        out.push(Problem::invalid_text(
            &path.field("image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
}

/// Checks for all types of containers.
fn common(one: &Value, pod: &Pod<'_>, path: &Path<'_>, out: &mut Problems) {
    match one.text(&["name"]) {
        "" => out.push(Problem::required(&path.field("name"), "")),
        name => check::label(name, &path.field("name"), out),
    }
    check::required_field(one, "image", path, out);
    let policy = one.text(&["terminationMessagePolicy"]);
    check::one_of(policy, &["File", "FallbackToLogsOnError"], &path.field("terminationMessagePolicy"), out);
    ports(one.items(&["ports"]), &path.field("ports"), out);
    env(one.items(&["env"]), &path.field("env"), out);
    env_from(one.items(&["envFrom"]), &path.field("envFrom"), out);
    volume::mounts(one, &pod.volumes, &path.field("volumeMounts"), out);
    volume::devices(one, &pod.volumes, &path.field("volumeDevices"), out);
    let pull = one.text(&["imagePullPolicy"]);
    check::one_of(pull, &["Always", "IfNotPresent", "Never"], &path.field("imagePullPolicy"), out);
    let (limits, requests) =
        (read::map(one, &["resources", "limits"]), read::map(one, &["resources", "requests"]));
    quantities::requirements(limits, requests, &path.field("resources"), out);
    if let Some(context) = one.at(&["securityContext"]).filter(|it| !it.is_null()) {
        security::of_container(context, pod.allow_privileged, &path.field("securityContext"), out);
    }
}

fn ports(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    let mut names = TextSet::default();
    for (at, port) in items.iter().enumerate() {
        let path = path.index(at);
        let name = port.text(&["name"]);
        if !name.is_empty() {
            let before = out.len();
            check::port_name(name, &path.field("name"), out);
            if out.len() == before && !names.insert(name) {
                out.push(check::duplicate_text(&path.field("name"), name));
            }
        }
        match read::int(port, &["containerPort"]) {
            0 => out.push(Problem::required(&path.field("containerPort"), "")),
            number => check::port_number(number, &path.field("containerPort"), out),
        }
        match read::int(port, &["hostPort"]) {
            0 => {}
            number => check::port_number(number, &path.field("hostPort"), out),
        }
        check::one_of(port.text(&["protocol"]), &["SCTP", "TCP", "UDP"], &path.field("protocol"), out);
    }
}

/// No two containers of a pod can have the same port of the host.
fn host_ports<'v>(containers: impl Iterator<Item = (usize, &'v Value)>, path: &Path<'_>, out: &mut Problems) {
    let mut taken = HashSet::new();
    for (at, one) in containers {
        let path = path.index(at);
        let path = path.field("ports");
        for (at, port) in one.items(&["ports"]).iter().enumerate() {
            let number = read::int(port, &["hostPort"]);
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", port.text(&["protocol"]), port.text(&["hostIP"]));
            if taken.contains(&key) {
                out.push(check::duplicate_text(&path.index(at).field("hostPort"), &key));
            } else {
                taken.insert(key);
            }
        }
    }
}

fn env(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    for (at, variable) in items.iter().enumerate() {
        let path = path.index(at);
        match variable.text(&["name"]) {
            "" => out.push(Problem::required(&path.field("name"), "")),
            name => check::env_name(name, &path.field("name"), out),
        }
        if let Some(from) = variable.at(&["valueFrom"]).filter(|it| !it.is_null()) {
            value_from(from, !variable.text(&["value"]).is_empty(), &path.field("valueFrom"), out);
        }
    }
}

const TOO_MANY: &str = "may not have more than one field specified at a time";

fn value_from(from: &Value, has_value: bool, path: &Path<'_>, out: &mut Problems) {
    const ENV_FIELDS: &[&str] = &[
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    ];
    let mut sources = 0;
    let given = |field: &str| from.at(&[field]).filter(|it| !it.is_null());
    if let Some(reference) = given("fieldRef") {
        sources += 1;
        field_ref(reference, ENV_FIELDS, &path.field("fieldRef"), out);
    }
    if let Some(reference) = given("resourceFieldRef") {
        sources += 1;
        resource_field_ref(reference, &path.field("resourceFieldRef"), false, out);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = given(field) {
            sources += 1;
            let path = path.field(field);
            check::subdomain(reference.text(&["name"]), &path.field("name"), out);
            match reference.text(&["key"]) {
                "" => out.push(Problem::required(&path.field("key"), "")),
                key => check::config_key(key, &path.field("key"), out),
            }
        }
    }
    if sources == 0 {
        const WHY: &str =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
        out.push(Problem::invalid_text(path, "", WHY));
    }
    if has_value && sources != 0 {
        out.push(Problem::invalid_text(path, "", "may not be specified when `value` is not empty"));
    } else if sources > 1 {
        out.push(Problem::invalid_text(path, "", TOO_MANY));
    }
}

fn env_from(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    for (at, item) in items.iter().enumerate() {
        let index = path.index(at);
        let prefix = item.text(&["prefix"]);
        if !prefix.is_empty() {
            check::env_name(prefix, &index.field("prefix"), out);
        }
        let mut sources = 0;
        for field in ["configMapRef", "secretRef"] {
            if let Some(reference) = item.at(&[field]).filter(|it| !it.is_null()) {
                sources += 1;
                let path = index.field(field);
                match reference.text(&["name"]) {
                    "" => out.push(Problem::required(&path.field("name"), "")),
                    name => check::subdomain(name, &path.field("name"), out),
                }
            }
        }
        match sources {
            0 => out.push(Problem::invalid_text(
                path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => out.push(Problem::invalid_text(path, "", TOO_MANY)),
        }
    }
}

fn lifecycle(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("lifecycle");
    for field in ["postStart", "preStop"] {
        if let Some(handler) = one.at(&["lifecycle", field]).filter(|it| !it.is_null()) {
            handler_of(handler, &path.field(field), out);
        }
    }
}

fn probe_of(probe: &Value, kind: &str, path: &Path<'_>, out: &mut Problems) {
    handler_of(probe, path, out);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        check::not_negative(probe, field, path, out);
    }
    let grace = read::opt_int(probe, &["terminationGracePeriodSeconds"]);
    let grace_path = path.field("terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        out.push(check::invalid_int(&grace_path, seconds, "must be greater than 0"));
    }
    if kind == "readinessProbe" {
        // not being ready is no reason to stop, so there is nothing to wait for
        if let Some(seconds) = grace {
            out.push(check::invalid_int(&grace_path, seconds, "must not be set for readinessProbes"));
        }
    } else {
        let threshold = read::int(probe, &["successThreshold"]);
        if threshold != 1 {
            out.push(check::invalid_int(&path.field("successThreshold"), threshold, "must be 1"));
        }
    }
}

/// Checks that a probe or hook has exactly one action.
fn handler_of(handler: &Value, path: &Path<'_>, out: &mut Problems) {
    let mut has_source = false;
    for field in ["exec", "httpGet", "tcpSocket", "grpc"] {
        let Some(action) = handler.at(&[field]).filter(|it| !it.is_null()) else { continue };
        let path = path.field(field);
        if has_source {
            out.push(Problem::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        has_source = true;
        match field {
            "exec" if action.items(&["command"]).is_empty() => {
                out.push(Problem::required(&path.field("command"), ""));
            }
            "exec" => {}
            "httpGet" => http_get(action, &path, out),
            _ => check::port(action.at(&["port"]), &path.field("port"), out),
        }
    }
    if !has_source {
        out.push(Problem::required(path, "must specify a handler type"));
    }
}

fn http_get(action: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(action, "path", path, out);
    check::port(action.at(&["port"]), &path.field("port"), out);
    let scheme = action.text(&["scheme"]);
    if !["HTTP", "HTTPS"].contains(&scheme) {
        out.push(check::unsupported(&path.field("scheme"), scheme, &["HTTP", "HTTPS"]));
    }
    for header in action.items(&["httpHeaders"]) {
        check::header_name(header.text(&["name"]), &path.field("httpHeaders"), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    const BASE: &str =
        r#"{"name":"c","image":"i","terminationMessagePolicy":"File","imagePullPolicy":"Always"}"#;

    fn check(field: &'static str, value: &str, expected: &[&str]) {
        let mut one = json(BASE);
        one.set(&[field], json(value));
        let mut out = Problems::new();
        let pod = Pod { volumes: Volumes::new(), allow_privileged: false };
        regular(&[one], &pod, &Path::ROOT.field("c"), &mut out);
        assert_eq!(problems(&out), expected, "{field} {value}");
    }

    #[test]
    fn ports_are_named_once_and_numbered() {
        check("ports", r#"[{"name":"http","containerPort":80,"protocol":"TCP"}]"#, &[]);
        check(
            "ports",
            r#"[{"containerPort":80,"hostPort":1,"protocol":"TCP"},{"containerPort":70000,"hostPort":1,"protocol":"TCP"}]"#,
            &[
                "c[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                r#"c[0].ports[1].hostPort: Duplicate value: "TCP//1""#,
            ],
        );
    }

    #[test]
    fn variables_have_one_source() {
        let with = |from: &str| format!(r#"[{{"name":"A","valueFrom":{from}}}]"#);
        let field =
            |path: &str| with(&format!(r#"{{"fieldRef":{{"apiVersion":"v1","fieldPath":{path:?}}}}}"#));
        check("env", &field("metadata.name"), &[]);
        check("env", &field("metadata.labels['a']"), &[]);
        check(
            "env",
            &field("spec.restartPolicy"),
            &[concat!(
                r#"c[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.restartPolicy": supported values: "#,
                r#""metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "#,
                r#""status.hostIP", "status.podIP", "status.podIPs""#
            )],
        );
        check(
            "env",
            &field("spec.x['a']"),
            &[
                r#"c[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x['a']": error converting fieldPath: field label does not support subscript: spec.x['a']"#,
            ],
        );
        check(
            "env",
            &with(r#"{"resourceFieldRef":{"resource":"limits.cpu","divisor":"2"}}"#),
            &[
                r#"c[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            ],
        );
    }

    #[test]
    fn probes_do_one_thing() {
        check("livenessProbe", r#"{"exec":{"command":["a"]},"successThreshold":1}"#, &[]);
        check(
            "livenessProbe",
            r#"{"exec":{"command":["a"]},"grpc":{"port":1},"successThreshold":2}"#,
            &[
                "c[0].livenessProbe.grpc: Forbidden: may not specify more than 1 handler type",
                "c[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        );
        check(
            "readinessProbe",
            r#"{"httpGet":{"path":"/","port":"a-b","scheme":"FTP","httpHeaders":[{"name":"a b"}]}}"#,
            &[
                r#"c[0].readinessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS""#,
                r#"c[0].readinessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"#,
            ],
        );
    }
}
