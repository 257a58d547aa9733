//! CustomResourceDefinitions: kinds that are added at run time.
//!
//! This module validates the definition as an object and keeps its stored versions. Problems have upstream's paths:
//! `spec.validation` is the schema that all versions share, `spec.versions[1].schema` appears only if they differ.
//!
//! A definition is [served](serve) as a [table](table) with [rules](rules) for each version, under its
//! [accepted names](naming).

mod compiled;
mod conversion;
mod defaults;
mod embedded;
mod expression_rules;
mod formats;
mod go_format;
mod list_keys;
pub mod naming;
mod openapi;
mod rule_costs;
mod rule_evaluation;
mod rules;
mod scale;
mod schema_parts;
pub mod serve;
mod spec;
mod structural;
mod table;
pub(crate) mod v1beta1;
mod value;

use crate::check::Problems;
use crate::{gates, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, RepeatedMetadataErrors,
    StorageHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks, apply_status,
};
use schema::problem::Problem;
use schema::{Path, Value};

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(default), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(|object, context| prepare(object, None, context)),
            validate: Some(create),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|object, old, context| prepare(object, Some(old), context)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        delete: DeleteHooks {
            begin: Some(begin_delete),
            begins_alone: true, // a deletion that has not begun begins with the deletion of all objects
            holds: Some(|object| !read::has(object, &["metadata", "deletionTimestamp"])),
            ..DeleteHooks::default()
        },
        // upstream stores definitions as JSON, which distinguishes an empty list from none
        storage: StorageHooks { keeps_empty_lists: true, ..StorageHooks::default() },
        subresources: Subresources { parts: STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static STATUS: &[SubresourceHooks] = &[SubresourceHooks {
    name: "status",
    apply: apply_status,
    validate: Some(|object, _, _| status(object)),
    unowned: &["spec", "metadata"],
    without_table: true,
    ..SubresourceHooks::STATUS
}];

fn default(object: &mut Value, _: &Names) {
    if object.items(&["status", "storedVersions"]).is_empty() {
        remember_storage(object);
    }
    // an empty webhook is removed
    if let Some(conversion) = object.at_mut(&["spec", "conversion"])
        && !read::has(conversion, &["webhook", "clientConfig"])
        && conversion.items(&["webhook", "conversionReviewVersions"]).is_empty()
    {
        conversion.unset(&["webhook"]);
    }
    let kind = object.text(&["spec", "names", "kind"]).to_owned();
    let Some(names) = object.at_mut(&["spec", "names"]) else { return };
    if kind.is_empty() {
        return;
    }
    if names.text(&["singular"]).is_empty() {
        names.set(&["singular"], kind.to_lowercase());
    }
    if names.text(&["listKind"]).is_empty() {
        names.set(&["listKind"], format!("{kind}List"));
    }
}

/// Removes validation rules if their feature gate is off, unless the definition had some before.
fn prepare(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    if !gates::EXPRESSIONS.is_open(context) && !old.is_some_and(expression_rules::in_use) {
        expression_rules::drop(object);
    }
    remember_storage(object);
}

/// Adds the storage version to the stored versions.
fn remember_storage(object: &mut Value) {
    let versions = object.items(&["spec", "versions"]);
    let Some(version) = versions.iter().find(|it| read::flag(it, &["storage"])) else { return };
    let name = Value::from(version.text(&["name"]));
    let mut stored = object.items(&["status", "storedVersions"]).to_vec();
    if !stored.contains(&name) {
        stored.push(name);
        object.set(&["status", "storedVersions"], stored);
    }
}

/// The finalizer that keeps a definition until all its objects are deleted.
pub fn finalizer(names: &Names) -> String {
    format!("customresourcecleanup.apiextensions.{}", names.api_domain)
}

/// Starts the deletion of all objects before the definition.
fn begin_delete(object: &mut Value, context: &Context<'_>) {
    let own = Value::from(finalizer(context.names));
    let mut finalizers = object.items(&["metadata", "finalizers"]).to_vec();
    if !finalizers.contains(&own) {
        finalizers.push(own);
        object.set(&["metadata", "finalizers"], finalizers);
    }
    let mut status = object.at(&["status"]).cloned().unwrap_or_else(Value::map);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let condition = ("Terminating", "True", "InstanceDeletionPending", message);
    naming::set_condition(&mut status, condition, &context.timestamp());
    object.set(&["status"], status);
}

fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let wanted = format!("{}.{}", object.text(&["spec", "names", "plural"]), object.text(&["spec", "group"]));
    for field in ["generateName", "name"] {
        let name = object.text(&["metadata", field]);
        if !name.is_empty() && name != wanted {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            out.push(Problem::invalid_text(&Path::ROOT.field("metadata").field(field), name, detail));
        }
    }
    spec::check(object, &mut out);
    finish(object, None, context, &mut out);
    out
}

fn update(object: &Value, old: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    spec::check(object, &mut out);
    spec::check_immutable(object, old, &mut out);
    finish(object, Some(old), context, &mut out);
    out
}

/// Checks that are common to creation and update, after the spec.
fn finish(object: &Value, old: Option<&Value>, context: &Context<'_>, out: &mut Problems) {
    out.extend(status(object));
    spec::stored_versions(object, out);
    spec::approval(object, old, context.names, out);
    let kept = old.is_some_and(|old| read::flag(old, &["spec", "preserveUnknownFields"]));
    if read::flag(object, &["spec", "preserveUnknownFields"]) && !kept {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        let path = Path::ROOT.field("spec");
        out.push(Problem::invalid(&path.field("preserveUnknownFields"), &Value::Bool(true), detail));
    }
}

fn status(object: &Value) -> Problems {
    let mut out = Problems::new();
    let nothing = Value::map();
    let path = Path::ROOT.field("status");
    let names = object.at(&["status", "acceptedNames"]).unwrap_or(&nothing);
    spec::names(names, &path.field("acceptedNames"), &mut out);
    out
}
