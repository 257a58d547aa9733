//! The `scale` subresource: how many replicas a workload has, as one kind for all of them.

use crate::check;
use crate::workload::Selector;
use crate::{metadata, read, tables};
use rest::view::{NotFoundSubject, View};
use schema::problem::Problems;
use schema::table::{Group, Kind, Ref, Text};
use schema::{Path, Value};
use std::sync::Arc;
use std::time::Duration;

/// For kinds whose selector has expressions.
pub(crate) fn views(missing: NotFoundSubject) -> Vec<View> {
    with(missing, |object| Selector::of(object.at(&["spec", "selector"])).text())
}

/// For kinds whose selector is a map of labels.
pub(crate) fn views_by_labels() -> Vec<View> {
    with(NotFoundSubject::PartOfView, |object| {
        let mut selector = Value::map();
        selector.set(&["matchLabels"], read::map(object, &["spec", "selector"]).clone());
        Selector::of(Some(&selector)).text()
    })
}

fn with(missing: NotFoundSubject, selector: fn(&Value) -> String) -> Vec<View> {
    let path = vec!["spec".into(), "replicas".into()];
    view(path, missing, move |object| {
        let number = |part: &str| read::int(object, &[part, "replicas"]);
        scale_value(number("spec"), number("status"), &selector(object))
    })
}

/// For custom kinds: the path of the desired replicas, the scale of an object, and the error of one whose values have
/// other types. The validation of the object checks the numbers.
pub(crate) fn view_of(
    inside: Vec<Text>,
    show: impl Fn(&Value) -> Value + Send + Sync + 'static,
    mismatch: impl Fn(&Value) -> Option<String> + Send + Sync + 'static,
) -> Vec<View> {
    let declared_at = Some(Text::Owned(format!(".{}", inside.join("."))));
    let mismatch: Arc<dyn Fn(&Value) -> Option<String> + Send + Sync> = Arc::new(mismatch);
    let views = view(inside, NotFoundSubject::Object, show).into_iter();
    views
        .map(|view| View {
            kind: Ref::Shared(Arc::new(with_custom_columns(&view.kind))),
            declared_at: declared_at.clone(),
            mismatch: Some(mismatch.clone()),
            validate: |_| Problems::new(),
            cells: Some(custom_cells),
            ..view
        })
        .collect()
}

/// The scale of a custom kind: its columns have the formats of custom resources.
fn with_custom_columns(kind: &Kind) -> Kind {
    let mut kind = kind.clone();
    for column in kind.columns.to_mut() {
        match &*column.name {
            "Name" => column.format = "name".into(),
            "Age" => column.kind = "date".into(),
            _ => {}
        }
    }
    kind
}

fn view(
    inside: Vec<Text>,
    missing: NotFoundSubject,
    show: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> Vec<View> {
    let group = Group { stem: "autoscaling".into(), in_domain: false };
    let Some(kind) = tables::kind_named(&group, "v1", "Scale") else { return Vec::new() };
    vec![View {
        name: "scale".into(),
        kind: Ref::Static(kind),
        inside,
        outside: vec!["spec".into(), "replicas".into()],
        absent: Value::Int(0),
        show: Arc::new(show),
        validate,
        cells: Some(cells),
        missing,
        declared_at: None,
        mismatch: None,
    }]
}

/// A scale with these numbers.
pub(crate) fn scale_value(wanted: i64, there: i64, selector: &str) -> Value {
    let mut scale = Value::map();
    scale.set(&["spec"], Value::map());
    if wanted != 0 {
        scale.set(&["spec", "replicas"], wanted);
    }
    scale.set(&["status", "replicas"], there);
    if !selector.is_empty() {
        scale.set(&["status", "selector"], selector);
    }
    scale
}

fn validate(scale: &Value) -> Problems {
    let mut out = Problems::new();
    let spec = scale.at(&["spec"]).unwrap_or(&Value::Null);
    check::not_negative(spec, "replicas", &Path::ROOT.field("spec"), &mut out);
    out
}

fn cells(scale: &Value, now: Duration) -> Vec<Value> {
    let number = |part: &str| Value::from(read::int(scale, &[part, "replicas"]));
    vec![metadata::name(scale), number("spec"), number("status"), metadata::age(scale, now)]
}

/// As [`cells`], without the number that the scale leaves out.
fn custom_cells(scale: &Value, now: Duration) -> Vec<Value> {
    let mut cells = cells(scale, now);
    if let (Some(wanted), None) = (cells.get_mut(1), scale.at(&["spec", "replicas"])) {
        *wanted = Value::Null;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn the_scale_of_a_workload() {
        let view = views(NotFoundSubject::Part).pop().expect("the table has it");
        let object =
            json(r#"{"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}}},"status":{"replicas":2}}"#);
        let expected = json(r#"{"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}"#);
        assert_eq!((view.show)(&object), expected);
        let view = views_by_labels().pop().expect("the table has it");
        let object = json(r#"{"spec":{"selector":{"b":"c","a":"b"}}}"#);
        assert_eq!((view.show)(&object), json(r#"{"spec":{},"status":{"replicas":0,"selector":"a=b,b=c"}}"#));
    }
}
