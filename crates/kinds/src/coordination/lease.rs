//! Leases: validation of durations and counts.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::hooks::{
    Context, CreateHooks, Hooks, MetadataRules, Priority, ReadHooks, RepeatedMetadataErrors, StorageHooks,
    UpdateHooks, WriteHooks,
};
use schema::{Path, Value};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        storage: StorageHooks {
            // a holder that does not renew in time counts as dead
            priority: Priority::Heartbeat,
            ..StorageHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn update(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    validate(new)
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    if let Some(seconds) =
        read::opt_int(object, &["spec", "leaseDurationSeconds"]).filter(|seconds| *seconds <= 0)
    {
        out.push(check::invalid_int(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    if let Some(count) = read::opt_int(object, &["spec", "leaseTransitions"]).filter(|count| *count < 0) {
        out.push(check::invalid_int(
            &path.field("leaseTransitions"),
            count,
            "must be greater than or equal to 0",
        ));
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let holder = object.text(&["spec", "holderIdentity"]);
    vec![metadata::name(object), holder.into(), metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn numbers_make_sense() {
        let check =
            |object: &str, expected: &[&str]| assert_eq!(problems(&validate(&json(object))), expected);
        check(r#"{"spec":{}}"#, &[]);
        check(
            r#"{"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}"#,
            &[
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
    }
}
