//! Events: one kind that is served in two groups, with looser rules in the older one.
//!
//! Stored is the older form. The newer one has other names for the same fields, so that converting loses
//! nothing in either direction. Problems always use the older names.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::hooks::{
    Context, Conversion, CreateHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    StorageHooks, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Map, Path, Value};
use std::borrow::Cow;
use std::time::Duration;

/// Pairs of names, older and newer, of fields that hold the same.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
const LIFETIME_SECONDS: i64 = 3600;
const MOST_CHARACTERS: usize = 128;
const MOST_CHARACTERS_OF_MESSAGE: usize = 1024;

/// Events of the core group.
pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            validate: Some(|object, context| legacy_problems(object, context, true)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate: Some(|new, _, context| legacy_problems(new, context, true)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            name_rule: Some(metadata::path_name),
            repeated_metadata_errors: RepeatedMetadataErrors(&[]),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        delete: DeleteHooks { uncollected: true, ..DeleteHooks::default() },
        storage: StorageHooks { lifetime_seconds: Some(LIFETIME_SECONDS), ..StorageHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// Events of the group of their own.
pub fn own_group_hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            validate_first: Some(|object, context| legacy_problems(&as_core(object), context, false)),
            validate: Some(create),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate_state: Some(|new, _, context| legacy_problems(&as_core(new), context, false)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::OfKind, MetadataRules::Change]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { uncollected: true, ..DeleteHooks::default() },
        storage: StorageHooks {
            convert: Some(Conversion { to_stored, from_stored }),
            lifetime_seconds: Some(LIFETIME_SECONDS),
            ..StorageHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn to_stored(object: Value) -> Value {
    let mut object =
        renamed(object, |name| RENAMED.iter().find(|(_, new)| *new == name).map(|(old, _)| *old));
    // written out in the older form whatever they hold
    for field in ["reportingComponent", "reportingInstance"] {
        let value = object.make_map().entry(field);
        if value.is_null() {
            *value = "".into();
        }
    }
    object
}

fn from_stored(object: Value) -> Value {
    let mut object =
        renamed(object, |name| RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new));
    if let Some(fields) = object.as_map_mut() {
        fields.retain(|name, value| {
            !matches!(name, "reportingController" | "reportingInstance") || value.as_str() != Some("")
        });
    }
    object
}

fn renamed(object: Value, rename: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Map(fields) = object else { return object };
    let rename = |(name, value): (Cow<'static, str>, Value)| match rename(&name) {
        Some(other) => (Cow::Borrowed(other), value),
        None => (name, value),
    };
    Value::Map(fields.into_iter().map(rename).collect::<Map>())
}

/// The older form, whichever it comes in. Versions of the core group have no slash.
fn as_core(object: &Value) -> Cow<'_, Value> {
    if object.text(&["apiVersion"]).contains('/') {
        Cow::Owned(to_stored(object.clone()))
    } else {
        Cow::Borrowed(object)
    }
}

fn is_zero_time(object: &Value, path: &[&str]) -> bool {
    read::opt_text(object, path).is_none_or(str::is_empty)
}

/// Checks for both groups. Events of the new style have an `eventTime`.
fn legacy_problems(event: &Value, context: &Context<'_>, in_core: bool) -> Problems {
    let mut out = Problems::new();
    let (own, other) = (event.text(&["metadata", "namespace"]), event.text(&["involvedObject", "namespace"]));
    let old_style = is_zero_time(event, &["eventTime"]);
    let agrees = match (old_style, other.is_empty()) {
        (true, true) => own.is_empty() || own == names::DEFAULT_NAMESPACE,
        (true, false) => own == other,
        (false, true) => own == names::DEFAULT_NAMESPACE || own == context.names.system_namespace(),
        (false, false) => true,
    };
    if !agrees {
        let path = Path::ROOT.field("involvedObject");
        out.push(Problem::invalid_text(&path.field("namespace"), other, "does not match event.namespace"));
    }
    if old_style {
        return out;
    }
    let reporter = event.text(&["reportingComponent"]);
    let path = Path::ROOT.field(if in_core { "reportingComponent" } else { "reportingController" });
    check::required(reporter, &path, &mut out);
    check::qualified_name(reporter, &path, &mut out);
    for field in ["reportingInstance", "action", "reason"] {
        let path = Path::ROOT.field(field);
        check::required(event.text(&[field]), &path, &mut out);
        at_most(event.text(&[field]), MOST_CHARACTERS, &path, &mut out);
    }
    at_most(event.text(&["message"]), MOST_CHARACTERS_OF_MESSAGE, &Path::ROOT.field("message"), &mut out);
    out
}

fn at_most(text: &str, most: usize, path: &Path<'_>, out: &mut Problems) {
    if text.len() > most {
        out.push(Problem::invalid_text(path, "", &format!("can have at most {most} characters")));
    }
}

fn create(object: &Value, _: &Context<'_>) -> Problems {
    let event = as_core(object);
    let mut out = Problems::new();
    series(&event, &mut out);
    if is_zero_time(&event, &["eventTime"]) {
        out.push(Problem::required(&Path::ROOT.field("eventTime"), ""));
    }
    let kind = event.text(&["type"]);
    if !["Normal", "Warning"].contains(&kind) {
        out.push(Problem::invalid_text(&Path::ROOT.field("type"), "", &format!("has invalid value: {kind}")));
    }
    let mut unset = |field: &str, is_unset: bool| {
        if !is_unset {
            out.push(Problem::invalid_text(&Path::ROOT.field(field), "", "needs to be unset"));
        }
    };
    unset("firstTimestamp", is_zero_time(&event, &["firstTimestamp"]));
    unset("lastTimestamp", is_zero_time(&event, &["lastTimestamp"]));
    unset("count", read::int(&event, &["count"]) == 0);
    let source = |field| event.text(&["source", field]).is_empty();
    unset("source", source("component") && source("host"));
    out
}

fn series(event: &Value, out: &mut Problems) {
    let Some(series) = event.at(&["series"]).filter(|it| !it.is_null()) else { return };
    let path = Path::ROOT.field("series");
    if read::int(series, &["count"]) < 2 {
        out.push(Problem::invalid_text(&path.field("count"), "", "should be at least 2"));
    }
    if is_zero_time(series, &["lastObservedTime"]) {
        out.push(Problem::required(&path.field("lastObservedTime"), ""));
    }
}

/// Of an event only the series and the metadata change.
fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let (new, old) = (as_core(new), as_core(old));
    let mut out = Problems::new();
    if !read::same(new.at(&["series"]), old.at(&["series"])) {
        series(&new, &mut out);
    }
    // the API checks one of them twice, and reports it both times
    const KEPT: &[&str] = &[
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    for field in KEPT {
        let (is, was) = (new.at(&[field]), old.at(&[field]));
        if normal(is) != normal(was) {
            let name = if *field == "reportingComponent" { "reportingController" } else { field };
            out.push(changed(is, field, &Path::ROOT.field(name)));
        }
    }
    out
}

/// Absent, null and empty are the same.
fn normal(value: Option<&Value>) -> Option<&Value> {
    value.filter(|it| match it {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Int(number) => *number != 0,
        Value::Map(_) | Value::List(_) | Value::Json(_) | Value::Bool(_) | Value::Float(_) => true,
    })
}

fn changed(value: Option<&Value>, field: &str, path: &Path<'_>) -> Problem {
    const WHY: &str = "field is immutable";
    match normal(value) {
        Some(time) if matches!(field, "eventTime" | "firstTimestamp" | "lastTimestamp") => {
            check::invalid_formatted(path, &format_time(read::text(time)), WHY)
        }
        Some(value) => Problem::invalid(path, value, WHY),
        None => match field {
            "eventTime" | "firstTimestamp" | "lastTimestamp" => {
                check::invalid_formatted(path, "0001-01-01 00:00:00 +0000 UTC", WHY)
            }
            "related" => check::null(path, WHY),
            "count" => check::invalid_int(path, 0, WHY),
            _ => Problem::invalid_text(path, "", WHY),
        },
    }
}

/// A canonical time as messages show it: `2020-01-02 03:04:05.1 +0000 UTC`.
fn format_time(text: &str) -> String {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let time = time.trim_end_matches('Z');
    let time = if time.contains('.') { time.trim_end_matches('0').trim_end_matches('.') } else { time };
    format!("{date} {time} +0000 UTC")
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let event = as_core(object);
    let age = |path: &[&str]| metadata::since(event.text(path), now);
    let first_known = !is_zero_time(&event, &["firstTimestamp"]);
    let first = if first_known { age(&["firstTimestamp"]) } else { age(&["eventTime"]) };
    let mut last =
        if is_zero_time(&event, &["lastTimestamp"]) { first.clone() } else { age(&["lastTimestamp"]) };
    let mut count = read::int(&event, &["count"]);
    if read::has(&event, &["series"]) {
        last = age(&["series", "lastObservedTime"]);
        count = read::int(&event, &["series", "count"]);
    } else if count == 0 {
        // events of the new style that came once have no count
        count = 1;
    }
    vec![
        last.into(),
        event.text(&["type"]).into(),
        event.text(&["reason"]).into(),
        object_cell(&event).into(),
        event.text(&["involvedObject", "fieldPath"]).into(),
        source_cell(&event).into(),
        event.text(&["message"]).trim().into(),
        first.into(),
        Value::Int(count),
        metadata::name(&event),
    ]
}

fn object_cell(event: &Value) -> String {
    let kind = event.text(&["involvedObject", "kind"]).to_lowercase();
    match event.text(&["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source_cell(event: &Value) -> String {
    let first = |a: &[&str], b: &[&str]| match event.text(a) {
        "" => event.text(b).to_owned(),
        text => text.to_owned(),
    };
    let component = first(&["source", "component"], &["reportingComponent"]);
    match &*first(&["source", "host"], &["reportingInstance"]) {
        "" => component,
        instance => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    const NEW: &str = r#"{"apiVersion":"events.k8s.io/v1","metadata":{"name":"e","namespace":"default"},
        "eventTime":"2020-01-02T03:04:05.000006Z","reportingController":"a.b/c","reportingInstance":"i",
        "action":"Binding","reason":"Scheduled","regarding":{"kind":"Pod","name":"p"},"note":"text","type":"Normal"}"#;

    #[test]
    fn converting_there_and_back_loses_nothing() {
        let new = json(NEW);
        let stored = to_stored(new.clone());
        assert_eq!(stored.text(&["involvedObject", "name"]), "p");
        assert_eq!(stored.text(&["message"]), "text");
        assert_eq!(stored.text(&["reportingComponent"]), "a.b/c");
        assert_eq!(from_stored(stored), new);
    }

    #[test]
    fn the_new_group_is_strict() {
        let problems_of = |object: &Value| {
            let mut out = legacy_problems(&as_core(object), &context(), false);
            out.extend(create(object, &context()));
            problems(&out)
        };
        assert_eq!(problems_of(&json(NEW)), [""; 0]);
        let check = |field: &'static str, value: Value, expected: &[&str]| {
            let mut object = json(NEW);
            object.set(&[field], value);
            assert_eq!(problems_of(&object), expected);
        };
        check("type", "Bogus".into(), &[r#"type: Invalid value: "": has invalid value: Bogus"#]);
        check("deprecatedCount", Value::Int(1), &[r#"count: Invalid value: "": needs to be unset"#]);
        check("action", "".into(), &["action: Required value"]);
        check(
            "series",
            json("{}"),
            &[
                r#"series.count: Invalid value: "": should be at least 2"#,
                "series.lastObservedTime: Required value",
            ],
        );
    }

    #[test]
    fn the_old_group_only_wants_the_namespaces_to_agree() {
        let check = |object: &str, fine: bool| {
            assert_eq!(legacy_problems(&json(object), &context(), true).is_empty(), fine, "{object}");
        };
        check(r#"{"metadata":{"namespace":"a"},"involvedObject":{"namespace":"a"}}"#, true);
        check(r#"{"metadata":{"namespace":"a"},"involvedObject":{"namespace":"b"}}"#, false);
        check(r#"{"metadata":{"namespace":"a"},"involvedObject":{}}"#, false);
        check(r#"{"metadata":{"namespace":"default"},"involvedObject":{}}"#, true);
    }

    #[test]
    fn only_the_series_changes() {
        let old = json(NEW);
        let mut new = old.clone();
        new.set(&["series"], json(r#"{"count":2,"lastObservedTime":"2020-01-02T03:04:05.000006Z"}"#));
        assert!(update(&new, &old, &context()).is_empty());
        new.set(&["note"], "other");
        let expected = r#"message: Invalid value: "other": field is immutable"#;
        assert_eq!(problems(&update(&new, &old, &context())), [expected]);
    }

    #[test]
    fn cells_fall_back_to_older_fields() {
        let row = cells(&json(NEW), Duration::from_secs(1_577_934_245 + 60));
        let expected = ["60s", "Normal", "Scheduled", "pod/p", "", "a.b/c, i", "text", "60s"];
        assert_eq!(row[..8], expected.map(Value::from));
        assert_eq!(row[8..], [Value::Int(1), "e".into()]);
    }
}
