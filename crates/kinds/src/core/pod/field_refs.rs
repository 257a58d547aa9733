//! References to fields and resources of a pod, in variables and downward API volumes.

use crate::check::{self, Problems};
use crate::{quantities, read};
use schema::problem::Problem;
use schema::{Path, Value};

/// A field of the pod that a container gets to see; `allowed` are those without a subscript.
pub(super) fn field_ref(reference: &Value, allowed: &[&str], path: &Path<'_>, out: &mut Problems) {
    let (version, field) = (reference.text(&["apiVersion"]), reference.text(&["fieldPath"]));
    if version.is_empty() {
        out.push(Problem::required(&path.field("apiVersion"), ""));
        return;
    }
    let field_path = path.field("fieldPath");
    if field.is_empty() {
        out.push(Problem::required(&field_path, ""));
        return;
    }
    let subscripted =
        field.strip_suffix("']").and_then(|it| it.split_once("['")).filter(|(map, _)| !map.is_empty());
    let mut refuse = |why: String| {
        out.push(Problem::invalid_text(&field_path, field, &format!("error converting fieldPath: {why}")));
    };
    if version != "v1" {
        refuse(format!("unsupported pod version: {version}"));
        return;
    }
    match subscripted {
        Some(("metadata.annotations", key)) => check::qualified_name(&key.to_lowercase(), path, out),
        Some(("metadata.labels", key)) => check::qualified_name(key, path, out),
        Some(_) => refuse(format!("field label does not support subscript: {field}")),
        None => {
            const KNOWN: &[&str] = &[
                "metadata.annotations",
                "metadata.labels",
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.serviceAccountName",
                "spec.schedulerName",
                "status.phase",
                "status.hostIP",
                "status.podIP",
                "status.podIPs",
            ];
            // an old name of the field
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !KNOWN.contains(&field) {
                refuse(format!("field label not supported: {field}"));
            } else if !allowed.contains(&field) {
                out.push(check::unsupported(&field_path, field, allowed));
            }
        }
    }
}

/// The resources that a reference may name, apart from huge pages.
pub(super) const SHOWN_RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Whether a reference names huge pages.
pub(super) fn is_huge(resource: &str) -> bool {
    let amount = resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."));
    amount.is_some_and(|it| it.starts_with(quantities::HUGE_PAGES))
}

/// Checks a reference to a resource of a container.
pub(super) fn resource_field_ref(reference: &Value, path: &Path<'_>, in_volume: bool, out: &mut Problems) {
    let resource = reference.text(&["resource"]);
    let huge = is_huge(resource);
    if in_volume && reference.text(&["containerName"]).is_empty() {
        out.push(Problem::required(&path.field("containerName"), ""));
    } else if resource.is_empty() {
        out.push(Problem::required(&path.field("resource"), ""));
    } else if !SHOWN_RESOURCES.contains(&resource) && !huge {
        out.push(check::unsupported(&path.field("resource"), resource, SHOWN_RESOURCES));
    }
    let divisor = reference.at(&["divisor"]).unwrap_or(&Value::Null);
    if quantities::parse(divisor).is_zero() {
        return;
    }
    const BYTES: &[&str] =
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let (allowed, formatted, kind) = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => (&["1m", "1"][..], "1m and 1", "cpu"),
        "memory" => (BYTES, "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei", "memory"),
        "ephemeral-storage" => {
            (BYTES, "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei", "local ephemeral storage")
        }
        _ if huge => (BYTES, "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei", "hugepages"),
        _ => return,
    };
    if !allowed.contains(&read::text(divisor)) {
        let why = format!("only divisor's values {formatted} are supported with the {kind} resource");
        out.push(Problem::invalid_text(&path.field("divisor"), resource, &why));
    }
}
