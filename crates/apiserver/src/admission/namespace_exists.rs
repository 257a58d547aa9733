//! NamespaceExists: denies writes into namespaces that do not exist.

use super::namespace_lifecycle::missing_namespace;
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;

pub struct NamespaceExists;

impl Admission for NamespaceExists {
    fn interest(&self, resource: &Resource) -> Interest {
        let changes = Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS);
        changes.when(resource.kind.namespaced)
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        _: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let namespace = write.namespace;
        match write.api.lookup_field("namespaces", "", namespace, "status.phase") {
            Some(_) => Ok(()).into(),
            None => Err(missing_namespace(namespace)).into(),
        }
    }
}
