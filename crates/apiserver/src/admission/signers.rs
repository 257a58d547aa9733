//! Who approves a request for a certificate, or signs it, must be permitted to do so for its signer.

use crate::answers::user_of;
use ambient::Soon;
use auth::{Attributes, Authorizer};
use rest::{Admission, Admitted, ApiError, Interest, Resource};
use schema::Value;
use std::sync::Arc;

pub struct Signers {
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Signers {
    fn interest(&self, resource: &Resource) -> Interest {
        let requests = resource.kind.plural == "certificatesigningrequests"
            && *resource.kind.group.stem == *"certificates";
        Interest::UPDATE.and(Interest::PARTS).when(requests)
    }

    fn settle<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        let Some(old) = old else { return Ok(()).into() };
        let verb = match write.subresource {
            "approval" => "approve",
            "status" if signs(object, old) => "sign",
            _ => return Ok(()).into(),
        };
        let signer = old.text(&["spec", "signerName"]);
        Soon::later(async move {
            if self.permits(write, verb, signer).await {
                return Ok(());
            }
            let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
            Err(ApiError::object_forbidden(write.resource.subject(write.name), &why))
        })
    }
}

impl Signers {
    /// For this signer, or for all of its domain.
    async fn permits(&self, write: &Admitted<'_>, verb: &str, signer: &str) -> bool {
        let user = user_of(write.user);
        let may = async |name: &str| {
            let asked = Attributes {
                user: &user,
                verb,
                api_group: &write.resource.group,
                version: "*",
                resource: "signers",
                subresource: "",
                namespace: "",
                name,
                path: "",
                resource_request: true,
            };
            self.authorizer.authorize(&asked).get().await.is_allowed()
        };
        let domain = signer.split('/').next().unwrap_or_default();
        may(signer).await || may(&format!("{domain}/*")).await
    }
}

fn signs(object: &Value, old: &Value) -> bool {
    let differs = |field| object.at(&["status", field]) != old.at(&["status", field]);
    differs("certificate") || differs("conditions")
}
