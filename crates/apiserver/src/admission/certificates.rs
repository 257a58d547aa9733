//! Requests for certificates: who approves or signs one must be permitted to do so for its signer, and nobody
//! becomes an administrator by having a certificate signed.
//!
//! The well-known signers have two spellings, that of the dialect and that of the specification; a permission
//! for one is a permission for the other.

use super::plain::is;
use crate::reviews::user_of;
use auth::{Attributes, Authorizer, MASTERS};
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;
use std::sync::Arc;

fn is_request(resource: &Resource) -> bool {
    is(resource, "certificates", "certificatesigningrequests")
}

/// Who decides about a request may approve for its signer.
pub struct Approval {
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Approval {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::UPDATE.and(Interest::PARTS).when(is_request(resource))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        _: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        match old.filter(|_| write.subresource == "approval") {
            Some(old) => MaybeReady::later(permitted(&*self.authorizer, write, "approve", old)),
            None => Ok(()).into(),
        }
    }
}

/// Who issues a certificate, or says why not, may sign for its signer.
pub struct Signing {
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Signing {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::UPDATE.and(Interest::PARTS).when(is_request(resource))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let differs = |old: &Value, field| object.at(&["status", field]) != old.at(&["status", field]);
        let signs = |old: &&Value| differs(old, "certificate") || differs(old, "conditions");
        match old.filter(|_| write.subresource == "status").filter(signs) {
            Some(old) => MaybeReady::later(permitted(&*self.authorizer, write, "sign", old)),
            None => Ok(()).into(),
        }
    }
}

/// For this signer however it is spelled, or for all of its domain.
async fn permitted(
    authorizer: &dyn Authorizer,
    write: &AdmissionAttributes<'_>,
    verb: &str,
    request: &Value,
) -> Result<(), ApiError> {
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
        authorizer.authorize(&asked).get().await.is_allowed()
    };
    let signer = request.text(&["spec", "signerName"]);
    let usual = write.api.names.signer(signer);
    for name in [Some(signer), usual.as_deref()].into_iter().flatten() {
        let domain = name.split('/').next().unwrap_or_default();
        if may(name).await || may(&format!("{domain}/*")).await {
            return Ok(());
        }
    }
    Err(write.forbidden(
        Some(request),
        &format!("user not permitted to {verb} requests with signerName {signer:?}"),
    ))
}

/// Nobody asks for a client certificate of the masters' group.
pub struct SubjectRestriction;

impl Admission for SubjectRestriction {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is_request(resource))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        restrict(write, object).into()
    }
}

fn restrict(write: &AdmissionAttributes<'_>, object: &Value) -> Result<(), ApiError> {
    let names = &write.api.names;
    let signer = object.text(&["spec", "signerName"]);
    if names.signer(signer) != Some(names.client_signer()) {
        return Ok(());
    }
    let organizations = kinds::certificates::certificatesigningrequest::organizations(object);
    let organizations =
        organizations.map_err(|why| write.forbidden(Some(object), &format!("failed to parse CSR: {why}")))?;
    if !organizations.iter().any(|one| one == MASTERS) {
        return Ok(());
    }
    Err(write.forbidden(Some(object), &format!("use of {signer} signer with {MASTERS} group is not allowed")))
}
