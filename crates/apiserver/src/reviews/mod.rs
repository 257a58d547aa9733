//! Virtual resources: access reviews, token reviews, component statuses.
//!
//! Always true: an answer says what the authenticators and the authorizer of this server would decide, by
//! asking them. What is asked is checked first; nothing here decides anything itself.

mod access;
mod components;
mod rules;
mod sources;
mod user_info;
mod who;

pub use sources::Sources;
pub(crate) use user_info::{extra_value, list_of, texts, user_of, user_value};

use rest::VirtualResource;
use schema::table::Kind;
use std::sync::Arc;

/// What answers for a kind, if it is one of these.
pub fn of(kind: &Kind, sources: &Sources) -> Option<Arc<dyn VirtualResource>> {
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

#[cfg(test)]
mod tests;
