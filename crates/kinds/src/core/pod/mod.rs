//! Pods: hooks of the kind, and of its subresources and actions.
//!
//! `defaults` and `admit` set fields, `drop` removes fields behind closed feature gates; `validate` checks a pod with
//! `spec`, `container`, `volume` and `security`; `update` has the rules of updates; `status` and `columns` have the
//! status and the rows.

pub mod admit;
pub(crate) mod columns;
mod container;
mod defaults;
mod drop;
mod eviction;
mod field_refs;
pub(crate) mod gated;
mod host_process;
mod image;
pub mod references;
mod seccomp;
mod security;
mod spec;
mod status;
pub(crate) mod template;
mod update;
mod validate;
mod volume;
pub(crate) mod volume_sources;
pub(crate) mod warn;

use crate::Options;
use crate::check::Problems;
use crate::read;
use apimachinery::qos::qos_class;
use rest::ApiError;
use rest::hooks::{
    ActionEffect, ActionHooks, BudgetedDelete, Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks,
    ReadHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};

pub fn hooks(options: Options) -> Hooks {
    // hooks are plain functions without state, so the option selects one of two sets
    if options.allow_privileged { with::<true>(&PRIVILEGED) } else { with::<false>(&UNPRIVILEGED) }
}

fn with<const PRIVILEGED: bool>(subresources: &'static [SubresourceHooks]) -> Hooks {
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| defaults::default(object)),
            ..DecodeHooks::default()
        },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(create::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| drop::disabled(next, Some(old), context)),
            validate: Some(update::validate::<PRIVILEGED>),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            warn: Some(warn::warn),
            unrecorded: &["ephemeralcontainers"],
            ..WriteHooks::default()
        },
        delete: DeleteHooks { grace: Some(grace), returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks {
            cells: Some(columns::cells),
            row_reads: columns::READS,
            row_conditions: Some(columns::row_conditions),
            ..ReadHooks::default()
        },
        subresources: Subresources { parts: subresources, actions: &ACTIONS, ..Subresources::default() },
        ..Hooks::default()
    }
}

/// Checks that a binding has a target.
pub fn check_binding(binding: &Value) -> Result<(), ApiError> {
    update::binding_target(binding).map(drop)
}

static ACTIONS: [ActionHooks; 2] = [
    ActionHooks {
        name: "binding",
        body: || crate::tables::type_named("api.core.v1", "Binding"),
        kind: "Binding",
        api_version: "v1",
        other_versions: &[],
        check: check_binding,
        effect: ActionEffect::Change(|pod, binding, context| {
            update::bind(pod, binding, &context.timestamp())
        }),
    },
    ActionHooks {
        name: "eviction",
        body: || crate::tables::type_named("api.policy.v1", "Eviction"),
        kind: "Eviction",
        api_version: "policy/v1",
        other_versions: &["policy/v1beta1"],
        check: |_| Ok(()),
        effect: ActionEffect::Delete(BudgetedDelete {
            options: "deleteOptions",
            decide: eviction::decide,
            mark: eviction::mark,
        }),
    },
];

static PRIVILEGED: [SubresourceHooks; 2] = subresources::<true>();
static UNPRIVILEGED: [SubresourceHooks; 2] = subresources::<false>();

const fn subresources<const PRIVILEGED: bool>() -> [SubresourceHooks; 2] {
    [
        SubresourceHooks {
            name: "status",
            apply: status::apply,
            validate: Some(status::validate),
            unowned: &["metadata.deletionTimestamp", "metadata.ownerReferences"],
            ignored_metadata: &["deletionTimestamp"],
            ..SubresourceHooks::STATUS
        },
        SubresourceHooks {
            name: "ephemeralcontainers",
            apply: update::apply_ephemeral,
            validate: Some(update::validate_ephemeral::<PRIVILEGED>),
            unowned: &["status"],
            ignored_metadata: &["deletionTimestamp", "deletionGracePeriodSeconds"],
            without_table: true,
            ..SubresourceHooks::STATUS
        },
    ]
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    object.unset(&["status"]);
    object.set(&["status", "phase"], "Pending");
    object.set(&["status", "qosClass"], qos_class(object));
    drop::disabled(object, None, context);
    await_gates(object);
    seccomp::fill_in(object, context.names);
}

/// Sets the condition of a pod with scheduling gates. Gates behind a closed feature gate are already removed.
fn await_gates(object: &mut Value) {
    if object.items(&["spec", "schedulingGates"]).is_empty() {
        return;
    }
    let mut condition = Value::map();
    condition.set(&["type"], "PodScheduled");
    condition.set(&["status"], "False");
    condition.set(&["lastProbeTime"], Value::Null);
    condition.set(&["lastTransitionTime"], Value::Null);
    condition.set(&["reason"], "SchedulingGated");
    condition.set(&["message"], "Scheduling is blocked due to non-empty scheduling gates");
    object.set(&["status", "conditions"], vec![condition]);
}

fn create<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = validate::whole::<PRIVILEGED>(object, context);
    if !object.items(&["spec", "ephemeralContainers"]).is_empty() {
        let path = Path::ROOT.field("spec");
        out.push(Problem::forbidden(&path.field("ephemeralContainers"), "cannot be set on create"));
    }
    let gated = !object.items(&["spec", "schedulingGates"]).is_empty();
    if gated && !object.text(&["spec", "nodeName"]).is_empty() {
        const WHY: &str = "cannot be set until all schedulingGates have been cleared";
        out.push(Problem::forbidden(&Path::ROOT.field("spec").field("nodeName"), WHY));
    }
    seccomp::agree(object, &Path::ROOT.field("spec"), context.names, &mut out);
    out
}

/// The grace period of a deletion. A pod that does not run needs none.
fn grace(object: &Value, requested: Option<i64>) -> i64 {
    let running = !object.text(&["spec", "nodeName"]).is_empty()
        && !matches!(object.text(&["status", "phase"]), "Succeeded" | "Failed");
    let wanted = requested.unwrap_or_else(|| read::int(object, &["spec", "terminationGracePeriodSeconds"]));
    match wanted {
        _ if !running => 0,
        // a negative period still gives the node one second
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn graces_depend_on_where_the_pod_is() {
        let check = |object: &str, requested: Option<i64>, expected: i64| {
            assert_eq!(grace(&json(object), requested), expected)
        };
        check(r#"{"spec":{"terminationGracePeriodSeconds":30}}"#, None, 0);
        check(r#"{"spec":{"terminationGracePeriodSeconds":30,"nodeName":"n"}}"#, None, 30);
        check(r#"{"spec":{"terminationGracePeriodSeconds":30,"nodeName":"n"}}"#, Some(5), 5);
        check(r#"{"spec":{"terminationGracePeriodSeconds":-7,"nodeName":"n"}}"#, None, 1);
        check(
            r#"{"spec":{"terminationGracePeriodSeconds":30,"nodeName":"n"},"status":{"phase":"Failed"}}"#,
            None,
            0,
        );
    }

    #[test]
    fn new_pods_are_pending() {
        let mut object =
            json(r#"{"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Running","podIP":"1.2.3.4"}}"#);
        prepare_create(&mut object, &context());
        assert_eq!(object.at(&["status"]), Some(&json(r#"{"phase":"Pending","qosClass":"BestEffort"}"#)));
    }

    #[test]
    fn a_pod_needs_containers() {
        let object = json(r#"{"spec":{"restartPolicy":"Always","dnsPolicy":"Default"}}"#);
        assert_eq!(problems(&create::<false>(&object, &context())), ["spec.containers: Required value"]);
    }
}
