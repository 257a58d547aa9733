//! Requests that compute for long: carried out on threads for bulk work, and cut at their deadline.
//!
//! Whether a request is bulk is known before it is carried out, from what it sends and from what it asks for. Its
//! I/O thread waits for the result and answers at the deadline in any case.
//!
//! What always holds: the seat of a request stays taken until its work has ended, however long after its deadline or
//! after its client has gone that is. A write that has missed its deadline is not stored.

use super::request_context::RequestContext;
use super::service::Service;
use crate::flowcontrol::Seat;
use crate::serve::Body;
use http::Response;
use http::header::HeaderValue;
use parking_lot::Mutex;
use rest::{ApiError, RequestRecord};
use std::sync::Arc;

/// Decoding and validating a body of this size takes about a millisecond.
const BODY_BYTES: usize = 64 << 10;
/// A list of this many objects takes about as long.
const OBJECTS: usize = 500;

/// Tells the work on a request that its result is no longer awaited.
struct GiveUp(Arc<RequestRecord>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Service {
    /// Whether a request may compute for long.
    pub(super) fn is_bulk(&self, call: &RequestContext<'_>) -> bool {
        if call.body.len() >= BODY_BYTES {
            return true;
        }
        let Some(target) = &call.asked.target else { return call.asked.path.starts_with("/openapi/") };
        let begins_with_all = || matches!(call.asked.query.get("resourceVersion"), None | Some("" | "0"));
        match call.asked.verb {
            "list" | "patch" => {}
            "watch" if begins_with_all() => {}
            _ => return false,
        }
        let resources = self.api.resources();
        let Some(resource) = resources.get(&target.group_version, &target.resource) else { return false };
        let cache = &resource.collection.cache;
        if call.asked.verb != "patch" {
            return cache.snapshot().len() >= OBJECTS;
        }
        let current = cache.get(&target.namespace, &target.name);
        current.is_some_and(|object| object.json.len() >= BODY_BYTES)
    }

    /// Carries out a bulk request. To be dropped at its deadline.
    pub(super) async fn carry_out_in_bulk(
        self: &Arc<Self>,
        call: RequestContext<'_>,
        seat: &mut Seat,
        traceparent: Option<HeaderValue>,
    ) -> Result<Response<Body>, ApiError> {
        let exempt = seat.is_exempt() || call.user.is_in(auth::MASTERS);
        let threads = if exempt { &self.bulk.exempt } else { &self.bulk.others };
        let _give_up = GiveUp(call.notes.clone());
        // both hold it: who waits takes it back, or else it is free with the end of the work
        let held = Arc::new(Mutex::new(seat.hand_over()));
        let (service, working) = (self.clone(), held.clone());
        let (asked, headers) = (call.asked.clone(), call.headers.clone());
        let RequestContext { user, body, connection, notes, .. } = call;
        let work = async move {
            let _working = working;
            let call = RequestContext { asked: &asked, headers: &headers, user, body, connection, notes };
            service.carry_out(&call).await
        };
        let done = match traceparent {
            None => threads.run(work).await,
            Some(parent) => threads.run(outbound::within(parent, work)).await,
        };
        *seat = std::mem::take(&mut held.lock());
        done
    }
}
