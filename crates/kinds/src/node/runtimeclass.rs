//! RuntimeClasses: the overhead of their pods, and the nodes that support them.

use crate::check::{self, Problems};
use crate::{metadata, node_selection as scheduling, quantities, read};
use names::Names;
use rest::hooks::{
    CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, Reason};
use schema::{Map, Path, Value};
use std::collections::HashSet;
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| validate(object)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
            ]),
            warn: Some(warn),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    // the table checks the form of a handler that is given, and that it never changes
    if object.text(&["handler"]).is_empty() {
        check::label("", &Path::ROOT.field("handler"), &mut out);
    }
    if let Some(overhead) = object.at(&["overhead"]) {
        let fixed = read::map(overhead, &["podFixed"]);
        quantities::requirements(fixed, &Map::new(), &Path::ROOT.field("overhead"), &mut out);
    }
    let path = Path::ROOT.field("scheduling");
    if let Some(selector) = object.at(&["scheduling", "nodeSelector"]) {
        check::labels(selector, &path.field("nodeSelector"), &mut out);
    }
    let path = path.field("tolerations");
    let tolerations = object.items(&["scheduling", "tolerations"]);
    scheduling::tolerations(tolerations, &path.field("tolerations"), &mut out);
    let mut seen = HashSet::new();
    for (at, one) in tolerations.iter().enumerate() {
        let formatted = scheduling::format_toleration(one);
        let message = format!("Duplicate value: {formatted}");
        if !seen.insert(formatted) {
            out.push(Problem { reason: Reason::Duplicate, field: path.index(at).to_string(), message });
        }
    }
    out
}

fn warn(new: &Value, _: Option<&Value>) -> Vec<String> {
    let names = names::Names::kubernetes();
    let selector = read::map(new, &["scheduling", "nodeSelector"]);
    let old_labels = selector.keys().filter_map(|key| crate::core::pod::warn::old_label(key, &names));
    old_labels.map(|why| format!("scheduling.nodeSelector: {why}")).collect()
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![metadata::name(object), object.text(&["handler"]).into(), metadata::age(object, now)]
}

/// From `v1alpha1`, where everything stands in a spec.
pub(crate) fn convert_v1alpha1(object: &mut Value, _: &Names) {
    let mut spec = object.unset(&["spec"]).unwrap_or_default();
    for (before, now) in
        [("runtimeHandler", "handler"), ("overhead", "overhead"), ("scheduling", "scheduling")]
    {
        if let Some(part) = spec.unset(&[before]) {
            object.set(&[now], part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn parts_are_checked() {
        let check =
            |object: &str, expected: &[&str]| assert_eq!(problems(&validate(&json(object))), expected);
        check(r#"{"handler":"kata","overhead":{"podFixed":{"cpu":"250m"}}}"#, &[]);
        check(
            r#"{"handler":"kata","overhead":{"podFixed":{"cpu":"-1"}}}"#,
            &[r#"overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#],
        );
        check(
            r#"{"handler":"kata","scheduling":{"tolerations":[{"key":"k"},{"key":"k"}]}}"#,
            &[concat!(
                r#"scheduling.tolerations[1]: Duplicate value: core.Toleration{Key:"k", Operator:"", Value:"", "#,
                r#"Effect:"", TolerationSeconds:(*int64)(nil)}"#
            )],
        );
        assert_eq!(validate(&json("{}")).len(), 1);
    }
}
