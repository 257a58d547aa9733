//! The status of both kinds, and the message about mandatory objects.

use rest::hooks::{Check, Context, IDENTITY_AND_DELETION, SubresourceHooks, replace};
use schema::Value;

/// The `status` subresource of both kinds. `validate` checks the whole object, including fields that it cannot write.
pub(super) const fn status(validate: Check) -> SubresourceHooks {
    SubresourceHooks {
        apply: apply_status,
        validate: Some(validate),
        unowned: &["metadata"],
        ignored_metadata: IDENTITY_AND_DELETION,
        ..SubresourceHooks::STATUS
    }
}

/// Replaces the status only, not even metadata.
fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
}

/// The error of a changed mandatory object.
pub(super) fn fixed(name: &str) -> String {
    format!("spec of '{name}' must equal the fixed value")
}
