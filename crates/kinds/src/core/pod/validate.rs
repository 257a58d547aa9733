//! Validation of a whole pod.

use super::{container, gated, spec};
use crate::check::Problems;
use crate::read;
use rest::hooks::Context;
use schema::problem::Problem;
use schema::{Path, Value};

/// Checks a pod, on creation and on update.
pub(super) fn whole<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let metadata = Path::ROOT.field("metadata");
    spec::annotations(object, &metadata.field("annotations"), context.names, &mut out);
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    spec::validate(spec, object.text(&["metadata", "name"]), &path, PRIVILEGED, &mut out);
    gated::validate(spec, &path, context, &mut out);
    if object.text(&["spec", "serviceAccountName"]).is_empty() {
        tokens_without_account(object, &path, &mut out);
    }
    for list in ["containers", "initContainers"] {
        let path = path.field(list);
        for (at, one) in object.items(&["spec", list]).iter().enumerate() {
            container::image_is_trimmed(one, &path.index(at), &mut out);
        }
    }
    out
}

fn tokens_without_account(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let volumes = spec.field("volumes");
    for (at, volume) in object.items(&["spec", "volumes"]).iter().enumerate() {
        let path = volumes.index(at);
        let path = path.field("projected");
        let path = path.field("sources");
        for (at, source) in volume.items(&["projected", "sources"]).iter().enumerate() {
            if read::has(source, &["serviceAccountToken"]) {
                const WHY: &str = "must not be specified when serviceAccountName is not set";
                out.push(Problem::forbidden(&path.index(at).field("serviceAccountToken"), WHY));
            }
        }
    }
}
