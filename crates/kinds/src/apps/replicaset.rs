//! ReplicaSets: a number of identical pods.

use crate::check::Problems;
use crate::core::pod::{gated, template};
use crate::{Options, apps::deployment, metadata, read, workload};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use rest::view::NotFoundSubject;
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| template::default(object.at_mut(TEMPLATE))),
            ..DecodeHooks::default()
        },
        create: CreateHooks {
            prepare: Some(|object, context| template::prepare(object.at_mut(TEMPLATE), None, context)),
            validate: Some(validate::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| {
                template::prepare(next.at_mut(TEMPLATE), old.at(TEMPLATE), context);
            }),
            validate_state: Some(state::<PRIVILEGED>),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
                MetadataRules::OfKind,
            ]),
            warn: Some(|new, old| workload::template_warnings(new, old, TEMPLATE)),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources {
            parts: &STATUS,
            views: crate::autoscaling::scale::views(NotFoundSubject::Part),
            ..Subresources::default()
        },
        ..Hooks::default()
    }
}

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks::status(Some(|new, _, _| status(new)))];

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    workload::not_negative(spec, &["replicas", "minReadySeconds"], &path, &mut out);
    // clients know this kind's message under the other one's name
    workload::some_selector(object, "deployment", &path.field("selector"), &mut out);
    deployment::replicated::<PRIVILEGED>(object, context, &path, &mut out);
    out
}

fn state<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    workload::same_selector(new, old, &Path::ROOT.field("spec").field("selector"), &mut out);
    out
}

/// The counts of a kind whose pods are all alike.
pub(crate) fn status(new: &Value) -> Problems {
    const COUNTS: &[&str] =
        &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    const BOUNDS: &[workload::CountBound] = &[
        ("fullyLabeledReplicas", "replicas", "status.replicas"),
        ("readyReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "readyReplicas"),
    ];
    workload::counts(new, COUNTS, BOUNDS)
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    replicas_row(object, now, workload::selector_cell(object.at(&["spec", "selector"])))
}

/// The row of a kind whose pods are all alike.
pub(crate) fn replicas_row(object: &Value, now: Duration, selector: Value) -> Vec<Value> {
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        read::int(object, &["spec", "replicas"]).into(),
        read::int(object, &["status", "replicas"]).into(),
        read::int(object, &["status", "readyReplicas"]).into(),
        metadata::age(object, now),
        names,
        images,
        selector,
    ]
}

pub(crate) fn default_v1beta1(object: &mut Value, _: &Names) {
    workload::take_labels_of_template(object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn counts_fit_together() {
        let check = |status_json: &str, expected: &[&str]| {
            let object = json(&format!(r#"{{"status":{status_json}}}"#));
            assert_eq!(problems(&status(&object)), expected);
        };
        check(r#"{"replicas":2,"readyReplicas":2,"availableReplicas":1}"#, &[]);
        check(
            r#"{"replicas":1,"readyReplicas":0,"availableReplicas":2}"#,
            &[
                "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
            ],
        );
    }
}
