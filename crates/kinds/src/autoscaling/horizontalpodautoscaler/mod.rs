//! HorizontalPodAutoscalers: two versions over one storage.
//!
//! The older version, which is stored, has a field for CPU utilization only. It stores all other fields of the newer
//! version in annotations (`annotations`), which the newer version does not have. Validation and cells use the newer
//! version; an object of the older one is converted first.

mod annotations;
mod columns;
mod convert;
mod metrics;
mod rules;

use crate::gates;
use convert::as_newer;
use metrics::{USUAL_UTILIZATION, usual_metric};
use names::Names;
use rest::hooks::{
    Context, Conversion, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    StorageHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks, apply_status,
};
use schema::Value;

/// The stored version.
pub fn older_hooks() -> Hooks {
    let base = shared();
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| convert::settle(object)), ..base.decode },
        create: CreateHooks {
            prepare: Some(|object, context| {
                annotations::drop(object, &annotations::OF_STATUS);
                drop_disabled(object, None, context);
            }),
            ..base.create
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| {
                annotations::keep(next, old, &annotations::OF_STATUS);
                drop_disabled(next, Some(old), context);
            }),
            ..base.update
        },
        read: ReadHooks { outline: Some(|object| annotations::drop(object, &annotations::ALL)), ..base.read },
        subresources: Subresources { parts: OLDER_SUBRESOURCES, ..base.subresources },
        ..base
    }
}

/// The version that is not stored.
pub fn newer_hooks() -> Hooks {
    let base = shared();
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| {
                annotations::drop(object, &annotations::ALL);
                default(object);
            }),
            ..base.decode
        },
        storage: StorageHooks {
            convert: Some(Conversion { to_stored: convert::older, from_stored: convert::newer }),
            ..base.storage
        },
        ..base
    }
}

fn shared() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(|object, context| drop_disabled(object, None, context)),
            validate: Some(|object, context| rules::validate(&as_newer(object), least(None, context))),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| drop_disabled(next, Some(old), context)),
            validate: Some(|object, old, context| {
                rules::validate(&as_newer(object), least(Some(old), context))
            }),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        read: ReadHooks {
            cells: Some(|object, now| columns::cells(&as_newer(object), now)),
            ..ReadHooks::default()
        },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static OLDER_SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    name: "status",
    apply: |next, submitted, context| {
        let old = next.clone();
        apply_status(next, submitted, context);
        annotations::keep(next, &old, &annotations::OF_SPEC);
    },
    validate: Some(|new, _, _| rules::status(new)),
    ..SubresourceHooks::STATUS
}];

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(Some(|new, _, _| rules::status(new)))];

/// The least number of replicas. An autoscaler that already allows zero may keep it.
fn least(old: Option<&Value>, context: &Context<'_>) -> i64 {
    let none = |old: &Value| crate::read::opt_int(old, &["spec", "minReplicas"]) == Some(0);
    i64::from(!gates::SCALE_TO_ZERO.is_open(context) && !old.is_some_and(none))
}

/// Removes container metrics if their feature gate is off, unless the old object has some.
fn drop_disabled(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    if gates::CONTAINER_METRICS.is_open(context) {
        return;
    }
    const FIELD: &str = "containerResource";
    let has = |one: &Value| crate::read::has(one, &[FIELD]);
    let in_newer = !next.text(&["apiVersion"]).ends_with("/v1");
    if old.is_some_and(|old| as_newer(old).items(&["spec", "metrics"]).iter().any(has)) {
        return;
    }
    let drop = |object: &mut Value| {
        crate::read::each_mut(object, &["spec", "metrics"], |one| drop(one.unset(&[FIELD])));
    };
    if in_newer {
        drop(next);
    } else if as_newer(next).items(&["spec", "metrics"]).iter().any(has) {
        let mut newer = convert::newer(next.clone());
        drop(&mut newer);
        let version = next.text(&["apiVersion"]).to_owned();
        *next = convert::older(newer);
        next.set(&["apiVersion"], version);
    }
}

fn default(object: &mut Value) {
    if object.items(&["spec", "metrics"]).is_empty() {
        object.set(&["spec", "metrics"], vec![usual_metric(USUAL_UTILIZATION)]);
    }
    let Some(behavior) = object.at_mut(&["spec", "behavior"]).filter(|it| !it.is_null()) else { return };
    let policy = |kind: &str, value: i64| {
        let mut policy = Value::map();
        policy.set(&["type"], kind);
        policy.set(&["value"], value);
        policy.set(&["periodSeconds"], 15);
        policy
    };
    let sides = [
        ("scaleUp", Some(0), vec![policy("Pods", 4), policy("Percent", 100)]),
        ("scaleDown", None, vec![policy("Percent", 100)]),
    ];
    for (side, window, policies) in sides {
        if behavior.at(&[side]).is_none_or(Value::is_null) {
            behavior.set(&[side], Value::map());
        }
        let mut fill = |field: &'static str, value: Value| {
            if behavior.at(&[side, field]).is_none_or(Value::is_null) {
                behavior.set(&[side, field], value);
            }
        };
        if let Some(seconds) = window {
            fill("stabilizationWindowSeconds", Value::Int(seconds));
        }
        fill("selectPolicy", "Max".into());
        fill("policies", policies.into());
    }
}

/// Converts from `v2beta1`, whose metrics have the form of the annotations.
pub(crate) fn convert_v2beta1(object: &mut Value, _: &Names) {
    let lists = [
        (["spec", "metrics"], metrics::Side::Target),
        (["status", "currentMetrics"], metrics::Side::Current),
    ];
    for (path, side) in lists {
        crate::read::each_mut(object, &path, |metric| *metric = metrics::newer(metric, side));
    }
    annotations::drop(object, &annotations::ALL);
    default(object);
    *object = convert::older(std::mem::take(object));
}

#[cfg(test)]
mod tests;
