//! ReplicationControllers: a number of pods that are all alike, selected by equality alone.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, TemplateRules};
use crate::{Options, apps::replicaset, read};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];
const LABELS: &[&str] = &["spec", "template", "metadata", "labels"];

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(|object, context| template::prepare(object.at_mut(TEMPLATE), None, context)),
            validate: Some(validate::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| {
                template::prepare(next.at_mut(TEMPLATE), old.at(TEMPLATE), context);
            }),
            // the writer of a status that leaves the labels out gives them up, but they come from the template again
            restore: Some(|next, _, _| workload::copy_if_empty(next, LABELS, &["metadata", "labels"])),
            validate_state: Some(state::<PRIVILEGED>),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
                MetadataRules::OfKind,
            ]),
            warn: Some(warn),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { orphans_dependents: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources {
            parts: &STATUS,
            views: crate::autoscaling::scale::views_by_labels(),
            ..Subresources::default()
        },
        ..Hooks::default()
    }
}

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks::status(Some(|new, _, _| replicaset::status(new)))];

fn default(object: &mut Value) {
    template::default(object.at_mut(TEMPLATE));
    workload::copy_if_empty(object, LABELS, &["spec", "selector"]);
    workload::copy_if_empty(object, LABELS, &["metadata", "labels"]);
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    check::not_negative(spec, "minReadySeconds", &path, &mut out);
    let selector = read::map(spec, &["selector"]);
    if selector.is_empty() {
        out.push(Problem::required(&path.field("selector"), ""));
    }
    check::not_negative(spec, "replicas", &path, &mut out);
    let path = path.field("template");
    let Some(template) = spec.at(&["template"]).filter(|it| !it.is_null()) else {
        out.push(Problem::required(&path, ""));
        return out;
    };
    let labels = read::map(template, &["metadata", "labels"]);
    let matches = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    workload::selected(template, matches, &path, &mut out);
    let many = read::int(spec, &["replicas"]) > 1;
    let kind = "ReplicationController";
    TemplateRules { context, privileged: PRIVILEGED, kind, many }.check(template, &path, &mut out);
    out
}

/// The API reports problems twice on an update.
fn state<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
}

/// New objects only, and as if the template stood by itself.
fn warn(new: &Value, old: Option<&Value>) -> Vec<String> {
    let template = new.at(TEMPLATE).filter(|_| old.is_none());
    template::warnings(template, "template")
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    replicaset::replicas_row(object, now, workload::labels_cell(read::map(object, &["spec", "selector"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn selector_and_labels_come_from_the_template() {
        let mut object = json(r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#);
        default(&mut object);
        assert_eq!(object.at(&["spec", "selector"]), Some(&json(r#"{"a":"b"}"#)));
        assert_eq!(object.at(&["metadata", "labels"]), Some(&json(r#"{"a":"b"}"#)));
        let mut object = json(
            r#"{"metadata":{"labels":{"x":"y"}},"spec":{"selector":{"c":"d"},"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
        );
        let before = object.clone();
        default(&mut object);
        assert_eq!(object, before);
    }
}
