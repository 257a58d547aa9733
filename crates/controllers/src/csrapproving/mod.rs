//! Approves what agents of nodes ask for, when who asks may have it.
//!
//! An agent that renews its certificate asks in its own name (`selfnodeclient`); one that has none yet asks in the name
//! of whatever it was given to begin with (`nodeclient`). Whether they may is asked of the API server, as a permission
//! to create these parts of requests for certificates. Everything else waits for somebody to decide.

use crate::Context;
use crate::csr::{self, CertificateRequest};
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{Api, PostParams};
use std::sync::Arc;

/// A sort of request, with the permission that its approval takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recognizer {
    permission: &'static str,
    message: &'static str,
}

const OWN: Recognizer = Recognizer {
    permission: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const FIRST: Recognizer = Recognizer {
    permission: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

struct Approving {
    context: Context,
    requests: Informer<CertificateSigningRequest>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let requests = context.informer::<CertificateSigningRequest>();
    let this = Arc::new(Approving { context, requests: requests.clone() });
    let news = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() && is_waiting(change.object()) {
            news.add(change.key());
        }
    });
    requests.synced().await;
    run::run(this, queue, run::WORKERS).await;
}

/// Whether nobody has decided yet.
fn is_waiting(request: &CertificateSigningRequest) -> bool {
    csr::issued(request).is_none() && !csr::is_decided(request)
}

impl Reconcile for Approving {
    type Key = Key;

    fn name(&self) -> &'static str {
        "csrapproving"
    }

    fn queue_name(&self) -> &'static str {
        "certificate"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(request) = self.requests.get(key).filter(|it| is_waiting(it)) else {
            return Ok(Action::AwaitChange);
        };
        let names = &self.context.names;
        // what is for another signer need not even be read
        if names.signer(&request.spec.signer_name) != Some(names.agent_client_signer()) {
            return Ok(Action::AwaitChange);
        }
        let asked = csr::read(&request.spec.request.0).map_err(Failure::Other)?;
        let known = known(&request, &asked);
        for one in &known {
            if self.may(&request.spec, one.permission).await? {
                return self.approve(&request, one.message).await;
            }
        }
        if known.is_empty() {
            return Ok(Action::AwaitChange);
        }
        // they may be given the permission later
        let tried: Vec<_> = known.iter().map(|it| it.permission).collect();
        let (name, tried) = (&key.name, tried.join(" "));
        Err(Failure::Other(format!(
            "recognized csr {name:?} as [{tried}] but subject access review was not approved"
        )))
    }
}

/// What a request for an agent's certificate is, in the order in which permissions are asked for.
fn known(request: &CertificateSigningRequest, asked: &CertificateRequest) -> Vec<Recognizer> {
    if csr::agent_client_problem(asked, &csr::usages(request)).is_some() {
        return Vec::new();
    }
    match request.spec.username.as_deref() {
        Some(name) if name == asked.subject.common_name => vec![OWN, FIRST],
        _ => vec![FIRST],
    }
}

impl Approving {
    async fn may(&self, spec: &CertificateSigningRequestSpec, permission: &str) -> Result<bool, Failure> {
        let attributes = ResourceAttributes {
            group: Some(self.context.names.group("certificates")),
            version: Some("*".to_owned()),
            resource: Some("certificatesigningrequests".to_owned()),
            subresource: Some(permission.to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: spec.username.clone(),
                uid: spec.uid.clone(),
                groups: spec.groups.clone(),
                extra: spec.extra.clone(),
                resource_attributes: Some(attributes),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.context.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, request: &CertificateSigningRequest, message: &str) -> Result<Action, Failure> {
        let next = csr::with_condition(request, &self.context, csr::APPROVED, "AutoApproved", message);
        let api: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        let body = serde_json::to_vec(&next).map_err(|why| Failure::Other(why.to_string()))?;
        let name = request.metadata.name.as_deref().unwrap_or_default();
        api.replace_subresource("approval", name, &PostParams::default(), body).await?;
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_what_they_ask_for() {
        let check = |asks: &str, for_name: &str, usages: &[&str], expected: &[Recognizer]| {
            let pem = csr::tests::request(for_name, "system:nodes", &[]);
            let request: CertificateSigningRequest =
                serde_json::from_value(serde_json::json!({"metadata": {},
                "spec": {"request": "", "signerName": "a/b", "username": asks, "usages": usages}}))
                .unwrap();
            let asked = csr::read(pem.as_bytes()).unwrap();
            assert_eq!(known(&request, &asked), expected, "{asks} for {for_name}");
        };
        let usages = ["digital signature", "key encipherment", "client auth"];
        check("system:node:a", "system:node:a", &usages, &[OWN, FIRST]);
        check("system:node:b", "system:node:a", &usages, &[FIRST]);
        check("system:bootstrap:abcdef", "system:node:a", &usages, &[FIRST]);
        check("system:node:a", "system:node:a", &["server auth"], &[]);
        check("jane", "jane", &usages, &[]);
    }
}
