//! Seccomp profiles in annotations, from before there were fields for them.
//!
//! A new pod gets the fields that its annotations mean. Where both are there they must say the same.

use crate::check::{self, Problems};
use crate::read;
use names::Names;
use schema::problem::Problem;
use schema::{Map, Path, Value};

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const FIELD: [&str; 2] = ["securityContext", "seccompProfile"];
const LOCAL: &str = "localhost/";

/// The annotation for all containers of a pod.
fn of_pod(names: &Names) -> String {
    names.well_known_under("seccomp.security.alpha", "pod")
}

/// The prefix of the annotation of a container, before its name.
fn of_container(names: &Names) -> String {
    names.well_known_under("container.seccomp.security.alpha", "")
}

/// Copies annotations into unset fields.
pub(super) fn fill_in(pod: &mut Value, names: &Names) {
    let annotations = read::map(pod, &["metadata", "annotations"]);
    let (whole, prefix) = (of_pod(names), of_container(names));
    // nearly no pod has them
    if !annotations.keys().any(|key| key == whole || key.starts_with(&prefix)) {
        return;
    }
    let annotations = annotations.clone();
    let fill = |of: &mut Value, annotation: &str| {
        let meant = annotations.get(annotation).and_then(Value::as_str).and_then(profile);
        if let Some(profile) = meant.filter(|_| !read::has(of, &FIELD)) {
            of.set(&FIELD, profile);
        }
    };
    if let Some(spec) = pod.at_mut(&["spec"]) {
        fill(spec, &whole);
    }
    for list in LISTS {
        read::each_mut(pod, &["spec", list], |container| {
            let annotation = format!("{prefix}{}", container.text(&["name"]));
            fill(container, &annotation);
        });
    }
}

/// The field that an annotation means.
fn profile(annotation: &str) -> Option<Value> {
    let mut profile = Value::map();
    match annotation {
        "unconfined" => profile.set(&["type"], "Unconfined"),
        "runtime/default" | "docker/default" => profile.set(&["type"], "RuntimeDefault"),
        local => {
            let file = local.strip_prefix(LOCAL).filter(|file| !file.is_empty())?;
            profile.set(&["type"], "Localhost");
            profile.set(&["localhostProfile"], file);
        }
    }
    Some(profile)
}

/// The annotations alone.
pub(super) fn annotations(annotations: &Map, path: &Path<'_>, names: &Names, out: &mut Problems) {
    let (whole, prefix) = (of_pod(names), of_container(names));
    let mut check = |key: &str, value: &Value| {
        let (text, path) = (read::text(value), path.entry(key));
        match text.strip_prefix(LOCAL) {
            Some(file) => check::descending_path(file, &path, out),
            None if matches!(text, "unconfined" | "runtime/default" | "docker/default") => {}
            None => out.push(Problem::invalid(&path, value, "must be a valid seccomp profile")),
        }
    };
    if let Some(value) = annotations.get(&whole) {
        check(&whole, value);
    }
    annotations.iter().filter(|(key, _)| key.starts_with(&prefix)).for_each(|(key, value)| check(key, value));
}

/// Annotations beside fields.
pub(super) fn agree(pod: &Value, spec: &Path<'_>, names: &Names, out: &mut Problems) {
    let annotations = read::map(pod, &["metadata", "annotations"]);
    let mut check = |of: &Value, annotation: &str, path: &Path<'_>| {
        let field = of.at(&FIELD).filter(|it| !it.is_null());
        let Some((field, said)) = field.zip(annotations.get(annotation).map(read::text)) else { return };
        let path = path.field(FIELD[0]);
        let path = path.field(FIELD[1]);
        let same_kind = match field.text(&["type"]) {
            "Unconfined" => said == "unconfined",
            "RuntimeDefault" => matches!(said, "runtime/default" | "docker/default"),
            "Localhost" => said.starts_with(LOCAL),
            _ => true,
        };
        let file = read::opt_text(field, &["localhostProfile"]);
        if !same_kind {
            const WHY: &str = "seccomp type in annotation and field must match";
            out.push(Problem::forbidden(&path.field("type"), WHY));
        } else if field.text(&["type"]) == "Localhost" && said.strip_prefix(LOCAL) != file {
            const WHY: &str = "seccomp profile in annotation and field must match";
            out.push(Problem::forbidden(&path.field("localhostProfile"), WHY));
        }
    };
    check(pod.at(&["spec"]).unwrap_or(&Value::Null), &of_pod(names), spec);
    let prefix = of_container(names);
    for list in LISTS {
        let path = spec.field(list);
        for (at, container) in pod.items(&["spec", list]).iter().enumerate() {
            check(container, &format!("{prefix}{}", container.text(&["name"])), &path.index(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn annotations_become_fields() {
        let names = Names::kubernetes();
        let mut pod = json(
            r#"{"metadata":{"annotations":{
                  "seccomp.security.alpha.kubernetes.io/pod":"docker/default",
                  "container.seccomp.security.alpha.kubernetes.io/a":"localhost/x/y",
                  "container.seccomp.security.alpha.kubernetes.io/b":"unconfined",
                  "container.seccomp.security.alpha.kubernetes.io/c":"localhost/"}},
                "spec":{"initContainers":[{"name":"a"}],
                        "containers":[{"name":"b","securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}},
                                      {"name":"c"}]}}"#,
        );
        fill_in(&mut pod, &names);
        let type_of = |of: &Value| of.at(&FIELD).map(|it| it.text(&["type"]).to_owned());
        assert_eq!(type_of(pod.at(&["spec"]).unwrap()).as_deref(), Some("RuntimeDefault"));
        let local = &pod.items(&["spec", "initContainers"])[0];
        assert_eq!(local.at(&FIELD), Some(&json(r#"{"type":"Localhost","localhostProfile":"x/y"}"#)));
        assert_eq!(type_of(&pod.items(&["spec", "containers"])[1]), None);
        let mut out = Problems::new();
        agree(&pod, &Path::ROOT.field("spec"), &names, &mut out);
        const WHY: &str = "Forbidden: seccomp type in annotation and field must match";
        assert_eq!(
            problems(&out),
            [format!("spec.containers[0].securityContext.seccompProfile.type: {WHY}")]
        );
    }
}
