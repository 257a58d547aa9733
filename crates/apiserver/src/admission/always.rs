//! AlwaysAdmit and AlwaysDeny.

use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;

/// Admits everything.
pub struct Admit;

impl Admission for Admit {
    fn interest(&self, _: &Resource) -> Interest {
        Interest::NONE
    }
}

/// Denies every write.
pub struct Deny;

impl Admission for Deny {
    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        Err(write.forbidden(object.as_deref(), "admission control is denying all modifications")).into()
    }
}
