//! Admission of CertificateSigningRequests: CertificateApproval, CertificateSigning and
//! CertificateSubjectRestriction.
//!
//! Approval and signing need permission for the signer. Well-known signers have two spellings, that of the
//! dialect and that of the specification; a permission for one is a permission for the other.

use super::sync_plugin::is;
use crate::reviews::user_info::user_of;
use auth::{Attributes, Authorizer, MASTERS};
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;
use schema::problem::quoted;
use std::sync::Arc;

fn is_request(resource: &Resource) -> bool {
    is(resource, "certificates", "certificatesigningrequests")
}

/// Approval requires the permission `approve` for the signer.
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
            Some(old) => MaybeReady::later(check_permission(&*self.authorizer, write, "approve", old)),
            None => Ok(()).into(),
        }
    }
}

/// Issuing or failing a certificate requires the permission `sign` for the signer.
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
            Some(old) => MaybeReady::later(check_permission(&*self.authorizer, write, "sign", old)),
            None => Ok(()).into(),
        }
    }
}

/// Whether the user has the permission for this signer in any spelling, or for all of its domain.
async fn check_permission(
    authorizer: &dyn Authorizer,
    write: &AdmissionAttributes<'_>,
    verb: &str,
    request: &Value,
) -> Result<(), ApiError> {
    let user = user_of(write.user);
    let may = async |name: &str| {
        let attributes = Attributes {
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
        authorizer.authorize(&attributes).get().await.is_allowed()
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
        &format!("user not permitted to {verb} requests with signerName {}", quoted(signer)),
    ))
}

/// Denies client certificates of the masters group.
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
