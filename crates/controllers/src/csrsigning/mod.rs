//! Certificates for requests that were approved, by the signers that every cluster has.
//!
//! | signer | who is vouched for | what is checked |
//! |---|---|---|
//! | `kube-apiserver-client` | clients of the API server | usages |
//! | `kube-apiserver-client-kubelet` | agents of nodes, as clients of it | subject, names, usages |
//! | `kubelet-serving` | agents of nodes, to their clients | subject, names, usages |
//! | `legacy-unknown` | whatever was asked for before signers had names | nothing |
//!
//! What always holds: a request that its signer will not sign fails for good, with a condition that says why; what goes
//! wrong otherwise is tried again. A certificate is written once.

pub mod authority;
mod certificate;

use crate::Context;
use crate::csr::{self, CertificateRequest};
use authority::Source;
use certificate::CertificateTemplate;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, PostParams};
use names::Names;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// For clocks that are behind.
const BACKDATED: i64 = 5 * 60;
/// What lasts less than this is not shortened by what it is backdated.
const SHORT: i64 = 8 * 3600;
/// Nothing is issued for less.
const SHORTEST: i64 = 10 * 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Who signs, by signer; those without one sign nothing.
    pub client: Option<Source>,
    pub agent_client: Option<Source>,
    pub agent_serving: Option<Source>,
    pub legacy: Option<Source>,
    /// The longest that a certificate is good.
    pub lasts: Duration,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            client: None,
            agent_client: None,
            agent_serving: None,
            legacy: None,
            lasts: Duration::from_secs(365 * 86_400),
            workers: 5,
        }
    }
}

impl Options {
    /// One authority for all signers.
    pub fn signed_by(source: Source) -> Self {
        let source = Some(source);
        Options {
            client: source.clone(),
            agent_client: source.clone(),
            agent_serving: source.clone(),
            legacy: source,
            ..Options::default()
        }
    }
}

/// A signer that every cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signer {
    Client,
    AgentClient,
    AgentServing,
    Legacy,
}

impl Signer {
    /// The signer of a name, however it is spelled.
    fn named(name: &str, names: &Names) -> Option<Self> {
        if name == names.legacy_signer() {
            return Some(Signer::Legacy);
        }
        let known = [
            (names.client_signer(), Signer::Client),
            (names.agent_client_signer(), Signer::AgentClient),
            (names.agent_serving_signer(), Signer::AgentServing),
        ];
        let meant = names.signer(name)?;
        known.into_iter().find(|(name, _)| *name == meant).map(|(_, signer)| signer)
    }

    /// Why it will not sign, if it will not.
    fn objection(self, asked: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
        match self {
            Signer::Client => csr::client_problem(usages),
            Signer::AgentClient => csr::agent_client_problem(asked, usages),
            Signer::AgentServing => csr::agent_serving_problem(asked, usages),
            Signer::Legacy => None,
        }
    }
}

struct Signing {
    context: Context,
    options: Options,
    requests: Informer<CertificateSigningRequest>,
}

pub async fn run(context: Context, options: Options) {
    let sources = [&options.client, &options.agent_client, &options.agent_serving, &options.legacy];
    if sources.iter().all(|source| source.is_none()) {
        tracing::info!(controller = "csrsigning", "has nothing to do: nobody was named who signs");
        return std::future::pending().await;
    }
    let queue = Queue::<Key>::default();
    let requests = context.informer::<CertificateSigningRequest>();
    let workers = options.workers;
    let this = Arc::new(Signing { context, options, requests: requests.clone() });
    let news = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() && is_waiting(change.object()) {
            news.add(change.key());
        }
    });
    requests.synced().await;
    run::run(this, queue, workers).await;
}

/// Whether there is something to sign.
fn is_waiting(request: &CertificateSigningRequest) -> bool {
    csr::is_approved(request)
        && csr::condition(request, csr::FAILED).is_none()
        && csr::issued(request).is_none()
}

impl Reconcile for Signing {
    type Key = Key;

    fn name(&self) -> &'static str {
        "csrsigning"
    }

    fn queue_name(&self) -> &'static str {
        "certificate"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(request) = self.requests.get(key).filter(|it| is_waiting(it)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(signer) = Signer::named(&request.spec.signer_name, &self.context.names) else {
            return Ok(Action::AwaitChange);
        };
        let Some(source) = self.source(signer) else { return Ok(Action::AwaitChange) };
        let asked = csr::read_signed(&request.spec.request.0).map_err(Failure::Other)?;
        let usages = csr::usages(&request);
        let next = match signer.objection(&asked, &usages) {
            Some(why) => {
                csr::with_condition(&request, &self.context, csr::FAILED, "SignerValidationFailure", why)
            }
            None => {
                let authority = source.load().await.map_err(Failure::Other)?;
                let wanted = self.wanted(&asked, &usages, request.spec.expiration_seconds);
                let certificate = authority.issue(&wanted).map_err(Failure::Other)?;
                let mut next = (*request).clone();
                next.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
                next
            }
        };
        let api: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        let body = serde_json::to_vec(&next).map_err(|why| Failure::Other(why.to_string()))?;
        api.replace_subresource("status", &key.name, &PostParams::default(), body).await?;
        Ok(Action::AwaitChange)
    }
}

impl Signing {
    fn source(&self, signer: Signer) -> Option<&Source> {
        match signer {
            Signer::Client => self.options.client.as_ref(),
            Signer::AgentClient => self.options.agent_client.as_ref(),
            Signer::AgentServing => self.options.agent_serving.as_ref(),
            Signer::Legacy => self.options.legacy.as_ref(),
        }
    }

    fn wanted<'a>(
        &self,
        asked: &'a CertificateRequest,
        usages: &'a BTreeSet<&'a str>,
        seconds: Option<i32>,
    ) -> CertificateTemplate<'a> {
        let now = self.context.now();
        let (not_before, not_after) = validity(now, self.options.lasts.as_secs(), seconds);
        let mut serial = [0; 16];
        self.context.world.fill(&mut serial);
        CertificateTemplate { asked, usages, now, not_before, not_after, serial }
    }
}

/// From when and until when a certificate is good: as long as was asked for, within what the operator allows.
fn validity(now: i64, longest: u64, asked: Option<i32>) -> (i64, i64) {
    let longest = i64::try_from(longest).unwrap_or(i64::MAX);
    let lasts = match asked.map(i64::from) {
        None => longest,
        Some(asked) if asked > longest => longest,
        Some(asked) => asked.max(SHORTEST),
    };
    let not_before = now - BACKDATED;
    let end = if lasts < SHORT { now } else { not_before };
    (not_before, end.saturating_add(lasts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_last_as_long_as_was_asked_for_within_bounds() {
        const YEAR: u64 = 365 * 86_400;
        for (longest, asked, lasts) in [
            (YEAR, None, YEAR as i64 - 300),
            (YEAR, Some(3600), 3600),
            (YEAR, Some(8 * 3600), 8 * 3600 - 300),
            (YEAR, Some(i32::MAX), YEAR as i64 - 300),
            (YEAR, Some(1), 600),
            (3600, Some(7200), 3600),
            (300, None, 300),
        ] {
            assert_eq!(validity(10_000, longest, asked), (9700, 10_000 + lasts), "{longest} {asked:?}");
        }
    }

    #[test]
    fn signers_are_known_in_both_spellings() {
        let names = Names::kubernetes();
        for (name, signer) in [
            ("kubernetes.io/kube-apiserver-client", Some(Signer::Client)),
            ("kubernetes.io/cluster-apiserver-client", Some(Signer::Client)),
            ("kubernetes.io/kube-apiserver-client-kubelet", Some(Signer::AgentClient)),
            ("k8s.io/cluster-apiserver-client-nodeagent", Some(Signer::AgentClient)),
            ("kubernetes.io/kubelet-serving", Some(Signer::AgentServing)),
            ("k8s.io/nodeagent-serving", Some(Signer::AgentServing)),
            ("kubernetes.io/legacy-unknown", Some(Signer::Legacy)),
            ("example.com/kubelet-serving", None),
        ] {
            assert_eq!(Signer::named(name, &names), signer, "{name}");
        }
    }
}
