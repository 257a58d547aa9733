//! NamespaceLifecycle: denies creates in missing or terminating namespaces, and the deletion of system
//! namespaces.

use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Cause, Interest, Operation, Resource, Subject};
use schema::{Value, format};

pub struct NamespaceLifecycle;

impl Admission for NamespaceLifecycle {
    fn interest(&self, resource: &Resource) -> Interest {
        if super::sync_plugin::is(resource, "", "namespaces") {
            return Interest::DELETE;
        }
        // a local access review must not reveal whether a namespace exists
        let is_review = resource.kind.plural == "localsubjectaccessreviews";
        Interest::CREATE.and(Interest::PARTS).when(resource.kind.namespaced && !is_review)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        match write.operation {
            Operation::Delete => deletion(write).into(),
            _ => creation(write, object.as_deref()).into(),
        }
    }
}

fn deletion(write: &AdmissionAttributes<'_>) -> Result<(), ApiError> {
    if kinds::core::namespace::is_kept(write.name, &write.api.names) {
        return Err(write.forbidden(None, "this namespace may not be deleted"));
    }
    Ok(())
}

/// The error of a namespace that does not exist, or cannot.
pub(super) fn missing_namespace(name: &str) -> ApiError {
    match format::lookup_error(name) {
        Some(why) => ApiError::internal_error(why),
        None => ApiError::not_found(Subject { group: "", kind: "namespaces", name }),
    }
}

fn creation(write: &AdmissionAttributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
    let namespace = write.namespace;
    let Some(phase) = write.api.lookup_field("namespaces", "", namespace, "status.phase") else {
        return Err(missing_namespace(namespace));
    };
    if phase != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = write.forbidden(object, &why);
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(error)
}
