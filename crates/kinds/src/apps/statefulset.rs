//! StatefulSets: pods with stable names and volumes.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, Selector, TemplateRules};
use crate::{Options, gates, metadata, quantities, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use rest::view::NotFoundSubject;
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];
const ROLLING: &[&str] = &["spec", "updateStrategy", "rollingUpdate"];

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(|object, context| prepare(object, None, context)),
            validate: Some(validate::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(|next, old, context| prepare(next, Some(old), context)),
            validate_state: Some(state::<PRIVILEGED>),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
            ]),
            warn: Some(warn),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources {
            parts: &STATUS,
            views: crate::autoscaling::scale::views(NotFoundSubject::Object),
            ..Subresources::default()
        },
        ..Hooks::default()
    }
}

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks::status(Some(|new, old, _| status(new, old)))];

fn default(object: &mut Value) {
    template::default(object.at_mut(TEMPLATE));
    if object.text(&["spec", "updateStrategy", "type"]).is_empty() {
        object.set(&["spec", "updateStrategy", "type"], "RollingUpdate");
        if !read::has(object, ROLLING) {
            object.set(&["spec", "updateStrategy", "rollingUpdate"], Value::map());
        }
    }
    let rolling = object.text(&["spec", "updateStrategy", "type"]) == "RollingUpdate";
    if rolling && read::has(object, ROLLING) && !read::has(object, &[ROLLING, &["partition"]].concat()) {
        object.set(&["spec", "updateStrategy", "rollingUpdate", "partition"], 0);
    }
    read::each_mut(object, &["spec", "volumeClaimTemplates"], claim);
}

/// A claim template has `apiVersion` and `kind`.
fn claim(claim: &mut Value) {
    claim.set(&["kind"], "PersistentVolumeClaim");
    claim.set(&["apiVersion"], "v1");
    if !read::has(claim, &["spec", "volumeMode"]) {
        claim.set(&["spec", "volumeMode"], "Filesystem");
    }
    if claim.text(&["status", "phase"]).is_empty() {
        claim.set(&["status", "phase"], "Pending");
    }
    for list in ["limits", "requests"] {
        quantities::round(claim.at_mut(&["spec", "resources", list]));
    }
}

/// Removes fields of closed feature gates, unless the old object has them.
fn prepare(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    template::prepare(object.at_mut(TEMPLATE), old.and_then(|old| old.at(TEMPLATE)), context);
    const RETENTION: &[&str] = &["spec", "persistentVolumeClaimRetentionPolicy"];
    const GUARDED: &[gates::GatedField] = &[
        (gates::CLAIM_RETENTION, RETENTION),
        (gates::ORDINALS, &["spec", "ordinals"]),
        (gates::MAX_UNAVAILABLE, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"]),
    ];
    gates::drop_disabled(object, old, GUARDED, context);
    if gates::CLAIM_RETENTION.is_open(context) {
        for when in ["whenDeleted", "whenScaled"] {
            let path = [RETENTION[0], RETENTION[1], when];
            if object.text(&path).is_empty() {
                object.set(&path, "Retain");
            }
        }
    }
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    let policy_path = path.field("podManagementPolicy");
    match spec.text(&["podManagementPolicy"]) {
        "" => out.push(Problem::required(&policy_path, "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            out.push(Problem::invalid_text(&policy_path, other, "must be 'OrderedReady' or 'Parallel'"));
        }
    }
    strategy(spec, &path.field("updateStrategy"), &mut out);
    retention(spec, &path.field("persistentVolumeClaimRetentionPolicy"), &mut out);
    workload::not_negative(spec, &["replicas", "minReadySeconds"], &path, &mut out);
    if let Some(ordinals) = spec.at(&["ordinals"]) {
        check::not_negative(ordinals, "start", &path.field("ordinals"), &mut out);
    }
    let selector_path = path.field("selector");
    workload::some_selector(object, "statefulset", &selector_path, &mut out);
    let template_path = path.field("template");
    let template = spec.at(&["template"]).unwrap_or(&Value::Null);
    let selector = Selector::of(spec.at(&["selector"]));
    if selector.is_valid() {
        let labels = read::map(template, &["metadata", "labels"]);
        let matches = selector.is_empty() || selector.matches(labels);
        workload::selected(template, matches, &template_path, &mut out);
        // the rest of the template is checked when pods are made from it
        template::metadata(template, &template_path, context.names, &mut out);
    } else {
        out.push(check::invalid_formatted(&selector_path, &selector.go_text(), ""));
    }
    let kind = "StatefulSet";
    let rules = TemplateRules { context, privileged: PRIVILEGED, kind, many: false };
    rules.check_lasting(template, &template_path, &mut out);
    out
}

fn strategy(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let strategy = spec.at(&["updateStrategy"]).unwrap_or(&Value::Null);
    let rolling = strategy.at(&["rollingUpdate"]).filter(|it| !it.is_null());
    let rolling_path = path.field("rollingUpdate");
    match (strategy.text(&["type"]), rolling) {
        ("", _) => out.push(Problem::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let partition = read::int(rolling, &["partition"]);
            let formatted = format!(
                "apps.RollingUpdateStatefulSetStrategy{{Partition:{partition}, MaxUnavailable:(*intstr.IntOrString)(nil)}}"
            );
            const WHY: &str = "only allowed for updateStrategy 'RollingUpdate'";
            out.push(check::invalid_formatted(&rolling_path, &formatted, WHY));
        }
        ("RollingUpdate", Some(rolling)) => {
            check::not_negative(rolling, "partition", &rolling_path, out);
            if read::has(rolling, &["maxUnavailable"]) {
                workload::share(rolling, "maxUnavailable", &rolling_path, out);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let formatted = workload::format_strategy(
                strategy,
                "StatefulSetUpdateStrategy",
                "RollingUpdateStatefulSetStrategy",
            );
            out.push(check::invalid_formatted(path, &formatted, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
}

fn retention(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let policy = spec.at(&["persistentVolumeClaimRetentionPolicy"]).filter(|it| !it.is_null());
    let Some(policy) = policy else { return };
    for field in ["whenDeleted", "whenScaled"] {
        let given = policy.text(&[field]);
        if !matches!(given, "Retain" | "Delete") {
            out.push(check::unsupported(&path.field(field), given, &["Retain", "Delete"]));
        }
    }
}

fn state<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    const WHY: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                       'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    const CHANGEABLE: &[&str] = &[
        "replicas",
        "template",
        "updateStrategy",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "ordinals",
    ];
    let mut out = Problems::new();
    let fixed = |object: &Value| {
        let mut spec = object.at(&["spec"]).cloned().unwrap_or_default();
        for field in CHANGEABLE {
            spec.unset(&[field]);
        }
        spec
    };
    if fixed(new) != fixed(old) {
        out.push(Problem::forbidden(&Path::ROOT.field("spec"), WHY));
    }
    out
}

fn status(new: &Value, old: &Value) -> Problems {
    const COUNTS: &[&str] = &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    const BOUNDS: &[workload::CountBound] = &[
        ("readyReplicas", "replicas", "status.replicas"),
        ("currentReplicas", "replicas", "status.replicas"),
        ("updatedReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "status.readyReplicas"),
    ];
    let mut out = workload::counts(new, COUNTS, BOUNDS);
    workload::collisions(new, old, &mut out);
    out
}

fn warn(new: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = |object: &Value| read::int(object, &["metadata", "generation"]);
    let mut out = workload::template_warnings(new, old, TEMPLATE);
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return out;
    }
    for (at, claim) in new.items(&["spec", "volumeClaimTemplates"]).iter().enumerate() {
        let Some(storage) = claim.at(&["spec", "resources", "requests", "storage"]) else { continue };
        if !quantities::parse(storage).is_whole() {
            out.push(format!(
                "spec.volumeClaimTemplates[{at}].resources.requests[storage]: fractional byte value {:?} is invalid, must \
                 be an integer",
                read::text(storage)
            ));
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let ready = read::int(object, &["status", "readyReplicas"]);
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        format!("{ready}/{}", read::int(object, &["spec", "replicas"])).into(),
        metadata::age(object, now),
        names,
        images,
    ]
}

/// In `v1beta1` pods of an older template stay until they are deleted.
pub(crate) fn default_v1beta1(object: &mut Value, _: &Names) {
    workload::take_labels_of_template(object);
    if object.text(&["spec", "updateStrategy", "type"]).is_empty() {
        object.set(&["spec", "updateStrategy", "type"], "OnDelete");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn a_type_that_is_given_brings_no_parts() {
        let check = |strategy: &str, expected: &str| {
            let mut object = json(&format!(r#"{{"spec":{{"updateStrategy":{strategy}}}}}"#));
            default(&mut object);
            assert_eq!(object.at(&["spec", "updateStrategy"]), Some(&json(expected)));
        };
        check("{}", r#"{"type":"RollingUpdate","rollingUpdate":{"partition":0}}"#);
        check(r#"{"type":"RollingUpdate"}"#, r#"{"type":"RollingUpdate"}"#);
        check(r#"{"type":"OnDelete"}"#, r#"{"type":"OnDelete"}"#);
        check(
            r#"{"rollingUpdate":{"partition":2}}"#,
            r#"{"type":"RollingUpdate","rollingUpdate":{"partition":2}}"#,
        );
    }

    #[test]
    fn most_of_the_spec_stays() {
        let object = |service: &str, replicas: i64| {
            json(&format!(
                r#"{{"spec":{{"serviceName":{service:?},"replicas":{replicas},"podManagementPolicy":"Parallel",
                    "updateStrategy":{{"type":"OnDelete"}},"selector":{{"matchLabels":{{"a":"b"}}}},
                    "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"restartPolicy":"Always"}}}}}}}}"#
            ))
        };
        let check = |new: Value, expected: usize| {
            let (old, context) = (object("s", 1), context());
            let all = state::<false>(&new, &old, &context).and(update(&new, &old, &context));
            let found = problems(&all);
            assert_eq!(found.len(), expected, "{found:?}");
        };
        check(object("s", 3), 0);
        check(object("t", 1), 1);
    }
}
