//! VolumeAttachments: the attachment of a volume to a node. The spec is immutable.

use crate::check::{self, Problems};
use crate::core::pod::volume_sources::driver_name;
use crate::{core::persistentvolume, metadata, read};
use rest::hooks::{
    Context, CreateHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks, replace,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::time::Duration;

const MOST_BYTES: usize = 256 * 1024;
const MOST_OF_MESSAGE: usize = 1024;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(create), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| validate(object)),
            validate: Some(|new, old, _| change(new, old)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            // the API reports the problems of an attachment twice on an update
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::State,
                MetadataRules::OfKind,
            ]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    name: "status",
    apply,
    validate: Some(update_status),
    unowned: &["metadata"],
    ignored_metadata: &["deletionTimestamp"],
    repeated_metadata_errors: RepeatedMetadataErrors(&[]),
    ..SubresourceHooks::STATUS
}];

/// A status update changes the status, and of metadata the prefix of a generated name. The grace period is compared.
fn apply(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
    const GRACE_PERIOD: &[&str] = &["metadata", "deletionGracePeriodSeconds"];
    if let Some(seconds) = submitted.at(GRACE_PERIOD) {
        next.set(GRACE_PERIOD, seconds.clone());
    }
    const PREFIX: &[&str] = &["metadata", "generateName"];
    match submitted.at(PREFIX) {
        Some(prefix) => next.set(PREFIX, prefix.clone()),
        None => drop(next.unset(PREFIX)),
    }
}

fn create(object: &Value, _: &Context<'_>) -> Problems {
    let mut out = validate(object);
    let path = Path::ROOT.field("spec");
    driver_name(object.text(&["spec", "attacher"]), &path.field("attacher"), &mut out);
    if let Some(name) = read::opt_text(object, &["spec", "source", "persistentVolumeName"]) {
        let path = path.field("source");
        check::subdomain(name, &path.field("persistentVolumeName"), &mut out);
    }
    out
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    check::required(object.text(&["spec", "attacher"]), &path.field("attacher"), &mut out);
    source(object.at(&["spec", "source"]).unwrap_or(&Value::Null), &path.field("source"), &mut out);
    check::subdomain(object.text(&["spec", "nodeName"]), &path.field("nodeName"), &mut out);
    let path = Path::ROOT.field("status");
    let metadata_map = read::map(object, &["status", "attachmentMetadata"]);
    let metadata = path.field("attachmentMetadata");
    if metadata_map.contains("") {
        out.push(Problem::invalid_text(&metadata, "", "field can not be empty."));
    }
    if metadata_map.iter().map(|(key, value)| key.len() + read::text(value).len()).sum::<usize>() > MOST_BYTES
    {
        out.push(Problem::too_long(&metadata, MOST_BYTES));
    }
    for field in ["attachError", "detachError"] {
        if object.text(&["status", field, "message"]).len() > MOST_OF_MESSAGE {
            // the text names the other limit
            out.push(Problem::too_long(&path.field(field).field("message"), MOST_BYTES));
        }
    }
    out
}

fn source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = source.at(&["inlineVolumeSpec"]).filter(|it| !it.is_null());
    match (inline, read::opt_text(source, &["persistentVolumeName"])) {
        (None, None) => out.push(Problem::required(path, ONE)),
        (Some(_), Some(_)) => out.push(Problem::forbidden(path, ONE)),
        (None, Some("")) => {
            const WHY: &str = "must specify non empty persistentVolumeName";
            out.push(Problem::required(&path.field("persistentVolumeName"), WHY));
        }
        (None, Some(_)) => {}
        (Some(spec), None) => {
            persistentvolume::spec(
                spec,
                persistentvolume::Place::Inline,
                &path.field("inlineVolumeSpec"),
                out,
            );
        }
    }
}

fn update_status(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = validate(new);
    out.extend(validate(new));
    out.extend(change(new, old));
    out
}

fn change(new: &Value, old: &Value) -> Problems {
    let mut out = Problems::new();
    if new.at(&["spec"]) != old.at(&["spec"]) {
        let text = |field: &str| quoted(new.text(&["spec", field]));
        let there =
            |field: &str| if read::has(new, &["spec", "source", field]) { "0xc000000000" } else { "nil" };
        let formatted = format!(
            "storage.VolumeAttachmentSpec{{Attacher:{}, Source:storage.VolumeAttachmentSource{{\
             PersistentVolumeName:(*string)({}), InlineVolumeSpec:(*core.PersistentVolumeSpec)({})}}, NodeName:{}}}",
            text("attacher"),
            there("persistentVolumeName"),
            there("inlineVolumeSpec"),
            text("nodeName"),
        );
        out.push(check::invalid_formatted(&Path::ROOT.field("spec"), &formatted, "field is immutable"));
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![
        metadata::name(object),
        object.text(&["spec", "attacher"]).into(),
        object.text(&["spec", "source", "persistentVolumeName"]).into(),
        object.text(&["spec", "nodeName"]).into(),
        Value::Bool(read::flag(object, &["status", "attached"])),
        metadata::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn one_volume_on_one_node() {
        let check = |spec: &str, expected: &[&str]| {
            let mut object = Value::map();
            object.set(&["spec"], json(spec));
            assert_eq!(problems(&create(&object, &context())), expected, "{spec}");
        };
        check(r#"{"attacher":"a.b","source":{"persistentVolumeName":"v"},"nodeName":"n"}"#, &[]);
        check(
            r#"{"attacher":"a.b","source":{},"nodeName":"n"}"#,
            &[
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ],
        );
        check(
            r#"{"attacher":"a.b","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"nfs":{"server":"s","path":"/"}}},"nodeName":"n"}"#,
            &[
                "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
            ],
        );
    }
}
