//! ControllerRevisions: earlier states of a controller's object, for rollbacks.

use crate::check::{self, Problems};
use crate::workload::IMMUTABLE;
use crate::{metadata, read};
use rest::hooks::{Context, CreateHooks, Hooks, ReadHooks, UpdateHooks};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    if !read::has(object, &["data"]) {
        out.push(Problem::required(&Path::ROOT.field("data"), "data is mandatory"));
    }
    check::not_negative(object, "revision", &Path::ROOT, &mut out);
    out
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = validate(new);
    let (is, was) = (new.at(&["data"]), old.at(&["data"]));
    if !read::same(is, was) {
        let path = Path::ROOT.field("data");
        out.push(match is.filter(|it| !it.is_null()) {
            None => check::null(&path, IMMUTABLE),
            Some(is) => Problem::invalid(&path, is, IMMUTABLE),
        });
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![
        metadata::name(object),
        controller(object).into(),
        read::int(object, &["revision"]).into(),
        metadata::age(object, now),
    ]
}

/// The controller as people name it: `statefulset.apps/web`.
fn controller(object: &Value) -> String {
    let owners = object.items(&["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|it| read::flag(it, &["controller"])) else {
        return "<none>".to_owned();
    };
    let kind = owner.text(&["kind"]);
    let kind = match owner.text(&["apiVersion"]).rsplit_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), owner.text(&["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn data_is_there_and_stays() {
        let check = |new: &str, expected: &[&str]| {
            let old = json(r#"{"data":{"a":1},"revision":1}"#);
            assert_eq!(problems(&update(&json(new), &old, &context())), expected);
        };
        check(r#"{"data":{"a":1},"revision":2}"#, &[]);
        check(
            r#"{"revision":-1}"#,
            &[
                "data: Required value: data is mandatory",
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Invalid value: \"null\": field is immutable",
            ],
        );
    }

    #[test]
    fn controllers_are_named() {
        let check = |owners: &str, expected: &str| {
            let object = json(&format!(r#"{{"metadata":{{"ownerReferences":{owners}}}}}"#));
            assert_eq!(controller(&object), expected);
        };
        check("[]", "<none>");
        check(
            r#"[{"kind":"X","name":"no"},{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","controller":true}]"#,
            "statefulset.apps/web",
        );
    }
}
