//! Fairness between requests: which flow a request belongs to, and which share of the server a flow has.
//!
//! Two versions over one storage that differ in one name: what the older calls assured shares the newer calls
//! nominal shares. Problems are told with the name of the version that was written. A few objects are
//! mandatory, and their specs cannot be anything but what they are.

mod levels;
mod schemas;

use rest::hooks::{Check, Context, Conversion, Hooks, StorageHooks, SubresourceHooks, replace};
use schema::Value;

/// Flow schemas in the stored version.
pub fn schema_hooks() -> Hooks {
    schemas::hooks()
}

/// Flow schemas in the version that is not stored: nothing in them has another name.
pub fn newer_schema_hooks() -> Hooks {
    let base = schemas::hooks();
    Hooks {
        storage: StorageHooks {
            convert: Some(Conversion { to_stored: |it| it, from_stored: |it| it }),
            ..base.storage
        },
        ..base
    }
}

/// Priority levels in the stored version.
pub fn level_hooks() -> Hooks {
    levels::hooks()
}

/// Priority levels in the version that is not stored.
pub fn newer_level_hooks() -> Hooks {
    const OLDER: &str = "assuredConcurrencyShares";
    const NEWER: &str = "nominalConcurrencyShares";
    fn renamed(mut object: Value, from: &'static str, to: &'static str) -> Value {
        if let Some(shares) = object.unset(&["spec", "limited", from]) {
            object.set(&["spec", "limited", to], shares);
        }
        object
    }
    let convert = Conversion {
        to_stored: |object| renamed(object, NEWER, OLDER),
        from_stored: |object| renamed(object, OLDER, NEWER),
    };
    let base = levels::hooks();
    Hooks { storage: StorageHooks { convert: Some(convert), ..base.storage }, ..base }
}

/// The `status` of both kinds. `validate` checks the whole object again, also what cannot be written here.
const fn status(validate: Check) -> SubresourceHooks {
    SubresourceHooks {
        apply: apply_status,
        validate: Some(validate),
        unowned: &["metadata"],
        keeps_deletion: true,
        ..SubresourceHooks::STATUS
    }
}

/// Through the status nothing but the status is written, not even metadata.
fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;

    #[test]
    fn shares_have_two_names() {
        let convert = newer_level_hooks().storage.convert.expect("two versions");
        let newer = json(r#"{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":7}}}"#);
        let stored = (convert.to_stored)(newer.clone());
        assert_eq!(stored, json(r#"{"spec":{"type":"Limited","limited":{"assuredConcurrencyShares":7}}}"#));
        assert_eq!((convert.from_stored)(stored), newer);
    }
}
