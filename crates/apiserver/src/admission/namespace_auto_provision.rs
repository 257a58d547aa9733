//! NamespaceAutoProvision: creates the namespace of a new object.

use crate::loopback;
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;

pub struct NamespaceAutoProvision;

const PLURAL: &str = "namespaces";

impl Admission for NamespaceAutoProvision {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::PARTS).when(resource.kind.namespaced)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let exists = write.api.lookup_field(PLURAL, "", write.namespace, "status.phase").is_some();
        if exists || write.dry_run {
            return Ok(()).into();
        }
        MaybeReady::later(async move {
            match create_namespace(write).await {
                // a concurrent request created it
                Err(why) if why.code == 409 => Ok(()),
                Err(why) => Err(write.forbidden(object.as_deref(), &why.message)),
                Ok(()) => Ok(()),
            }
        })
    }
}

async fn create_namespace(write: &AdmissionAttributes<'_>) -> Result<(), ApiError> {
    let resources = write.api.resources();
    let Some(resource) = resources.get("v1", PLURAL) else { return Ok(()) };
    let mut namespace = Value::map();
    namespace.set(&["metadata", "name"], write.namespace);
    let target = loopback::WriteTarget { resource, namespace: "", name: "", subresource: "" };
    loopback::write(write.api, target, &namespace).await.map(drop)
}
