//! Issues certificates for approved requests to the built-in signers.
//!
//! | signer | subjects | checks |
//! |---|---|---|
//! | `kube-apiserver-client` | clients of the API server | usages |
//! | `kube-apiserver-client-kubelet` | kubelets as clients of the API server | subject, names, usages |
//! | `kubelet-serving` | kubelets as servers | subject, names, usages |
//! | `legacy-unknown` | any | none |
//!
//! A request that violates the rules of its signer gets the condition `Failed`, and is not retried; other errors are. A
//! certificate is written once.

pub mod authority;
mod certificate;

use crate::Context;
use crate::csr::{self, CertificateRequest};
use api::ByteString;
use api::certificates::v1::CertificateSigningRequest;
use authority::Source;
use certificate::CertificateTemplate;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run};
use names::Names;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Tolerates clocks that are behind.
const BACKDATED: i64 = 5 * 60;
/// A certificate that is valid for less is not shortened by backdating.
const SHORT: i64 = 8 * 3600;
/// The shortest validity.
const SHORTEST: i64 = 10 * 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The authority of each signer; a signer without one signs nothing.
    pub client: Option<Source>,
    pub agent_client: Option<Source>,
    pub agent_serving: Option<Source>,
    pub legacy: Option<Source>,
    /// The longest validity of a certificate.
    pub max_duration: Duration,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            client: None,
            agent_client: None,
            agent_serving: None,
            legacy: None,
            max_duration: Duration::from_secs(365 * 86_400),
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

/// A built-in signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signer {
    Client,
    AgentClient,
    AgentServing,
    Legacy,
}

impl Signer {
    /// The signer of a name, in any of its spellings.
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

    /// Why a request violates the signer's rules.
    fn objection(self, request: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
        match self {
            Signer::Client => csr::client_problem(usages),
            Signer::AgentClient => csr::agent_client_problem(request, usages),
            Signer::AgentServing => csr::agent_serving_problem(request, usages),
            Signer::Legacy => None,
        }
    }
}

struct SigningController {
    context: Context,
    options: Options,
    requests: Informer<CertificateSigningRequest>,
}

pub async fn run(context: Context, options: Options) {
    let sources = [&options.client, &options.agent_client, &options.agent_serving, &options.legacy];
    if sources.iter().all(|source| source.is_none()) {
        tracing::info!(controller = "csrsigning", "disabled: no signing authority is configured");
        return std::future::pending().await;
    }
    let queue = Queue::<Key>::new(&context.world);
    let requests = context.informer::<CertificateSigningRequest>();
    let workers = options.workers;
    let signing = Arc::new(SigningController { context, options, requests: requests.clone() });
    let changed = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() && is_pending(change.object()) {
            changed.add(change.key());
        }
    });
    requests.synced().await;
    run::run(signing, queue, workers).await;
}

/// Whether a request waits for its certificate.
fn is_pending(request: &CertificateSigningRequest) -> bool {
    csr::is_approved(request)
        && csr::condition(request, csr::FAILED).is_none()
        && csr::issued(request).is_none()
}

impl Reconcile for SigningController {
    type Key = Key;

    fn name(&self) -> &'static str {
        "csrsigning"
    }

    fn queue_name(&self) -> &'static str {
        "certificate"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(request) = self.requests.get(key).filter(|it| is_pending(it)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(signer) = Signer::named(&request.spec.signer_name, &self.context.names) else {
            return Ok(Action::AwaitChange);
        };
        let Some(source) = self.source(signer) else { return Ok(Action::AwaitChange) };
        let parsed = csr::parse_signed(&request.spec.request.0).map_err(Failure::Other)?;
        let usages = csr::usages(&request);
        let next = match signer.objection(&parsed, &usages) {
            Some(why) => {
                csr::with_condition(&request, &self.context, csr::FAILED, "SignerValidationFailure", why)
            }
            None => {
                let authority = source.load().await.map_err(Failure::Other)?;
                let template = self.template(&parsed, &usages, request.spec.expiration_seconds);
                let certificate = authority.issue(&template).map_err(Failure::Other)?;
                let mut next = (*request).clone();
                next.status.certificate = ByteString(certificate.into_bytes());
                next
            }
        };
        let requests: Api<CertificateSigningRequest> = Api::all(&self.context.client);
        requests.replace_status(&next).await?;
        Ok(Action::AwaitChange)
    }
}

impl SigningController {
    fn source(&self, signer: Signer) -> Option<&Source> {
        match signer {
            Signer::Client => self.options.client.as_ref(),
            Signer::AgentClient => self.options.agent_client.as_ref(),
            Signer::AgentServing => self.options.agent_serving.as_ref(),
            Signer::Legacy => self.options.legacy.as_ref(),
        }
    }

    fn template<'a>(
        &self,
        request: &'a CertificateRequest,
        usages: &'a BTreeSet<&'a str>,
        seconds: Option<i32>,
    ) -> CertificateTemplate<'a> {
        let now = self.context.now();
        let (not_before, not_after) = validity(now, self.options.max_duration.as_secs(), seconds);
        let mut serial = [0; 16];
        self.context.world.fill(&mut serial);
        CertificateTemplate { request, usages, now, not_before, not_after, serial }
    }
}

/// Start and end of a certificate's validity: as long as requested, within the limits.
fn validity(now: i64, longest: u64, requested: Option<i32>) -> (i64, i64) {
    let longest = i64::try_from(longest).unwrap_or(i64::MAX);
    let duration = match requested.map(i64::from) {
        None => longest,
        Some(requested) if requested > longest => longest,
        Some(requested) => requested.max(SHORTEST),
    };
    let not_before = now - BACKDATED;
    let end = if duration < SHORT { now } else { not_before };
    (not_before, end.saturating_add(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_last_as_long_as_requested_within_limits() {
        const YEAR: u64 = 365 * 86_400;
        for (longest, requested, duration) in [
            (YEAR, None, YEAR as i64 - 300),
            (YEAR, Some(3600), 3600),
            (YEAR, Some(8 * 3600), 8 * 3600 - 300),
            (YEAR, Some(i32::MAX), YEAR as i64 - 300),
            (YEAR, Some(1), 600),
            (3600, Some(7200), 3600),
            (300, None, 300),
        ] {
            assert_eq!(
                validity(10_000, longest, requested),
                (9700, 10_000 + duration),
                "{longest} {requested:?}"
            );
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
