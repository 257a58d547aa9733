//! Faults of calls to webhooks, in clusters for tests: a webhook that is slow, fails, or loses its connection.

use crate::faults::{CutPoint, Effect, Fault, Faults, Subject};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use outbound::HttpResponse;
use rest::AdmissionAttributes;
use std::sync::Arc;

/// The fault that a call meets.
pub(super) fn choose(
    faults: Option<&Faults>,
    webhook: &str,
    write: &AdmissionAttributes<'_>,
) -> Option<Arc<Fault>> {
    let faults = faults?;
    let verb = write.operation.name().to_ascii_lowercase();
    faults.choose(&Subject {
        verb: &verb,
        group: &write.resource.group,
        resource: &write.resource.kind.plural,
        subresource: write.subresource,
        namespace: write.namespace,
        name: write.name,
        user: &write.user.name,
        webhook,
        ..Subject::default()
    })
}

/// Makes a call that meets a fault. A delay goes by the clock of the cluster, and counts for the timeout of the webhook.
pub(super) async fn inject(
    fault: &Fault,
    write: &AdmissionAttributes<'_>,
    url: &str,
    call: impl Future<Output = Result<HttpResponse, String>>,
) -> Result<HttpResponse, String> {
    if let Some(delay) = fault.delay {
        env::sleep(&write.api.world, delay).await;
    }
    let lost = || Err(format!("Post {}: EOF", schema::problem::quoted(url)));
    match fault.effect {
        Effect::Status { code, retry_after_seconds } => Ok(response(fault, code, retry_after_seconds)),
        Effect::Cut(CutPoint::Request) => lost(),
        Effect::Cut(CutPoint::Response) => {
            let _ = call.await;
            lost()
        }
        Effect::Nothing | Effect::EndWatch(_) => call.await,
    }
}

fn response(fault: &Fault, code: u16, retry_after_seconds: u32) -> HttpResponse {
    let mut headers = HeaderMap::new();
    if retry_after_seconds > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    }
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse { status, headers, body: Bytes::from(fault.reason()) }
}
