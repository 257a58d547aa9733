//! Who approves a request for a certificate, or signs it, must be permitted to do so for its signer.

use crate::answers::user_of;
use auth::{Attributes, Authorizer};
use rest::{Admission, Admitted, ApiError, Operation, Settling};
use schema::Value;
use std::sync::Arc;

pub struct Signers {
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Signers {
    fn settle<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Option<Settling<'a>> {
        let old = old.filter(|_| {
            write.operation == Operation::Update
                && write.resource.kind.plural == "certificatesigningrequests"
                && *write.resource.kind.group.stem == *"certificates"
        })?;
        let verb = match write.subresource {
            "approval" => "approve",
            "status" if signs(object, old) => "sign",
            _ => return None,
        };
        let signer = old.text(&["spec", "signerName"]);
        if self.permits(write, verb, signer) {
            return None;
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        let refused = ApiError::object_forbidden(write.resource.subject(write.name), &why);
        Some(Box::pin(std::future::ready(Err(refused))))
    }
}

impl Signers {
    /// For this signer, or for all of its domain.
    fn permits(&self, write: &Admitted<'_>, verb: &str, signer: &str) -> bool {
        let user = user_of(write.user);
        let may = |name: &str| {
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
            self.authorizer.authorize(&asked).is_allowed()
        };
        let domain = signer.split('/').next().unwrap_or_default();
        may(signer) || may(&format!("{domain}/*"))
    }
}

fn signs(object: &Value, old: &Value) -> bool {
    let differs = |field| object.at(&["status", field]) != old.at(&["status", field]);
    differs("certificate") || differs("conditions")
}
