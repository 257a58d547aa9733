//! RuntimeClass: adds the overhead and the scheduling constraints of the runtime class to pods.

use super::sync_plugin::{is, with_context};
use env::MaybeReady;
use kinds::core::pod::admit;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;

pub struct RuntimeClass;

impl Admission for RuntimeClass {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "pods"))
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let Some(object) = object else { return Ok(()).into() };
        if let Some(why) = admit::runtime_class_error(object) {
            return Err(ApiError::internal(why)).into();
        }
        let used = with_context(write, |context| admit::use_runtime(object, context));
        used.map_err(|why| write.forbidden(Some(object), &why)).into()
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        if let Some(why) = admit::runtime_class_error(object) {
            return Err(ApiError::internal(why)).into();
        }
        let checked = with_context(write, |context| admit::check_runtime(object, context));
        checked.map_err(|why| write.forbidden(Some(object), &why)).into()
    }
}
