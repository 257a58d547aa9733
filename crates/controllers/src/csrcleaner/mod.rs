//! Removes requests for certificates that nobody needs any more: an hour after they were issued, denied or failed, a
//! day after nobody decided, and when the certificate has expired.
//!
//! What always holds: each request is looked at when its time has come, not before, and never all of them at once.

use crate::{Context, csr};
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;

/// How long requests are kept, in seconds.
const DECIDED: i64 = 3600;
const PENDING: i64 = 24 * 3600;

struct Cleaner {
    context: Context,
    requests: Informer<CertificateSigningRequest>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let requests = context.informer::<CertificateSigningRequest>();
    let this = Arc::new(Cleaner { context, requests: requests.clone() });
    let news = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    requests.synced().await;
    run::run(this, queue, 1).await;
}

impl Reconcile for Cleaner {
    type Key = Key;

    fn name(&self) -> &'static str {
        "csrcleaner"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(request) = self.requests.get(key) else { return Ok(Action::AwaitChange) };
        let Some(due) = due(&request) else { return Ok(Action::AwaitChange) };
        let left = due - self.context.now();
        if left > 0 {
            return Ok(Action::Requeue(Duration::from_secs(left.unsigned_abs())));
        }
        let api: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        let same = Preconditions { uid: request.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        match unless(404, api.delete(&key.name, &params).await).map_err(Failure::from) {
            // another one of that name is not this one's business
            Err(why) if !why.is(409) => Err(why),
            _ => Ok(Action::AwaitChange),
        }
    }
}

/// When a request is to be removed, in Unix seconds; never, if it was approved and waits for its certificate.
fn due(request: &CertificateSigningRequest) -> Option<i64> {
    let at = |time: &Option<Time>| time.as_ref().map(|time| time.0.timestamp());
    let after = |kind: &str| {
        csr::condition(request, kind).and_then(|it| at(&it.last_update_time)).map(|at| at + DECIDED)
    };
    let issued = csr::issued(request).filter(|_| csr::condition(request, csr::APPROVED).is_some());
    let undecided = request.status.as_ref().is_none_or(|it| it.conditions.as_ref().is_none_or(Vec::is_empty));
    let all = [
        issued.and_then(|_| after(csr::APPROVED)),
        issued.and_then(csr::good_until),
        after(csr::DENIED),
        after(csr::FAILED),
        at(&request.metadata.creation_timestamp).filter(|_| undecided).map(|at| at + PENDING),
    ];
    all.into_iter().flatten().min().map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_for_a_while() {
        const MADE: i64 = 1_700_000_000; // 22:13:20
        let check = |conditions: &[(&str, &str)], certificate: &str, expected: Option<i64>| {
            let conditions: Vec<_> = conditions
                .iter()
                .map(|(kind, at)| {
                    let at = format!("2023-11-14T{at}Z");
                    serde_json::json!({"type": kind, "status": "True", "lastUpdateTime": at})
                })
                .collect();
            let request: CertificateSigningRequest = serde_json::from_value(serde_json::json!({
                "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
                "spec": {"request": "", "signerName": "a/b"},
                "status": {"conditions": conditions, "certificate": certificate}}))
            .unwrap();
            assert_eq!(due(&request).map(|at| at - MADE), expected, "{conditions:?}");
        };
        check(&[], "", Some(PENDING + 1));
        check(&[("Approved", "22:13:30")], "", None);
        check(&[("Approved", "22:13:30")], "YQ==", Some(DECIDED + 11));
        check(&[("Denied", "22:13:20")], "", Some(DECIDED + 1));
        check(&[("Approved", "22:13:20"), ("Failed", "22:14:20")], "", Some(DECIDED + 61));
        // something else was said, which decides nothing
        check(&[("Interesting", "22:13:20")], "", None);
    }
}
