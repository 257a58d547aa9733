//! Bulk requests: slow computations, run on bulk threads and cut at their deadline.
//!
//! A request is known to be bulk beforehand, from its body and its parameters. Its I/O thread waits for the
//! result and responds at the deadline in any case.
//!
//! Invariants: the seat of a request stays occupied until its work has ended, even after its deadline or
//! after the client disconnected. A write that has missed its deadline is not stored.

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

/// Cancels the work of a request on drop.
struct CancelOnDrop(Arc<RequestRecord>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Service {
    /// Whether a request may compute for long.
    pub(super) fn is_bulk(&self, context: &RequestContext<'_>) -> bool {
        // with a manual clock the order of all work follows from the requests, not from when a thread is done
        if self.clock.is_some() {
            return false;
        }
        if context.body.len() >= BODY_BYTES {
            return true;
        }
        let Some(target) = &context.info.target else { return context.info.path.starts_with("/openapi/") };
        let begins_with_all = || matches!(context.info.query.get("resourceVersion"), None | Some("" | "0"));
        match context.info.verb {
            "list" | "patch" => {}
            "watch" if begins_with_all() => {}
            _ => return false,
        }
        let resources = self.api.resources();
        let Some(resource) = resources.get(&target.group_version, &target.resource) else { return false };
        let cache = &resource.collection.cache;
        if context.info.verb != "patch" {
            return cache.snapshot().len() >= OBJECTS;
        }
        let current = cache.get(&target.namespace, &target.name);
        current.is_some_and(|object| object.json_len() >= BODY_BYTES)
    }

    /// Runs a bulk request. Dropped at its deadline.
    pub(super) async fn execute_in_bulk(
        self: &Arc<Self>,
        context: RequestContext<'_>,
        seat: &mut Seat,
        traceparent: Option<HeaderValue>,
    ) -> Result<Response<Body>, ApiError> {
        let exempt = seat.is_exempt() || context.user.is_in(auth::MASTERS);
        let threads = if exempt { &self.bulk.exempt } else { &self.bulk.others };
        let _give_up = CancelOnDrop(context.record.clone());
        // shared: the waiting side takes it back, or else the end of the work releases it
        let held = Arc::new(Mutex::new(seat.take_seats()));
        let (service, working) = (self.clone(), held.clone());
        let (info, headers) = (context.info.clone(), context.headers.clone());
        let RequestContext { user, body, connection, record, .. } = context;
        let work = async move {
            let _working = working;
            let stream = None;
            let context =
                RequestContext { info: &info, headers: &headers, user, body, connection, record, stream };
            service.execute(&context).await
        };
        let _hold = self.api.world.hold();
        let done = match traceparent {
            None => threads.run(work).await,
            Some(parent) => threads.run(outbound::within(parent, work)).await,
        };
        *seat = std::mem::take(&mut held.lock());
        done
    }
}
