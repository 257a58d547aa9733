//! Request filters: one linear list, run before a request is dispatched.
//!
//! 1. authentication: identifies the user by credentials (`authentication`). First, because all others depend
//!    on the user.
//! 2. audit: records that the request was received. Here, because the policy depends on the user, and because
//!    refusals of the filters below are recorded too.
//! 3. impersonation: replaces the user, if permitted. Before authorization, which must see the effective
//!    user.
//! 4. flow control: priority and fairness (`flowcontrol`), or limits of requests in flight (`in_flight`).
//!    After impersonation, because flows belong to users; before authorization, which may call a webhook.
//! 5. authorization: decides whether the user may perform the request.

pub mod cors;
pub mod in_flight;

use crate::audit::AuditContext;
use crate::authentication::Chain;
use crate::discovery::metrics::Callers;
use crate::flowcontrol::{Fairness, Seat, TooManyRequests};
use crate::request::RequestInfo;
use crate::serve::Peer;
use auth::{Attributes, AuthError, Authorizer, Decision, User, forbidden_message, impersonate};
use http::HeaderMap;
use in_flight::InFlight;
use names::Names;
use rest::{Api, ApiError, RequestRecord, Step, Subject};
use std::sync::Arc;
use std::time::Duration;

/// Why a filter refuses a request.
#[derive(Debug)]
pub enum Refusal {
    Api(ApiError),
    /// Invalid impersonation headers; answered in plain text.
    Impersonation(AuthError),
    /// The audit event could not be written, and the operator requires it.
    AuditFailed,
    /// Too many requests in flight; answered in plain text too.
    TooManyRequests,
    /// The authorizers failed to decide, with the error; answered in plain text too.
    Undecided(String),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Refusal::Api(error)
    }
}

/// The components that the filters call.
pub struct FilterContext<'a> {
    pub callers: &'a Chain,
    pub authorizer: &'a dyn Authorizer,
    pub names: &'a Names,
    pub in_flight: &'a Arc<InFlight>,
    pub fairness: Option<&'a Fairness>,
    pub api: &'a Api,
    /// Metrics of authentication and filters.
    pub metrics: &'a Callers,
    /// When the request arrived.
    pub received: Duration,
}

/// Time from filter to filter: the end of one is the beginning of the next.
struct Laps<'a> {
    api: &'a Api,
    record: &'a RequestRecord,
    last: Duration,
}

impl Laps<'_> {
    /// Ends a step; returns how long it took.
    fn lap(&mut self, step: Step) -> Duration {
        let now = self.api.world.elapsed();
        self.record.reached(step, now);
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }
}

/// Runs the filters; returns the effective user. The seat is held until the request ends.
pub async fn pass(
    info: &RequestInfo,
    headers: &HeaderMap,
    peer: &Peer,
    context: &FilterContext<'_>,
    record: &RequestRecord,
    seat: &mut Seat,
    mut audit: Option<&mut AuditContext<'_>>,
) -> Result<Arc<User>, Refusal> {
    let FilterContext { authorizer, names, in_flight, fairness, api, metrics, received, .. } = *context;
    let mut laps = Laps { api, record, last: received };
    let caller = match authenticate(headers, peer, context, record, &mut laps).await {
        Ok(caller) => caller,
        Err(error) => {
            record_unauthenticated(info, audit);
            return Err(error.into());
        }
    };
    if let Some(audit) = &mut audit {
        if !audit.record_received(&caller, &attributes(info, &caller)).get().await {
            audit.abandon();
            return Err(Refusal::AuditFailed);
        }
        metrics.filters.audit.took(laps.lap(Step::Recorded));
    }
    let user = act_as(caller.clone(), headers, authorizer, names, audit.as_deref_mut()).await?;
    if !Arc::ptr_eq(&user, &caller) {
        metrics.filters.impersonation.took(laps.lap(Step::Impersonated));
    }
    if !in_flight::is_long_running(info) {
        seat.slot = Some(in_flight.enter(info, &user).ok_or(Refusal::TooManyRequests)?);
    }
    let attributes = attributes(info, &user);
    if let Some(fairness) = fairness {
        let entered = fairness.enter(info, &attributes, api, (seat, laps.last)).await;
        metrics.filters.flow_control.took(laps.lap(Step::Admissible));
        entered.map_err(|TooManyRequests| Refusal::TooManyRequests)?;
    }
    let decision = authorizer.authorize(&attributes).get().await;
    metrics.filters.authorization.took(laps.lap(Step::Authorized));
    if let Some(audit) = audit {
        audit.record_decision(&decision);
    }
    match decision.error() {
        Some(why) => return Err(Refusal::Undecided(why.to_owned())),
        None => check_decision(&attributes, &decision)?,
    }
    Ok(user)
}

/// Records a request that is refused before authentication.
pub fn record_unauthenticated(info: &RequestInfo, audit: Option<&mut AuditContext<'_>>) {
    if let Some(audit) = audit {
        audit.record_refusal(&attributes(info, &User::default()));
    }
}

async fn authenticate(
    headers: &HeaderMap,
    peer: &Peer,
    context: &FilterContext<'_>,
    record: &RequestRecord,
    laps: &mut Laps<'_>,
) -> Result<Arc<User>, ApiError> {
    let authenticated = context.callers.authenticate(headers, peer, record).await;
    let took = laps.lap(Step::Authenticated);
    context.metrics.filters.authentication.took(took);
    match &authenticated {
        Ok(user) => context.metrics.record(&user.name, took),
        Err(why) if why.has_no_credentials() => context.metrics.anonymous.took(took),
        Err(_) => context.metrics.refused.took(took),
    }
    authenticated.map_err(|why| {
        tracing::debug!(remote = %peer.remote, %why, "authentication failed");
        ApiError::unauthorized()
    })
}

async fn act_as(
    caller: Arc<User>,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
    names: &Names,
    audit: Option<&mut AuditContext<'_>>,
) -> Result<Arc<User>, Refusal> {
    let listed = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let group = names.group("authentication");
    let attributes = match impersonate::requested(listed, &group) {
        None => return Ok(caller),
        Some(attributes) => attributes.map_err(Refusal::Impersonation)?,
    };
    for needed in attributes.needed(&caller, &group) {
        // authorizer errors are hidden here: a user who may not impersonate learns no more than that
        check_decision(&needed, &authorizer.authorize(&needed).get().await)?;
    }
    let user = Arc::new(attributes.user);
    if let Some(audit) = audit {
        audit.impersonate(&user);
    }
    Ok(user)
}

fn check_decision(info: &Attributes<'_>, decision: &Decision) -> Result<(), ApiError> {
    if decision.is_allowed() {
        return Ok(());
    }
    let subject = Subject { group: info.api_group, kind: info.resource, name: info.name };
    Err(ApiError::forbidden(forbidden_message(info, decision.reason()), subject))
}

/// The one name that a field selector of a collection request selects, which counts as the request's name.
fn selected_name(info: &RequestInfo) -> &str {
    if !matches!(info.verb, "list" | "watch" | "deletecollection") {
        return "";
    }
    let selector = info.query.get("fieldSelector").unwrap_or("");
    let named = selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    });
    let usable = |name: &&str| !name.contains(['/', '%', '\\']) && !matches!(*name, "." | "..");
    named.filter(usable).unwrap_or("")
}

fn attributes<'a>(info: &'a RequestInfo, user: &'a User) -> Attributes<'a> {
    let plain = Attributes {
        user,
        verb: info.verb,
        api_group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: &info.path,
        resource_request: false,
    };
    match &info.target {
        None => plain,
        Some(target) => Attributes {
            api_group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: if target.name.is_empty() { selected_name(info) } else { &target.name },
            resource_request: true,
            ..plain
        },
    }
}
