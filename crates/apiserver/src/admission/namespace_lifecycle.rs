//! Objects are made only in namespaces that exist and are not going away.

use ambient::Soon;
use rest::{Admission, Admitted, ApiError, Cause, Interest, Resource, Subject};
use schema::Value;

pub struct NamespaceLifecycle;

impl Admission for NamespaceLifecycle {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::PARTS).when(resource.kind.namespaced)
    }

    fn admit<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        _: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        check(write).into()
    }
}

fn check(write: &Admitted<'_>) -> Result<(), ApiError> {
    let namespace = write.namespace;
    let Some(phase) = write.api.lookup_field("namespaces", "", namespace, "status.phase") else {
        return Err(ApiError::not_found(Subject { group: "", kind: "namespaces", name: namespace }));
    };
    if phase != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::object_forbidden(write.resource.subject(write.name), &why);
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(error)
}
