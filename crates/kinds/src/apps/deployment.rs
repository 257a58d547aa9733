//! Deployments: a number of pods, and the strategy of their replacement.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, Selector, TemplateRules};
use crate::{Options, metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks, apply_status,
};
use rest::view::NotFoundSubject;
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];

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
            changes_generation: Some(changes_generation),
            validate: Some(update::<PRIVILEGED>),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            warn: Some(|new, old| workload::template_warnings(new, old, TEMPLATE)),
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
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

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks {
    name: "status",
    apply: |next, submitted, context| {
        let labels = next.at(&["metadata", "labels"]).cloned();
        apply_status(next, submitted, context);
        match labels {
            Some(labels) => next.set(&["metadata", "labels"], labels),
            None => drop(next.unset(&["metadata", "labels"])),
        }
    },
    validate: Some(|new, old, _| status(new, old)),
    unowned: &["metadata.labels"],
    ..SubresourceHooks::STATUS
}];

fn default(object: &mut Value) {
    template::default(object.at_mut(TEMPLATE));
    if object.text(&["spec", "strategy", "type"]) == "RollingUpdate" {
        for field in ["maxUnavailable", "maxSurge"] {
            if !read::has(object, &["spec", "strategy", "rollingUpdate", field]) {
                object.set(&["spec", "strategy", "rollingUpdate", field], "25%");
            }
        }
    }
}

/// Annotations count too: the controller passes them on.
fn changes_generation(new: &Value, old: &Value) -> bool {
    [&["spec"][..], &["metadata", "annotations"]].iter().any(|path| !read::same(new.at(path), old.at(path)))
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    check::not_negative(spec, "replicas", &path, &mut out);
    let selector_path = path.field("selector");
    workload::some_selector(object, "deployment", &selector_path, &mut out);
    replicated::<PRIVILEGED>(object, context, &path, &mut out);
    strategy(spec, &path.field("strategy"), &mut out);
    workload::not_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], &path, &mut out);
    if let Some(seconds) = read::opt_int(spec, &["progressDeadlineSeconds"]) {
        check::not_negative(spec, "progressDeadlineSeconds", &path, &mut out);
        if seconds <= read::int(spec, &["minReadySeconds"]) {
            let path = path.field("progressDeadlineSeconds");
            out.push(check::invalid_int(&path, seconds, "must be greater than minReadySeconds"));
        }
    }
    out
}

/// Selector and template of a kind whose pods are all alike.
pub(crate) fn replicated<const PRIVILEGED: bool>(
    object: &Value,
    context: &Context<'_>,
    path: &Path<'_>,
    out: &mut Problems,
) {
    let selector = Selector::of(object.at(&["spec", "selector"]));
    if !selector.is_valid() {
        out.push(check::invalid_formatted(
            &path.field("selector"),
            &selector.go_text(),
            "invalid label selector",
        ));
        return;
    }
    let path = path.field("template");
    let template = object.at(TEMPLATE).unwrap_or(&Value::Null);
    let labels = read::map(template, &["metadata", "labels"]);
    workload::selected(template, selector.is_empty() || selector.matches(labels), &path, out);
    let many = read::int(object, &["spec", "replicas"]) > 1;
    let kind = "ReplicaSet";
    TemplateRules { context, privileged: PRIVILEGED, kind, many }.check(template, &path, out);
}

fn strategy(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let strategy = spec.at(&["strategy"]).unwrap_or(&Value::Null);
    let rolling = strategy.at(&["rollingUpdate"]).filter(|it| !it.is_null());
    let rolling_path = path.field("rollingUpdate");
    match (strategy.text(&["type"]), rolling) {
        ("Recreate", Some(_)) => {
            const WHY: &str = "may not be specified when strategy `type` is 'Recreate'";
            out.push(Problem::forbidden(&rolling_path, WHY));
        }
        ("Recreate", None) => {}
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &rolling_path, out),
        ("RollingUpdate", None) => {
            out.push(Problem::required(&rolling_path, "this should be defaulted and never be nil"));
        }
        _ => {
            let formatted =
                workload::format_strategy(strategy, "DeploymentStrategy", "RollingUpdateDeployment");
            out.push(check::unsupported_formatted(path, &formatted, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path<'_>, out: &mut Problems) {
    for field in ["maxUnavailable", "maxSurge"] {
        workload::share(rolling, field, path, out);
    }
    if ["maxUnavailable", "maxSurge"].iter().all(|field| workload::share_number(rolling, field) == 0) {
        let formatted = workload::format_share(rolling.at(&["maxUnavailable"]));
        const WHY: &str = "may not be 0 when `maxSurge` is 0";
        out.push(check::invalid_formatted(&path.field("maxUnavailable"), &formatted, WHY));
    }
    workload::at_most_all(rolling, "maxUnavailable", path, out);
}

fn update<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    let check = |context: &Context<'_>| validate::<PRIVILEGED>(new, context);
    let mut out = gated::keeping(old.at(TEMPLATE), context, check);
    let path = Path::ROOT.field("spec");
    workload::same_selector(new, old, &path.field("selector"), &mut out);
    out
}

fn status(new: &Value, old: &Value) -> Problems {
    const COUNTS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ];
    const BOUNDS: &[workload::CountBound] = &[
        ("updatedReplicas", "replicas", "status.replicas"),
        ("readyReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "readyReplicas"),
    ];
    let mut out = workload::counts(new, COUNTS, BOUNDS);
    workload::collisions(new, old, &mut out);
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let count = |field: &str| read::int(object, &["status", field]);
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        format!("{}/{}", count("readyReplicas"), read::int(object, &["spec", "replicas"])).into(),
        count("updatedReplicas").into(),
        count("availableReplicas").into(),
        metadata::age(object, now),
        names,
        images,
        Selector::of(object.at(&["spec", "selector"])).text().into(),
    ]
}

/// The annotation of `v1` for the rollback revision of older versions.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Defaults of older versions, set before the declared ones.
fn default_v1beta1(object: &mut Value, history: i64, deadline_seconds: i64) {
    workload::take_labels_of_template(object);
    for (field, number) in [("revisionHistoryLimit", history), ("progressDeadlineSeconds", deadline_seconds)]
    {
        if !read::has(object, &["spec", field]) {
            object.set(&["spec", field], number);
        }
    }
}

pub(crate) fn default_apps_v1beta1(object: &mut Value, _: &Names) {
    default_v1beta1(object, 2, 600);
}

/// The largest number means that there is no limit.
pub(crate) fn default_extensions_v1beta1(object: &mut Value, _: &Names) {
    default_v1beta1(object, i64::from(i32::MAX), i64::from(i32::MAX));
    let rolling = matches!(object.text(&["spec", "strategy", "type"]), "" | "RollingUpdate");
    if rolling || read::has(object, &["spec", "strategy", "rollingUpdate"]) {
        for field in ["maxUnavailable", "maxSurge"] {
            if !read::has(object, &["spec", "strategy", "rollingUpdate", field]) {
                object.set(&["spec", "strategy", "rollingUpdate", field], 1);
            }
        }
    }
}

/// To `v1`, where going back is no field.
pub(crate) fn convert_v1beta1(object: &mut Value, _: &Names) {
    let rollback = object.unset(&["spec", "rollbackTo"]).filter(|it| !it.is_null());
    if let Some(rollback) = rollback {
        let revision = read::int(&rollback, &["revision"]).to_string();
        object.set(&["metadata", "annotations", ROLLBACK_TO], revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn rolling_needs_room() {
        let check = |strategy: &str, expected: &[&str]| {
            let mut object = json(&format!(r#"{{"spec":{{"strategy":{strategy}}}}}"#));
            default(&mut object);
            let mut out = Problems::new();
            super::strategy(object.at(&["spec"]).unwrap(), &Path::ROOT.field("s"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"type":"RollingUpdate"}"#, &[]);
        check(
            r#"{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":"0%"}}"#,
            &[concat!(
                r#"s.rollingUpdate.maxUnavailable: Invalid value: intstr.IntOrString{Type:1, IntVal:0, StrVal:"0%"}: "#,
                "may not be 0 when `maxSurge` is 0"
            )],
        );
        check(
            r#"{"type":"Recreate","rollingUpdate":{}}"#,
            &["s.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
        );
    }

    #[test]
    fn selectors_stay() {
        let object =
            |label: &str| json(&format!(r#"{{"spec":{{"selector":{{"matchLabels":{{"a":{label:?}}}}}}}}}"#));
        let found = problems(&update::<false>(&object("x"), &object("y"), &context()));
        assert!(found.last().is_some_and(|it| it.ends_with(": field is immutable")), "{found:?}");
    }
}
