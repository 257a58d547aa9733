//! Kinds that are answered and never kept: what somebody may do, who somebody is, how the parts are.
//!
//! Always true: an answer says what the authenticators and the authorizer of this server would decide, by
//! asking them. What is asked is checked first; nothing here decides anything itself.

mod access;
mod components;
mod rules;
mod who;

use crate::authentication::Chain;
use crate::options::deployment::ComponentHealth;
use auth::{Authorizer, User};
use rest::{Answer, Requester};
use schema::table::Kind;
use schema::{Map, Value};
use std::sync::Arc;
use store::Store;

/// What answers are made from.
#[derive(Clone)]
pub struct Sources {
    pub authorizer: Arc<dyn Authorizer>,
    pub callers: Arc<Chain>,
    pub store: Arc<dyn Store>,
    /// The components that run in the same process.
    pub components: Arc<[(&'static str, ComponentHealth)]>,
}

/// What answers for a kind, if it is one of these.
pub fn of(kind: &Kind, sources: &Sources) -> Option<Arc<dyn Answer>> {
    let sources = sources.clone();
    Some(match (&*kind.group.stem, &*kind.name) {
        ("authorization", "SubjectAccessReview") => {
            Arc::new(access::Review { sources, whose: access::Whose::Named })
        }
        ("authorization", "LocalSubjectAccessReview") => {
            Arc::new(access::Review { sources, whose: access::Whose::NamedHere })
        }
        ("authorization", "SelfSubjectAccessReview") => {
            Arc::new(access::Review { sources, whose: access::Whose::Own })
        }
        ("authorization", "SelfSubjectRulesReview") => Arc::new(rules::Review { sources }),
        ("authentication", "TokenReview") => Arc::new(who::TokenReview { sources }),
        ("authentication", "SelfSubjectReview") => Arc::new(who::SelfReview),
        ("", "ComponentStatus") => Arc::new(components::Components { sources }),
        _ => return None,
    })
}

/// The user behind a request, as authorizers know users.
pub(crate) fn user_of(requester: &Requester) -> User {
    User {
        name: requester.name.clone(),
        uid: requester.uid.clone(),
        groups: requester.groups.clone(),
        extra: requester.extra.iter().cloned().collect(),
    }
}

/// A user as the API writes one down.
pub(crate) fn user_value(user: &User) -> Value {
    let mut out = Value::map();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            out.set(&[field], text.as_str());
        }
    }
    if !user.groups.is_empty() {
        out.set(&["groups"], texts(&user.groups));
    }
    if !user.extra.is_empty() {
        out.set(&["extra"], extra_value(user));
    }
    out
}

/// What else is known of a user, as the API writes it down.
pub(crate) fn extra_value(user: &User) -> Value {
    let extra = user.extra.iter().map(|(key, values)| (key.clone().into(), texts(values)));
    Value::Map(extra.collect::<Map>())
}

pub(crate) fn texts(many: &[String]) -> Value {
    Value::List(many.iter().map(|one| Value::from(one.as_str())).collect())
}

/// The texts of a list.
pub(crate) fn list_of(value: &Value, path: &[&str]) -> Vec<String> {
    let Some(Value::List(items)) = value.at(path) else { return Vec::new() };
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
