//! PodTemplates: a template for pods, kept for others to use.

use crate::check::Problems;
use crate::core::pod::{gated, template};
use crate::{Options, metadata, read, workload};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    UpdateHooks, WriteHooks,
};
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["template"];

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
            validate: Some(|new, old, context| {
                gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
            }),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            warn: Some(|new, old| workload::template_warnings(new, old, TEMPLATE)),
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let template = object.at(TEMPLATE).unwrap_or(&Value::Null);
    template::validate(template, &Path::ROOT.field("template"), context, PRIVILEGED, &mut out);
    out
}

fn cells(object: &Value, _: Duration) -> Vec<Value> {
    let [names, images] = workload::containers(object.at(TEMPLATE));
    let labels = workload::labels_cell(read::map(object, &["template", "metadata", "labels"]));
    vec![metadata::name(object), names, images, labels]
}
