//! Bulk requests: slow computations, run on bulk threads and cut at their deadline.
//!
//! A request is known to be bulk beforehand, from its body, its parameters, the objects that it reads, and the rules
//! that it is compared with. Its I/O thread waits for the result and responds at the deadline in any case.
//!
//! Invariants: the seat of a request stays occupied until its work has ended, even after its deadline or
//! after the client disconnected. A write that has missed its deadline is not stored.

use super::bulk_threads::BODY_BYTES;
use super::request_context::RequestContext;
use super::responses::ResponseFormat;
use super::service::Service;
use crate::flowcontrol::Seat;
use crate::negotiate::Output;
use crate::serve::Body;
use http::Response;
use http::header::HeaderValue;
use parking_lot::Mutex;
use rest::{ApiError, RequestRecord, Resource};
use std::sync::Arc;

/// A list of this many objects takes about as long.
const OBJECTS: usize = 500;

/// Cancels the work of a request on drop.
struct CancelOnDrop(Arc<RequestRecord>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Whether a request reads all rules of its user, which may be many: a write of a role or a binding is compared with
/// them, and a review lists them.
fn reads_all_rules(context: &RequestContext<'_>, resource: &Resource) -> bool {
    match &*resource.kind.group.stem {
        "rbac.authorization" => !context.user.is_in(auth::MASTERS) && context.info.verb != "delete",
        "authorization" => resource.kind.plural == "selfsubjectrulesreviews",
        _ => false,
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
        let resources = self.api.resources();
        let Some(resource) = resources.get(&target.group_version, &target.resource) else { return false };
        let begins_with_all = || matches!(context.info.query.get("resourceVersion"), None | Some("" | "0"));
        let has_many = || resource.collection.cache.snapshot().len() >= OBJECTS;
        let is_large = || {
            let current = resource.collection.cache.get(&target.namespace, &target.name);
            current.is_some_and(|object| object.json_len() >= BODY_BYTES)
        };
        match context.info.verb {
            "list" | "deletecollection" => has_many(),
            "watch" => begins_with_all() && has_many(),
            "get" => is_large() && !self.sends_stored_bytes(context, resource, &target.subresource),
            _ => is_large() || reads_all_rules(context, resource),
        }
    }

    /// Whether the response to a read of an object is the stored bytes.
    fn sends_stored_bytes(
        &self,
        context: &RequestContext<'_>,
        resource: &Resource,
        subresource: &str,
    ) -> bool {
        let format = ResponseFormat::of(context, &self.api.names, resource, false);
        let is_whole = format.is_ok_and(|it| it.output == Output::JSON && !it.pretty);
        is_whole && !resource.converts() && resource.view(subresource).is_none()
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
