//! Who is calling and may they: one linear list, run before anything of the request is carried out.
//!
//! 1. authentication: a verified client certificate, a known token, or nobody in particular. First, because everything
//!    below speaks of a user.
//! 2. impersonation: the caller may act as somebody else if allowed to. Before authorization, which must see
//!    the user that the request is for.
//! 3. authorization: whether that user may do this.

use crate::request::Asked;
use crate::serve::Peer;
use auth::tokens::{Authenticator, bearer};
use auth::{Attributes, Authorizer, User, forbidden_message, impersonate};
use http::HeaderMap;
use rest::{ApiError, Subject};
use std::sync::Arc;

/// Runs the list; gives the user that the request is carried out for.
pub fn pass(
    asked: &Asked,
    headers: &HeaderMap,
    peer: &Peer,
    authenticator: &dyn Authenticator,
    authorizer: &dyn Authorizer,
) -> Result<Arc<User>, ApiError> {
    let caller = authenticate(headers, peer, authenticator)?;
    let user = act_as(caller, headers)?;
    permit(asked, &user, authorizer)?;
    Ok(user)
}

fn authenticate(
    headers: &HeaderMap,
    peer: &Peer,
    authenticator: &dyn Authenticator,
) -> Result<Arc<User>, ApiError> {
    match &peer.certificate {
        Some(Ok(user)) => return Ok(user.clone()),
        Some(Err(why)) => {
            tracing::debug!(remote = %peer.remote, %why, "a client certificate was refused");
            return Err(ApiError::unauthorized());
        }
        None => {}
    }
    // a token that nobody knows is refused, not ignored; other schemes are nobody's
    let given = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match given.and_then(bearer) {
        Some(token) => {
            let known = authenticator.identify(token, &[]);
            known.map(|known| known.user).ok_or_else(ApiError::unauthorized)
        }
        None => Ok(Arc::new(User::anonymous())),
    }
}

fn act_as(caller: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, ApiError> {
    let listed = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let wanted = match impersonate::requested(listed) {
        None => return Ok(caller),
        Some(Ok(user)) => user,
        Some(Err(why)) => return Err(ApiError::internal_error(why.to_string())),
    };
    if !caller.is_in(auth::MASTERS) {
        let subject = Subject { group: "", kind: "users", name: &wanted.name };
        let why = format!(
            "User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            caller.name
        );
        return Err(ApiError::object_forbidden(subject, &why));
    }
    Ok(Arc::new(wanted))
}

fn permit(asked: &Asked, user: &User, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
    let attributes = attributes(asked, user);
    if authorizer.authorize(&attributes).is_allowed() {
        return Ok(());
    }
    let subject = Subject { group: attributes.api_group, kind: attributes.resource, name: attributes.name };
    Err(ApiError::forbidden(forbidden_message(&attributes), subject))
}

fn attributes<'a>(asked: &'a Asked, user: &'a User) -> Attributes<'a> {
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
            name: &target.name,
            resource_request: true,
            ..plain
        },
    }
}
