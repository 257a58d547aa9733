//! FlowSchemas and PriorityLevelConfigurations: the flow of a request, and the share of the server of a flow.
//!
//! Two versions over one storage differ in one name: the assured shares of the older version are the nominal shares
//! of the newer one. Problems use the name of the version of the request. A few objects are mandatory, and their
//! specs are fixed.

mod levels;
mod schemas;
mod status;

use rest::hooks::{Conversion, Hooks, StorageHooks};
use schema::Value;

/// Flow schemas in the stored version.
pub fn schema_hooks() -> Hooks {
    schemas::hooks()
}

/// Flow schemas in the version that is not stored; all fields have the same names.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn shares_have_two_names() {
        let convert = newer_level_hooks().storage.convert.expect("two versions");
        let newer = json(r#"{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":7}}}"#);
        let stored = (convert.to_stored)(newer.clone());
        assert_eq!(stored, json(r#"{"spec":{"type":"Limited","limited":{"assuredConcurrencyShares":7}}}"#));
        assert_eq!((convert.from_stored)(stored), newer);
    }
}
