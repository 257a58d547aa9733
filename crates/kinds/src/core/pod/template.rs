//! Pod templates of other kinds: `{metadata, spec}` like a pod, with fewer rules.
//!
//! Paths in messages begin at the template. Its labels and annotations are reported directly below it, without
//! `metadata`.

use super::{defaults, drop, gated, seccomp, spec, warn};
use crate::check::Problems;
use names::Names;
use rest::hooks::Context;
use schema::problem::Problem;
use schema::{Path, Value};

/// Defaults that depend on other fields; nothing where there is no template.
pub(crate) fn default(template: Option<&mut Value>) {
    if let Some(template) = template.filter(|it| !it.is_null()) {
        defaults::template(template);
    }
}

/// Removes fields of closed feature gates, unless the old object has them.
pub(crate) fn prepare(template: Option<&mut Value>, old: Option<&Value>, context: &Context<'_>) {
    if let Some(template) = template {
        drop::disabled(template, old, context);
        // a list that must be there and has nothing in it is none
        if let Some(containers) = template.at_mut(&["spec", "containers"])
            && containers.as_list().is_some_and(<[Value]>::is_empty)
        {
            *containers = Value::Null;
        }
    }
}

/// Whether containers may be privileged is the operator's choice.
pub(crate) fn validate(
    template: &Value,
    path: &Path<'_>,
    context: &Context<'_>,
    privileged: bool,
    out: &mut Problems,
) {
    metadata(template, path, context.names, out);
    let at = path.field("spec");
    let spec = template.at(&["spec"]).unwrap_or(&Value::Null);
    spec::validate(spec, "", &at, privileged, out);
    gated::validate(spec, &at, context, out);
    seccomp::agree(template, &at, context.names, out);
    if !spec.items(&["ephemeralContainers"]).is_empty() {
        const WHY: &str = "ephemeral containers not allowed in pod template";
        out.push(Problem::forbidden(&at.field("ephemeralContainers"), WHY));
    }
}

/// The rules of the labels and annotations of pods.
pub(crate) fn metadata(template: &Value, path: &Path<'_>, names: &Names, out: &mut Problems) {
    rest::metadata::check_labels(template.at(&["metadata", "labels"]), &path.field("labels"), out);
    let at = path.field("annotations");
    rest::metadata::check_annotations(template.at(&["metadata", "annotations"]), &at, out);
    spec::annotations(template, &at, names, out);
}

/// Warnings about a template. `path` is the path of the template.
pub(crate) fn warnings(template: Option<&Value>, path: &str) -> Vec<String> {
    let Some(template) = template.filter(|it| !it.is_null()) else { return Vec::new() };
    warn::about(template).iter().map(|text| format!("{path}.{text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn paths_begin_at_the_template() {
        let template = json(
            r#"{"metadata":{"labels":{"a b":"c"}},
                "spec":{"restartPolicy":"Always","dnsPolicy":"Default","nodeSelector":{"beta.kubernetes.io/os":"l"},
                        "ephemeralContainers":[]}}"#,
        );
        let mut out = Problems::new();
        validate(&template, &Path::ROOT.field("template"), &context(), false, &mut out);
        let found = problems(&out);
        assert!(found[0].starts_with("template.labels: Invalid value: \"a b\""), "{found:?}");
        assert_eq!(found[1..], ["template.spec.containers: Required value"]);
        let found = warnings(Some(&template), "spec.template");
        assert!(found[0].starts_with("spec.template.spec.nodeSelector[beta.kubernetes.io/os]"), "{found:?}");
    }

    #[test]
    fn templates_get_less_than_pods() {
        let mut template =
            json(r#"{"spec":{"containers":[{"image":"i:1","resources":{"limits":{"cpu":"1"}}}]}}"#);
        default(Some(&mut template));
        let expected = json(
            r#"{"spec":{"containers":[{"image":"i:1","imagePullPolicy":"IfNotPresent","resources":{"limits":{"cpu":"1"}}}]}}"#,
        );
        assert_eq!(template, expected);
    }
}
