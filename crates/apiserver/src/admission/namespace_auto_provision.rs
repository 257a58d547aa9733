//! Namespaces are made when something is created in them.

use crate::own;
use ambient::Soon;
use rest::{Admission, Admitted, ApiError, Interest, Resource};
use schema::Value;

pub struct NamespaceAutoProvision;

const PLURAL: &str = "namespaces";

impl Admission for NamespaceAutoProvision {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::PARTS).when(resource.kind.namespaced)
    }

    fn admit<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        let there = write.api.lookup_field(PLURAL, "", write.namespace, "status.phase").is_some();
        if there || write.dry_run {
            return Ok(()).into();
        }
        Soon::later(async move {
            match make(write).await {
                // somebody else was faster, which is as good
                Err(why) if why.code == 409 => Ok(()),
                Err(why) => Err(write.forbidden(object.as_deref(), &why.message)),
                Ok(()) => Ok(()),
            }
        })
    }
}

async fn make(write: &Admitted<'_>) -> Result<(), ApiError> {
    let resources = write.api.resources();
    let Some(resource) = resources.get("v1", PLURAL) else { return Ok(()) };
    let mut namespace = Value::map();
    namespace.set(&["metadata", "name"], write.namespace);
    let place = own::Place { resource, namespace: "", name: "", subresource: "" };
    own::write(write.api, place, &namespace).await.map(drop)
}
