//! DaemonSets: one pod on every node.
//!
//! An annotation counts the changes of the template. The server owns it: clients can set it on creation only.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, Selector, TemplateRules};
use crate::{Options, metadata, node_selection as scheduling, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| default(object)),
            conversion_error: Some(conversion_error),
        },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(validate::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            restore: Some(|next, old, _| set_template_generation(next, template_generation(old))),
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
        subresources: Subresources { parts: &STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks::status(Some(|new, old, _| status(new, old)))];

fn default(object: &mut Value) {
    template::default(object.at_mut(TEMPLATE));
    let rolling = object.text(&["spec", "updateStrategy", "type"]) == "RollingUpdate";
    if rolling || read::has(object, &["spec", "updateStrategy", "rollingUpdate"]) {
        for (field, number) in [("maxUnavailable", i64::from(rolling)), ("maxSurge", 0)] {
            if !read::has(object, &["spec", "updateStrategy", "rollingUpdate", field]) {
                object.set(&["spec", "updateStrategy", "rollingUpdate", field], number);
            }
        }
    }
    // the number is always set, so that the writer of the object owns it
    set_template_generation(object, template_generation(object));
}

/// The count of template changes is a number in the stored version.
fn conversion_error(object: &Value) -> Option<String> {
    let text = read::opt_text(object, &["metadata", "annotations", TEMPLATE_GENERATION])?;
    text.parse::<i64>().err().map(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let why = if whole { "value out of range" } else { "invalid syntax" };
        format!("strconv.ParseInt: parsing {}: {why}", quoted(text))
    })
}

fn template_generation(object: &Value) -> i64 {
    let text = read::opt_text(object, &["metadata", "annotations", TEMPLATE_GENERATION]);
    text.and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, number: i64) {
    object.set(&["metadata", "annotations", TEMPLATE_GENERATION], number.to_string());
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    template::prepare(object.at_mut(TEMPLATE), None, context);
    set_template_generation(object, template_generation(object).max(1));
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    template::prepare(next.at_mut(TEMPLATE), old.at(TEMPLATE), context);
    let changed = next.at(TEMPLATE) != old.at(TEMPLATE);
    if changed {
        set_template_generation(next, template_generation(old) + 1);
    }
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    let value = spec.at(&["selector"]);
    let selector = Selector::of(value);
    let selector_path = path.field("selector");
    scheduling::label_selector(value, &selector_path, &mut out);
    let template_path = path.field("template");
    let template = spec.at(&["template"]).unwrap_or(&Value::Null);
    if selector.is_valid() {
        let matches = selector.matches(read::map(template, &["metadata", "labels"]));
        workload::selected(template, matches, &template_path, &mut out);
    }
    if selector.is_empty() {
        const WHY: &str = "empty selector is invalid for daemonset";
        out.push(check::invalid_formatted(&selector_path, &selector.go_text(), WHY));
    }
    let kind = "DaemonSet";
    let rules = TemplateRules { context, privileged: PRIVILEGED, kind, many: true };
    rules.check(template, &template_path, &mut out);
    check::not_negative(spec, "minReadySeconds", &path, &mut out);
    strategy(spec, &path.field("updateStrategy"), &mut out);
    check::not_negative(spec, "revisionHistoryLimit", &path, &mut out);
    out
}

fn strategy(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let strategy = spec.at(&["updateStrategy"]).unwrap_or(&Value::Null);
    let rolling = strategy.at(&["rollingUpdate"]).filter(|it| !it.is_null());
    let rolling_path = path.field("rollingUpdate");
    match (strategy.text(&["type"]), rolling) {
        ("OnDelete", _) => {}
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &rolling_path, out),
        ("RollingUpdate", None) => out.push(Problem::required(&rolling_path, "")),
        _ => {
            let formatted =
                workload::format_strategy(strategy, "DaemonSetUpdateStrategy", "RollingUpdateDaemonSet");
            out.push(check::unsupported_formatted(path, &formatted, &["RollingUpdate", "OnDelete"]));
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path<'_>, out: &mut Problems) {
    const FIELDS: [&str; 2] = ["maxUnavailable", "maxSurge"];
    for field in FIELDS {
        workload::share(rolling, field, path, out);
    }
    for field in FIELDS {
        workload::at_most_all(rolling, field, path, out);
    }
    match FIELDS.map(|field| workload::share_number(rolling, field) != 0) {
        [true, true] => {
            let formatted = workload::format_share(rolling.at(&["maxSurge"]));
            const WHY: &str = "may not be set when maxUnavailable is non-zero";
            out.push(check::invalid_formatted(&path.field("maxSurge"), &formatted, WHY));
        }
        [false, false] => {
            out.push(Problem::required(&path.field("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
}

fn state<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    workload::same_selector(new, old, &Path::ROOT.field("spec").field("selector"), &mut out);
    out
}

fn status(new: &Value, old: &Value) -> Problems {
    const COUNTS: &[&str] = &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let status = new.at(&["status"]).unwrap_or(&Value::Null);
    workload::not_negative(status, COUNTS, &path, &mut out);
    workload::collisions(new, old, &mut out);
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let count = |field: &str| Value::from(read::int(object, &["status", field]));
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        workload::labels_cell(read::map(object, &["spec", "template", "spec", "nodeSelector"])),
        metadata::age(object, now),
        names,
        images,
        workload::selector_cell(object.at(&["spec", "selector"])),
    ]
}

pub(crate) fn default_v1beta1(object: &mut Value, _: &Names) {
    workload::take_labels_of_template(object);
}

/// To `v1`, where the number of the template is no field.
pub(crate) fn convert_v1beta1(object: &mut Value, _: &Names) {
    let number = object.unset(&["spec", "templateGeneration"]).and_then(|it| it.as_int());
    set_template_generation(object, number.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn changes_of_the_template_are_counted() {
        let mut object = json(r#"{"spec":{"template":{"spec":{"nodeName":"a"}}}}"#);
        default(&mut object);
        prepare_create(&mut object, &context());
        assert_eq!(template_generation(&object), 1);
        let mut same = object.clone();
        same.set(&["spec", "minReadySeconds"], 3);
        prepare_update(&mut same, &object, &context());
        assert_eq!(template_generation(&same), 1);
        let mut next = json(r#"{"spec":{"template":{"spec":{"nodeName":"b"}}}}"#);
        prepare_update(&mut next, &object, &context());
        assert_eq!(template_generation(&next), 2);
    }

    #[test]
    fn one_kind_of_room_is_needed() {
        let check = |rolling: &str, expected: &[&str]| {
            let mut out = Problems::new();
            rolling_update(&json(rolling), &Path::ROOT.field("r"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"maxUnavailable":1,"maxSurge":0}"#, &[]);
        check(
            r#"{"maxUnavailable":0,"maxSurge":"0%"}"#,
            &["r.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
        );
        check(
            r#"{"maxUnavailable":1,"maxSurge":1}"#,
            &[concat!(
                r#"r.maxSurge: Invalid value: intstr.IntOrString{Type:0, IntVal:1, StrVal:""}: "#,
                "may not be set when maxUnavailable is non-zero"
            )],
        );
    }
}
