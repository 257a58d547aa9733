//! Requires the verb `create` for an update or apply that creates its object.

use crate::reviews::user_info::user_of;
use auth::{Attributes, Authorizer};
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;
use std::sync::Arc;

pub struct Creation {
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Creation {
    fn interest(&self, _: &Resource) -> Interest {
        Interest::CREATE
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        _: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        // without a name in the path it was a create, which is authorized already
        if write.request_name.is_empty() {
            return Ok(()).into();
        }
        MaybeReady::later(self.check_permission(write))
    }
}

impl Creation {
    async fn check_permission(&self, write: &AdmissionAttributes<'_>) -> Result<(), ApiError> {
        let attributes = Attributes {
            user: &user_of(write.user),
            verb: "create",
            api_group: &write.resource.group,
            version: &write.resource.kind.version,
            resource: &write.resource.kind.plural,
            subresource: write.subresource,
            namespace: write.namespace,
            name: write.request_name,
            path: "",
            resource_request: true,
        };
        let decision = self.authorizer.authorize(&attributes).get().await;
        if decision.is_allowed() {
            return Ok(());
        }
        Err(ApiError::object_forbidden(write.resource.subject(write.name), decision.reason()))
    }
}
