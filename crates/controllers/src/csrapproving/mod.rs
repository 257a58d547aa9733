//! Approves requests of kubelets for client certificates.
//!
//! A kubelet that renews its certificate sends the request under its own name (`selfnodeclient`); one that has no
//! certificate yet sends it with bootstrap credentials (`nodeclient`). A SubjectAccessReview checks whether the
//! requester may create this subresource of certificate signing requests. Other requests are left for an administrator.

use crate::Context;
use crate::csr::{self, CertificateRequest};
use api::Resource;
use api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run};
use std::sync::Arc;

/// A type of request, with the permission that its approval requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recognizer {
    permission: &'static str,
    message: &'static str,
}

const RENEWAL: Recognizer = Recognizer {
    permission: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const BOOTSTRAP: Recognizer = Recognizer {
    permission: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

struct Approver {
    context: Context,
    requests: Informer<CertificateSigningRequest>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let requests = context.informer::<CertificateSigningRequest>();
    let approving = Arc::new(Approver { context, requests: requests.clone() });
    let changed = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() && is_pending(change.object()) {
            changed.add(change.key());
        }
    });
    requests.synced().await;
    run::run(approving, queue, run::WORKERS).await;
}

/// Whether a request is undecided.
fn is_pending(request: &CertificateSigningRequest) -> bool {
    csr::issued(request).is_none() && !csr::is_decided(request)
}

impl Reconcile for Approver {
    type Key = Key;

    fn name(&self) -> &'static str {
        "csrapproving"
    }

    fn queue_name(&self) -> &'static str {
        "certificate"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(request) = self.requests.get(key).filter(|it| is_pending(it)) else {
            return Ok(Action::AwaitChange);
        };
        let names = &self.context.names;
        // requests for other signers are not parsed
        if names.signer(&request.spec.signer_name) != Some(names.agent_client_signer()) {
            return Ok(Action::AwaitChange);
        }
        let parsed = csr::parse(&request.spec.request.0).map_err(Failure::Other)?;
        let recognizers = recognize(&request, &parsed);
        for recognizer in &recognizers {
            if self.has_permission(&request.spec, recognizer.permission).await? {
                return self.approve(&request, recognizer.message).await;
            }
        }
        if recognizers.is_empty() {
            return Ok(Action::AwaitChange);
        }
        // the permission may be granted later
        let tried: Vec<_> = recognizers.iter().map(|it| it.permission).collect();
        let (name, tried) = (&key.name, tried.join(" "));
        Err(Failure::Other(format!(
            "recognized csr {name:?} as [{tried}] but subject access review was not approved"
        )))
    }
}

/// The possible types of a request, in the order in which their permissions are checked.
fn recognize(request: &CertificateSigningRequest, parsed: &CertificateRequest) -> Vec<Recognizer> {
    if csr::agent_client_problem(parsed, &csr::usages(request)).is_some() {
        return Vec::new();
    }
    if request.spec.username == parsed.subject.common_name {
        vec![RENEWAL, BOOTSTRAP]
    } else {
        vec![BOOTSTRAP]
    }
}

impl Approver {
    async fn has_permission(
        &self,
        spec: &CertificateSigningRequestSpec,
        permission: &str,
    ) -> Result<bool, Failure> {
        let attributes = ResourceAttributes {
            group: self.context.names.group("certificates"),
            version: "*".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
            subresource: permission.to_owned(),
            verb: "create".to_owned(),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: spec.username.clone(),
                uid: spec.uid.clone(),
                groups: spec.groups.clone(),
                extra: spec.extra.clone(),
                resource_attributes: Some(Box::new(attributes)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(&self.context.client);
        Ok(reviews.create(&review).await?.status.allowed)
    }

    async fn approve(&self, request: &CertificateSigningRequest, message: &str) -> Result<Action, Failure> {
        let next = csr::with_condition(request, &self.context, csr::APPROVED, "AutoApproved", message);
        let requests: Api<CertificateSigningRequest> = Api::all(&self.context.client);
        let _: CertificateSigningRequest =
            requests.replace_subresource(request.name(), "approval", &next).await?;
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn requests_of_kubelets_are_recognized() {
        let check = |username: &str, common_name: &str, usages: &[&str], expected: &[Recognizer]| {
            let pem = csr::tests::request(common_name, "system:nodes", &[]);
            let request: CertificateSigningRequest = object(serde_json::json!({"metadata": {},
                "spec": {"request": "", "signerName": "a/b", "username": username, "usages": usages}}));
            let parsed = csr::parse(pem.as_bytes()).unwrap();
            assert_eq!(recognize(&request, &parsed), expected, "{username} for {common_name}");
        };
        let usages = ["digital signature", "key encipherment", "client auth"];
        check("system:node:a", "system:node:a", &usages, &[RENEWAL, BOOTSTRAP]);
        check("system:node:b", "system:node:a", &usages, &[BOOTSTRAP]);
        check("system:bootstrap:abcdef", "system:node:a", &usages, &[BOOTSTRAP]);
        check("system:node:a", "system:node:a", &["server auth"], &[]);
        check("jane", "jane", &usages, &[]);
    }
}
