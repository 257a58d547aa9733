//! The two plugins that decide nothing by looking: everything is taken, or nothing is.

use ambient::Soon;
use rest::{Admission, Admitted, ApiError, Interest, Resource};
use schema::Value;

/// Takes everything, as if it were not there.
pub struct Admit;

impl Admission for Admit {
    fn interest(&self, _: &Resource) -> Interest {
        Interest::NONE
    }
}

/// Refuses every write, whoever it is from.
pub struct Deny;

impl Admission for Deny {
    fn admit<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        Err(write.forbidden(object.as_deref(), "admission control is denying all modifications")).into()
    }
}
