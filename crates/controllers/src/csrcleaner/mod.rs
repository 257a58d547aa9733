//! Deletes certificate signing requests: an hour after they were issued, denied or failed, a day after their creation
//! if they are undecided, and when the certificate has expired.
//!
//! Each request is reconciled when it is due; there is no periodic scan.

use crate::{Context, csr};
use api::Resource;
use api::certificates::v1::CertificateSigningRequest;
use api::meta::v1::DeleteOptions;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, of_uid, run};
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
    let queue = Queue::<Key>::new(&context.world);
    let requests = context.informer::<CertificateSigningRequest>();
    let cleaner = Arc::new(Cleaner { context, requests: requests.clone() });
    let changed = queue.clone();
    requests.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    requests.synced().await;
    run::run(cleaner, queue, 1).await;
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
        let requests: Api<CertificateSigningRequest> = Api::all(&self.context.client);
        let preconditions = Some(Box::new(of_uid(request.uid())));
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match requests.delete(&key.name, &options).await {
            // gone, or replaced by another request of the same name
            Err(why) if !why.is(404) && !why.is(409) => Err(why.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}

/// When a request is due for deletion, in Unix seconds; `None` if it is approved and not issued yet.
fn due(request: &CertificateSigningRequest) -> Option<i64> {
    let after = |kind: &str| {
        let updated = csr::condition(request, kind).and_then(|it| it.last_update_time);
        updated.map(|at| at.unix_seconds() + DECIDED)
    };
    let issued = csr::issued(request).filter(|_| csr::condition(request, csr::APPROVED).is_some());
    let created = request.metadata.creation_timestamp.filter(|_| request.status.conditions.is_empty());
    let all = [
        issued.and_then(|_| after(csr::APPROVED)),
        issued.and_then(csr::expiry),
        after(csr::DENIED),
        after(csr::FAILED),
        created.map(|at| at.unix_seconds() + PENDING),
    ];
    all.into_iter().flatten().min().map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn requests_are_kept_for_a_while() {
        const CREATED: i64 = 1_700_000_000; // 22:13:20
        let check = |conditions: &[(&str, &str)], certificate: &str, expected: Option<i64>| {
            let conditions: Vec<_> = conditions
                .iter()
                .map(|(kind, at)| {
                    let at = format!("2023-11-14T{at}Z");
                    serde_json::json!({"type": kind, "status": "True", "lastUpdateTime": at})
                })
                .collect();
            let request: CertificateSigningRequest = object(serde_json::json!({
                "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
                "spec": {"request": "", "signerName": "a/b"},
                "status": {"conditions": conditions, "certificate": certificate}}));
            assert_eq!(due(&request).map(|at| at - CREATED), expected, "{conditions:?}");
        };
        check(&[], "", Some(PENDING + 1));
        check(&[("Approved", "22:13:30")], "", None);
        check(&[("Approved", "22:13:30")], "YQ==", Some(DECIDED + 11));
        check(&[("Denied", "22:13:20")], "", Some(DECIDED + 1));
        check(&[("Approved", "22:13:20"), ("Failed", "22:14:20")], "", Some(DECIDED + 61));
        // another condition decides nothing
        check(&[("Interesting", "22:13:20")], "", None);
    }
}
