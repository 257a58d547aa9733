//! Jobs: pods that run to an end, a number of times.
//!
//! Unless its maker wants to do it, the server marks the pods of a job with the job's uid and selects them by it.

use crate::check::{self, Problems};
use crate::core::pod::{gated, template};
use crate::workload::{self, IMMUTABLE, Selector};
use crate::{
    Options, batch::podfailurepolicy as failurepolicy, gates, metadata, node_selection as scheduling, read,
};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::table::Format;
use schema::{Path, Value, time};
use std::collections::HashSet;
use std::time::Duration;

const TEMPLATE: &[&str] = &["spec", "template"];
const LABELS: &[&str] = &["spec", "template", "metadata", "labels"];
const TRACKING: &str = "job-tracking";
const BY_UID: &str = "controller-uid";
const BY_NAME: &str = "job-name";
const DELETE_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
                              propagationPolicy=Background to remove them or set propagationPolicy=Orphan to \
                              suppress this warning";
const MOST_INDEXED: i64 = 100_000;

pub fn hooks(options: Options) -> Hooks {
    if options.allow_privileged { with::<true>() } else { with::<false>() }
}

fn with<const PRIVILEGED: bool>() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare_create), // the labels that pods got from the server are the job's too, where it has none
            complete: Some(|object| workload::copy_if_empty(object, LABELS, &["metadata", "labels"])),
            validate: Some(validate::<PRIVILEGED>),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update), // and go on being so, although the writer of a status that leaves them out gives them up
            restore: Some(|next, _, _| workload::copy_if_empty(next, LABELS, &["metadata", "labels"])),
            validate_state: Some(state::<PRIVILEGED>),
            validate: Some(update::<PRIVILEGED>),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
            ]),
            warn: Some(|new, old| workload::template_warnings(new, old, TEMPLATE)),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { orphans_dependents: true, warning: DELETE_WARNING, ..DeleteHooks::default() },
        read: ReadHooks {
            unknown_label: Some(|label| format!("field label {} not supported for Job", quoted(label))),
            cells: Some(cells),
            ..ReadHooks::default()
        },
        subresources: Subresources { parts: &STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static STATUS: [SubresourceHooks; 1] = [SubresourceHooks::status(Some(|new, _, _| status(new)))];

fn default(object: &mut Value) {
    template::default(object.at_mut(TEMPLATE));
    let given = |object: &Value, field: &str| read::has(object, &["spec", field]);
    if !given(object, "parallelism") {
        if !given(object, "completions") {
            object.set(&["spec", "completions"], 1);
        }
        object.set(&["spec", "parallelism"], 1);
    }
    let others: [(&'static str, Value); 3] =
        [("backoffLimit", 6.into()), ("completionMode", "NonIndexed".into()), ("suspend", false.into())];
    for (field, value) in others {
        if !given(object, field) {
            object.set(&["spec", field], value);
        }
    }
    failurepolicy::default_conditions(object.at_mut(&["spec"]));
    failurepolicy::default_lists(object.at_mut(&["spec"]));
    workload::copy_if_empty(object, LABELS, &["metadata", "labels"]);
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    if !read::flag(object, &["spec", "manualSelector"]) {
        // labels that come from the template go on being the template's
        let shared = read::has(object, LABELS) && object.at(&["metadata", "labels"]) == object.at(LABELS);
        generate_selector(object);
        if let Some(labels) = object.at(LABELS).filter(|_| shared).cloned() {
            object.set(&["metadata", "labels"], labels);
        }
    }
    mark_as_tracked(object, true, context);
    failurepolicy::drop_disabled(object.at_mut(&["spec"]), None, context);
    template::prepare(object.at_mut(TEMPLATE), None, context);
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    let tracked = context.names.well_known_under("batch", TRACKING);
    mark_as_tracked(next, read::map(old, &["metadata", "annotations"]).contains(&tracked), context);
    failurepolicy::drop_disabled(next.at_mut(&["spec"]), old.at(&["spec"]), context);
    template::prepare(next.at_mut(TEMPLATE), old.at(TEMPLATE), context);
}

/// Marks the job for old controllers: every job is tracked with finalizers on its pods.
fn mark_as_tracked(object: &mut Value, tracked: bool, context: &Context<'_>) {
    let mark = context.names.well_known_under("batch", TRACKING);
    let metadata = object.make_map().entry("metadata").make_map();
    if tracked {
        metadata.entry("annotations").make_map().insert(mark, "");
    } else if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_map_mut) {
        annotations.remove(&mark);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Sets only absent fields; validation checks the others.
fn generate_selector(object: &mut Value) {
    let (name, uid) =
        (object.text(&["metadata", "name"]).to_owned(), object.text(&["metadata", "uid"]).to_owned());
    for (label, value) in [(BY_NAME, &name), (BY_UID, &uid)] {
        if !read::map(object, LABELS).contains(label) {
            object.set(&["spec", "template", "metadata", "labels", label], value.as_str());
        }
    }
    if !read::map(object, &["spec", "selector", "matchLabels"]).contains(BY_UID) {
        object.set(&["spec", "selector", "matchLabels", BY_UID], uid);
    }
}

fn validate<const PRIVILEGED: bool>(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    generated_selector(object, &mut out);
    let path = Path::ROOT.field("spec");
    whole_spec::<PRIVILEGED>(object, context, &path, &mut out);
    let completions = read::int(object, &["spec", "completions"]);
    if object.text(&["spec", "completionMode"]) == "Indexed" && completions > 0 {
        let name = object.text(&["metadata", "name"]);
        let host = format!("{name}-{}", completions - 1);
        if !check::is(Format::Dns1123Label, &host) {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            let path = Path::ROOT.field("metadata");
            out.push(Problem::invalid_text(&path.field("name"), name, &why));
        }
    }
    out
}

/// Checks that pods have the labels of the generated selector.
fn generated_selector(object: &Value, out: &mut Problems) {
    let selector = Selector::of(object.at(&["spec", "selector"]));
    if read::flag(object, &["spec", "manualSelector"]) || !selector.is_given() {
        return;
    }
    let (name, uid) = (object.text(&["metadata", "name"]), object.text(&["metadata", "uid"]));
    let path = Path::ROOT.field("spec");
    let labels_path = path.field("template");
    let labels_path = labels_path.field("metadata");
    let labels_path = labels_path.field("labels");
    let labels = read::map(object, LABELS);
    let mut expected = Value::map();
    for (label, value) in [(BY_UID, uid), (BY_NAME, name)] {
        expected.set(&[label], value);
        let why = format!("must be '{value}'");
        match labels.get(label).map(read::text) {
            None => out.push(Problem::required(&labels_path.key(label), &why)),
            Some(given) if given != value => {
                let formatted = workload::format_map(labels);
                out.push(check::invalid_formatted(&labels_path.key(label), &formatted, &why));
            }
            Some(_) => {}
        }
    }
    if selector.is_valid() && !selector.matches(read::map(&expected, &[])) {
        const WHY: &str = "`selector` not auto-generated";
        out.push(check::invalid_formatted(&path.field("selector"), &selector.go_text(), WHY));
    }
}

/// The spec with its selector.
fn whole_spec<const PRIVILEGED: bool>(
    object: &Value,
    context: &Context<'_>,
    path: &Path<'_>,
    out: &mut Problems,
) {
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    spec_alone::<PRIVILEGED>(spec, context, path, out);
    let value = spec.at(&["selector"]);
    let selector = Selector::of(value);
    if selector.is_given() {
        scheduling::label_selector(value, &path.field("selector"), out);
    } else {
        out.push(Problem::required(&path.field("selector"), ""));
    }
    if selector.is_valid() {
        let template = spec.at(&["template"]).unwrap_or(&Value::Null);
        let matches = selector.matches(read::map(template, &["metadata", "labels"]));
        workload::selected(template, matches, &path.field("template"), out);
    }
}

/// The spec of a job, also of one that is yet to be made.
pub(crate) fn spec_alone<const PRIVILEGED: bool>(
    spec: &Value,
    context: &Context<'_>,
    path: &Path<'_>,
    out: &mut Problems,
) {
    const NUMBERS: &[&str] =
        &["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    workload::not_negative(spec, NUMBERS, path, out);
    if let Some(mode) = read::opt_text(spec, &["completionMode"]) {
        completion_mode(spec, mode, path, out);
    }
    let failures = read::has(spec, &["podFailurePolicy"]);
    if failures {
        failurepolicy::validate(spec, &path.field("podFailurePolicy"), out);
    }
    let template_path = path.field("template");
    let template = spec.at(&["template"]).unwrap_or(&Value::Null);
    template::validate(template, &template_path, context, PRIVILEGED, out);
    let path = template_path.field("spec");
    let path = path.field("restartPolicy");
    match template.text(&["spec", "restartPolicy"]) {
        "" | "Always" => out.push(Problem::required(&path, "valid values: \"OnFailure\", \"Never\"")),
        policy @ "OnFailure" if failures => {
            const WHY: &str = "only \"Never\" is supported when podFailurePolicy is specified";
            out.push(Problem::invalid_text(&path, policy, WHY));
        }
        "OnFailure" | "Never" => {}
        other => out.push(check::unsupported(&path, other, &["OnFailure", "Never"])),
    }
}

fn completion_mode(spec: &Value, mode: &str, path: &Path<'_>, out: &mut Problems) {
    match mode {
        "NonIndexed" => {}
        "Indexed" => {
            if !read::has(spec, &["completions"]) {
                out.push(Problem::required(&path.field("completions"), "when completion mode is Indexed"));
            }
            let parallelism = read::int(spec, &["parallelism"]);
            if parallelism > MOST_INDEXED {
                let why =
                    format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
                out.push(check::invalid_int(&path.field("parallelism"), parallelism, &why));
            }
        }
        other => {
            out.push(check::unsupported(&path.field("completionMode"), other, &["NonIndexed", "Indexed"]));
        }
    }
}

fn state<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    gated::keeping(old.at(TEMPLATE), context, |context| validate::<PRIVILEGED>(new, context))
}

/// The API reports the problems of a spec again on an update.
fn update<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    let path = Path::ROOT.field("spec");
    let mut out = gated::keeping(old.at(TEMPLATE), context, |context| {
        let mut out = Problems::new();
        whole_spec::<PRIVILEGED>(new, context, &path, &mut out);
        out
    });
    immutable(new, old, "completions", &path, &mut out);
    workload::same_selector(new, old, &path.field("selector"), &mut out);
    let was = comparable_template(new, old, context);
    if new.at(TEMPLATE) != was.as_ref() {
        let is = new.at(TEMPLATE).cloned().unwrap_or_default();
        out.push(Problem::invalid(&path.field("template"), &is, IMMUTABLE));
    }
    immutable(new, old, "completionMode", &path, &mut out);
    immutable(new, old, "podFailurePolicy", &path, &mut out);
    out
}

fn immutable(new: &Value, old: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    let (is, was) = (new.at(&["spec", field]), old.at(&["spec", field]));
    if !read::same(is, was) {
        out.push(match is.filter(|it| !it.is_null()) {
            None => check::null(&path.field(field), IMMUTABLE),
            Some(is) => Problem::invalid(&path.field(field), is, IMMUTABLE),
        });
    }
}

/// The old template with the mutable fields of the new one: scheduling directives, before the first pod.
fn comparable_template(new: &Value, old: &Value, context: &Context<'_>) -> Option<Value> {
    let mut was = old.at(TEMPLATE)?.clone();
    let unstarted = read::flag(old, &["spec", "suspend"]) && !read::has(old, &["status", "startTime"]);
    let free = unstarted && gates::UNSTARTED.is_open(context);
    let Some(is) = new.at(TEMPLATE).filter(|_| free) else { return Some(was) };
    const FREE: &[&[&str]] = &[
        &["spec", "nodeSelector"],
        &["spec", "tolerations"],
        &["spec", "schedulingGates"],
        &["metadata", "annotations"],
        &["metadata", "labels"],
    ];
    for path in FREE {
        put(&mut was, path, is.at(path));
    }
    let others = |template: &Value| {
        ["podAffinity", "podAntiAffinity"].iter().any(|it| read::has(template, &["spec", "affinity", it]))
    };
    if read::has(is, &["spec", "affinity"]) {
        put(&mut was, &["spec", "affinity", "nodeAffinity"], is.at(&["spec", "affinity", "nodeAffinity"]));
    } else if read::has(&was, &["spec", "affinity"]) {
        was.unset(&["spec", "affinity", "nodeAffinity"]);
        if !others(&was) {
            was.unset(&["spec", "affinity"]);
        }
    }
    Some(was)
}

fn put(value: &mut Value, path: &[&'static str], other: Option<&Value>) {
    match other {
        Some(other) => value.set(path, other.clone()),
        None => drop(value.unset(path)),
    }
}

fn status(new: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let status = new.at(&["status"]).unwrap_or(&Value::Null);
    workload::not_negative(status, &["active", "succeeded", "failed", "ready"], &path, &mut out);
    let path = path.field("uncountedTerminatedPods");
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        let path = path.field(list);
        for (at, uid) in status.items(&["uncountedTerminatedPods", list]).iter().enumerate() {
            let path = path.index(at);
            if read::text(uid).is_empty() {
                out.push(Problem::invalid_text(&path, "", "must not be empty"));
            } else if !seen.insert(read::text(uid)) {
                out.push(Problem::duplicate(&path, uid));
            }
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let succeeded = read::int(object, &["status", "succeeded"]);
    let parallelism = read::int(object, &["spec", "parallelism"]);
    let completions = match read::opt_int(object, &["spec", "completions"]) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let at = |field: &str| time::to_unix(object.text(&["status", field]));
    let duration = at("startTime").map_or(String::new(), |start| {
        time::human_duration(at("completionTime").unwrap_or(now.as_secs() as i64) - start)
    });
    let [names, images] = workload::containers(object.at(TEMPLATE));
    vec![
        metadata::name(object),
        completions.into(),
        duration.into(),
        metadata::age(object, now),
        names,
        images,
        workload::selector_cell(object.at(&["spec", "selector"])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json};

    #[test]
    fn parallelism_and_completions_default_to_one() {
        let check = |spec: &str, completions: Option<i64>, parallelism: i64| {
            let mut object = json(&format!(r#"{{"spec":{spec}}}"#));
            default(&mut object);
            assert_eq!(read::opt_int(&object, &["spec", "completions"]), completions);
            assert_eq!(read::int(&object, &["spec", "parallelism"]), parallelism);
        };
        check("{}", Some(1), 1);
        check(r#"{"completions":3}"#, Some(3), 1);
        check(r#"{"parallelism":2}"#, None, 2);
    }

    #[test]
    fn pods_are_marked_with_the_job() {
        let mut object = json(r#"{"metadata":{"name":"j","uid":"u"},"spec":{"template":{}}}"#);
        prepare_create(&mut object, &context());
        let labels = json(r#"{"controller-uid":"u","job-name":"j"}"#);
        assert_eq!(object.at(LABELS), Some(&labels));
        assert_eq!(
            object.at(&["spec", "selector"]),
            Some(&json(r#"{"matchLabels":{"controller-uid":"u"}}"#))
        );
        let mut out = Problems::new();
        generated_selector(&object, &mut out);
        assert_eq!(out, Problems::new());
        object.set(&["metadata", "uid"], "other");
        generated_selector(&object, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn places_may_change_before_the_start() {
        let object = |suspend: bool, selector: &str, image: &str| {
            json(&format!(
                r#"{{"spec":{{"suspend":{suspend},"template":{{"spec":{{"nodeSelector":{{"n":{selector:?}}},"nodeName":{image:?}}}}}}}}}"#
            ))
        };
        let check = |new: Value, old: Value, same: bool| {
            assert_eq!(comparable_template(&new, &old, &context()).as_ref() == new.at(TEMPLATE), same);
        };
        check(object(true, "b", "i"), object(true, "a", "i"), true);
        check(object(true, "b", "j"), object(true, "a", "i"), false);
        check(object(false, "b", "i"), object(false, "a", "i"), false);
    }

    #[test]
    fn durations_are_for_people() {
        let row = |status: &str| {
            let object = json(&format!(r#"{{"spec":{{"parallelism":3}},"status":{status}}}"#));
            cells(&object, Duration::from_secs(1_600_000_100))
        };
        assert_eq!(row("{}")[1..3], ["0/1 of 3".into(), "".into()]);
        assert_eq!(row(r#"{"startTime":"2020-09-13T12:26:40Z"}"#)[2], "100s".into());
        let done = r#"{"startTime":"2020-09-13T12:26:40Z","completionTime":"2020-09-13T12:26:45Z"}"#;
        assert_eq!(row(done)[2], "5s".into());
    }
}
