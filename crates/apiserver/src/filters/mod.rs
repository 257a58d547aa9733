//! Request filters: one linear list, run before a request is dispatched.
//!
//! 1. authentication: who is calling, by whatever was shown (`identity`). First, because everything below speaks of
//!    a user.
//! 2. audit: the request was received. Here, because the policy of the record speaks of the caller, and because
//!    whatever is refused below is recorded too.
//! 3. impersonation: the caller may act as somebody else if allowed to. Before authorization, which must see
//!    the user that the request is for.
//! 4. room: whether it is that user's turn (`fairness`), or whether that many requests are carried out at a time
//!    (`in_flight`). After impersonation, because turns are those of users; before authorization, which may have to
//!    ask others.
//! 5. authorization: whether that user may do this.

pub mod cors;
pub mod in_flight;

use crate::audit::AuditContext;
use crate::authentication::Chain;
use crate::discovery::metrics::Callers;
use crate::flowcontrol::{Busy, Fairness, Seat};
use crate::request::RequestInfo;
use crate::serve::Peer;
use auth::{Attributes, AuthError, Authorizer, Decision, User, forbidden_message, impersonate};
use http::HeaderMap;
use in_flight::InFlight;
use names::Names;
use rest::{Api, ApiError, RequestRecord, Step, Subject};
use std::sync::Arc;
use std::time::Duration;

/// Why a request goes no further.
#[derive(Debug)]
pub enum Refused {
    Api(ApiError),
    /// The headers of impersonation make no sense; clients are told so in plain text.
    Impersonation(AuthError),
    /// It could not be recorded, and the operator wants no request that is not.
    Unrecorded,
    /// Too many requests are being carried out; told in plain text too.
    NoRoom,
    /// Nobody could say whether this is permitted, and why; told in plain text too.
    Undecided(String),
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Refused::Api(error)
    }
}

/// Those who decide.
pub struct FilterContext<'a> {
    pub callers: &'a Chain,
    pub authorizer: &'a dyn Authorizer,
    pub names: &'a Names,
    pub in_flight: &'a Arc<InFlight>,
    pub fairness: Option<&'a Fairness>,
    pub api: &'a Api,
    /// Where the time that all this takes is counted.
    pub counted: &'a Callers,
    /// When the request came.
    pub came: Duration,
}

/// Time from filter to filter: the end of one is the beginning of the next.
struct Laps<'a> {
    api: &'a Api,
    notes: &'a RequestRecord,
    last: Duration,
}

impl Laps<'_> {
    /// A filter is behind the request; gives how long it took.
    fn lap(&mut self, step: Step) -> Duration {
        let now = self.api.world.elapsed();
        self.notes.reached(step, now);
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }
}

/// Runs the list; gives the user that the request is carried out for. Its seat is kept until it is done.
pub async fn pass(
    asked: &RequestInfo,
    headers: &HeaderMap,
    peer: &Peer,
    gate: &FilterContext<'_>,
    notes: &RequestRecord,
    seat: &mut Seat,
    mut trail: Option<&mut AuditContext<'_>>,
) -> Result<Arc<User>, Refused> {
    let FilterContext { authorizer, names, in_flight, fairness, api, counted, came, .. } = *gate;
    let mut laps = Laps { api, notes, last: came };
    let caller = match authenticate(headers, peer, gate, notes, &mut laps).await {
        Ok(caller) => caller,
        Err(error) => {
            unidentified(asked, trail);
            return Err(error.into());
        }
    };
    if let Some(trail) = &mut trail {
        if !trail.received(&caller, &attributes(asked, &caller)).get().await {
            trail.abandon();
            return Err(Refused::Unrecorded);
        }
        counted.filters.audit.took(laps.lap(Step::Recorded));
    }
    let user = act_as(caller.clone(), headers, authorizer, names, trail.as_deref_mut()).await?;
    if !Arc::ptr_eq(&user, &caller) {
        counted.filters.impersonation.took(laps.lap(Step::Impersonated));
    }
    if !in_flight::lasts(asked) {
        seat.place = Some(in_flight.enter(asked, &user).ok_or(Refused::NoRoom)?);
    }
    let wanted = attributes(asked, &user);
    if let Some(fairness) = fairness {
        let entered = fairness.enter(asked, &wanted, api, (seat, laps.last)).await;
        counted.filters.room.took(laps.lap(Step::Admissible));
        entered.map_err(|Busy| Refused::NoRoom)?;
    }
    let decision = authorizer.authorize(&wanted).get().await;
    counted.filters.authorization.took(laps.lap(Step::Authorized));
    if let Some(trail) = trail {
        trail.decided(&decision);
    }
    match decision.error() {
        Some(why) => return Err(Refused::Undecided(why.to_owned())),
        None => permitted(&wanted, &decision)?,
    }
    Ok(user)
}

/// Records a request that is refused before anybody knows who asked.
pub fn unidentified(asked: &RequestInfo, trail: Option<&mut AuditContext<'_>>) {
    if let Some(trail) = trail {
        trail.refused(&attributes(asked, &User::default()));
    }
}

async fn authenticate(
    headers: &HeaderMap,
    peer: &Peer,
    gate: &FilterContext<'_>,
    notes: &RequestRecord,
    laps: &mut Laps<'_>,
) -> Result<Arc<User>, ApiError> {
    let found = gate.callers.caller(headers, peer, notes).await;
    let took = laps.lap(Step::Authenticated);
    gate.counted.filters.authentication.took(took);
    match &found {
        Ok(user) => gate.counted.is(&user.name, took),
        Err(why) if why.is_nothing_shown() => gate.counted.unknown.took(took),
        Err(_) => gate.counted.refused.took(took),
    }
    found.map_err(|why| {
        tracing::debug!(remote = %peer.remote, %why, "a caller was not believed");
        ApiError::unauthorized()
    })
}

async fn act_as(
    caller: Arc<User>,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
    names: &Names,
    trail: Option<&mut AuditContext<'_>>,
) -> Result<Arc<User>, Refused> {
    let listed = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let group = names.group("authentication");
    let wanted = match impersonate::requested(listed, &group) {
        None => return Ok(caller),
        Some(wanted) => wanted.map_err(Refused::Impersonation)?,
    };
    for needed in wanted.needed(&caller, &group) {
        // what cannot be decided is not told here: who may not act as another learns no more than that
        permitted(&needed, &authorizer.authorize(&needed).get().await)?;
    }
    let user = Arc::new(wanted.user);
    if let Some(trail) = trail {
        trail.acts_as(&user);
    }
    Ok(user)
}

fn permitted(asked: &Attributes<'_>, decision: &Decision) -> Result<(), ApiError> {
    if decision.is_allowed() {
        return Ok(());
    }
    let subject = Subject { group: asked.api_group, kind: asked.resource, name: asked.name };
    Err(ApiError::forbidden(forbidden_message(asked, decision.reason()), subject))
}

/// The one name that a request for many objects selects: that counts as naming it.
fn selected_name(asked: &RequestInfo) -> &str {
    if !matches!(asked.verb, "list" | "watch" | "deletecollection") {
        return "";
    }
    let selector = asked.query.get("fieldSelector").unwrap_or("");
    let named = selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value))
    });
    let usable = |name: &&str| !name.contains(['/', '%', '\\']) && !matches!(*name, "." | "..");
    named.filter(usable).unwrap_or("")
}

fn attributes<'a>(asked: &'a RequestInfo, user: &'a User) -> Attributes<'a> {
    let plain = Attributes {
        user,
        verb: asked.verb,
        api_group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: &asked.path,
        resource_request: false,
    };
    match &asked.target {
        None => plain,
        Some(target) => Attributes {
            api_group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: if target.name.is_empty() { selected_name(asked) } else { &target.name },
            resource_request: true,
            ..plain
        },
    }
}
