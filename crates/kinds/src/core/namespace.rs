//! Namespaces: finalizers in the spec keep a deleted one until its content is gone.

use crate::check::{self, Problems};
use crate::{metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks, replace,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(name_label), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(create),
            ..CreateHooks::default()
        },
        update: UpdateHooks { prepare: Some(prepare_update), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State, MetadataRules::Change]),
            name_rule: Some(metadata::label_name),
            ..WriteHooks::default()
        },
        delete: DeleteHooks {
            begin: Some(begin_delete),
            holds: Some(holds),
            returns_object: true,
            waits_for_dependents: true,
            ..DeleteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[
    SubresourceHooks {
        name: "status",
        apply: apply_status,
        validate: Some(validate_status),
        ..SubresourceHooks::STATUS
    },
    SubresourceHooks {
        name: "finalize",
        apply: apply_finalize,
        validate: Some(validate_finalize),
        unowned: &["status"],
        without_table: true,
        ..SubresourceHooks::STATUS
    },
];

/// Selectors find a namespace by its name through this label, so it always tells the truth.
fn name_label(object: &mut Value, names: &Names) {
    let name = object.text(&["metadata", "name"]).to_owned();
    if !name.is_empty() {
        let metadata = object.make_map().entry("metadata").make_map();
        metadata.entry("labels").make_map().insert(names.well_known("metadata.name"), name);
    }
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    // a generated name was not known when defaults were filled in
    name_label(object, context.names);
    object.unset(&["status"]);
    object.set(&["status", "phase"], "Active");
    let own = context.names.namespace_finalizer();
    let mut finalizers = object.items(&["spec", "finalizers"]).to_vec();
    if !finalizers.iter().any(|it| it.as_str() == Some(own)) {
        finalizers.push(own.into());
        object.set(&["spec", "finalizers"], finalizers);
    }
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    replace(next, old, "spec");
    name_label(next, context.names);
}

fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    for finalizer in object.items(&["spec", "finalizers"]) {
        finalizer_name(read::text(finalizer), &path.field("finalizers"), context.names, &mut out);
    }
    out
}

fn finalizer_name(name: &str, path: &Path<'_>, names: &Names, out: &mut Problems) {
    check::qualified_name(name, path, out);
    if !name.contains('/') && ![names.namespace_finalizer(), "orphan", "foregroundDeletion"].contains(&name) {
        const WHY: &str = "name is neither a standard finalizer name nor is it fully qualified";
        out.push(Problem::invalid_text(path, name, WHY));
    }
}

fn apply_status(next: &mut Value, submitted: &Value, context: &Context<'_>) {
    replace(next, submitted, "status");
    replace(next, submitted, "metadata");
    name_label(next, context.names);
}

fn validate_status(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    let phase = new.text(&["status", "phase"]);
    let (expected, why) = match read::has(new, &["metadata", "deletionTimestamp"]) {
        false => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        true => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase == expected {
        return Problems::new();
    }
    Problems::from(Problem::invalid_text(&Path::ROOT.field("status").field("Phase"), phase, why))
}

fn apply_finalize(next: &mut Value, submitted: &Value, context: &Context<'_>) {
    replace(next, submitted, "spec");
    replace(next, submitted, "metadata");
    // the structure stays when its only field goes
    next.make_map().entry("spec").make_map();
    name_label(next, context.names);
}

fn validate_finalize(new: &Value, _: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let path = path.field("finalizers");
    for (at, finalizer) in new.items(&["spec", "finalizers"]).iter().enumerate() {
        finalizer_name(read::text(finalizer), &path.index(at), context.names, &mut out);
    }
    out
}

fn begin_delete(object: &mut Value, _: &Context<'_>) {
    object.set(&["status", "phase"], "Terminating");
}

/// A deleted namespace stays while finalizers remain.
fn holds(object: &Value) -> bool {
    !object.items(&["spec", "finalizers"]).is_empty()
}

/// Whether a cluster cannot do without this namespace.
pub fn is_kept(name: &str, names: &Names) -> bool {
    [names::DEFAULT_NAMESPACE, &names.system_namespace(), &names.public_namespace()].contains(&name)
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![metadata::name(object), object.text(&["status", "phase"]).into(), metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn new_namespaces_are_active_labelled_and_finalized() {
        let check = |object: &str, expected: &str| {
            let mut object = json(object);
            name_label(&mut object, &Names::kubernetes());
            prepare_create(&mut object, &context());
            assert_eq!(object, json(expected));
        };
        check(
            r#"{"metadata":{"name":"a"},"status":{"phase":"Terminating"}}"#,
            r#"{"metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"a"}},
                "spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}"#,
        );
        check(
            r#"{"metadata":{"name":"a"},"spec":{"finalizers":["x.y/z"]}}"#,
            r#"{"metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"a"}},
                "spec":{"finalizers":["x.y/z","kubernetes"]},"status":{"phase":"Active"}}"#,
        );
    }

    #[test]
    fn updates_leave_the_spec_alone() {
        let old = json(r#"{"metadata":{"name":"a"},"spec":{"finalizers":["kubernetes"]}}"#);
        let mut next = json(r#"{"metadata":{"name":"a"},"spec":{}}"#);
        prepare_update(&mut next, &old, &context());
        assert_eq!(next.at(&["spec"]), old.at(&["spec"]));
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let check = |object: &str, fine: bool| {
            let object = json(object);
            assert_eq!(validate_status(&object, &object, &context()).is_empty(), fine);
        };
        check(r#"{"status":{"phase":"Active"}}"#, true);
        check(r#"{"status":{"phase":"Terminating"}}"#, false);
        check(
            r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"status":{"phase":"Terminating"}}"#,
            true,
        );
    }

    #[test]
    fn finalizers_are_standard_or_qualified() {
        let found = validate_finalize(
            &json(r#"{"spec":{"finalizers":["kubernetes","noslash","a.b/c"]}}"#),
            &Value::Null,
            &context(),
        );
        let expected = r#"spec.finalizers[1]: Invalid value: "noslash": name is neither a standard finalizer name nor is it fully qualified"#;
        assert_eq!(problems(&found), [expected]);
    }

    #[test]
    fn deletion_waits_for_finalizers_and_spares_the_system() {
        let mut object = json(r#"{"metadata":{"name":"a"},"spec":{"finalizers":["kubernetes"]}}"#);
        begin_delete(&mut object, &context());
        assert!(holds(&object));
        assert_eq!(object.text(&["status", "phase"]), "Terminating");
        assert!(!is_kept("a", context().names) && is_kept("kube-system", context().names));
    }
}
