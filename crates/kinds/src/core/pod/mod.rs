//! Pods: the largest kind, so its behaviour has a folder.
//!
//! `defaults` and `admit` fill in, `drop` takes away what this version has switched off, `spec`, `container`,
//! `volume` and `security` check, `update` says what may change, `status` and `columns` tell what is going on.

pub mod admit;
pub(crate) mod columns;
mod container;
mod defaults;
mod drop;
mod eviction;
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
mod volume;
pub(crate) mod volume_sources;
pub(crate) mod warn;

pub use status::quality;

use crate::Options;
use crate::check::Problems;
use crate::read;
use rest::ApiError;
use rest::hooks::{
    Act, ActionHooks, Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, ReadHooks, Removal,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};

pub fn hooks(options: Options) -> Hooks {
    // hooks are plain functions, so what they may depend on is chosen here
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

/// Whether a binding names a place at all.
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
        act: Act::Change(|pod, binding, context| update::bind(pod, binding, &context.timestamp())),
    },
    ActionHooks {
        name: "eviction",
        body: || crate::tables::type_named("api.policy.v1", "Eviction"),
        kind: "Eviction",
        api_version: "policy/v1",
        other_versions: &["policy/v1beta1"],
        check: |_| Ok(()),
        act: Act::Remove(Removal {
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
            keeps_deletion: true,
            ..SubresourceHooks::STATUS
        },
        SubresourceHooks {
            name: "ephemeralcontainers",
            apply: update::apply_ephemeral,
            validate: Some(update::validate_ephemeral::<PRIVILEGED>),
            unowned: &["status"],
            without_table: true,
            ..SubresourceHooks::STATUS
        },
    ]
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    object.unset(&["status"]);
    object.set(&["status", "phase"], "Pending");
    object.set(&["status", "qosClass"], status::quality(object));
    drop::disabled(object, None, context);
    await_gates(object);
    seccomp::fill_in(object, context.names);
}

/// A pod that schedulers must not look at yet says so from the start. Gates that are not switched on are gone by now.
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
    let mut out = whole::<PRIVILEGED>(object, context);
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

/// Everything that holds for a pod at any time.
fn whole<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
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

/// How long a pod gets to stop. One that runs nowhere, or no longer, needs no time.
fn grace(object: &Value, asked: Option<i64>) -> i64 {
    let running = !object.text(&["spec", "nodeName"]).is_empty()
        && !matches!(object.text(&["status", "phase"]), "Succeeded" | "Failed");
    let wanted = asked.unwrap_or_else(|| read::int(object, &["spec", "terminationGracePeriodSeconds"]));
    match wanted {
        _ if !running => 0,
        // a negative time is as good as none, but the node still gets to know
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, json, problems};

    #[test]
    fn graces_depend_on_where_the_pod_is() {
        let check = |object: &str, asked: Option<i64>, expected: i64| {
            assert_eq!(grace(&json(object), asked), expected)
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
