//! Virtual resources: access reviews, token reviews, component statuses; the list of all of them.
//!
//! Invariant: a response is the decision of this server's authenticators or authorizer. Reviews are validated
//! first; no decision is made here.

mod access;
mod authentication;
mod components;
mod rules;
mod sources;
pub(crate) mod user_info;

pub use sources::Sources;

use crate::resource_metrics::{NodeMetrics, PodMetrics};
use rest::VirtualResource;
use schema::table::Kind;
use std::sync::Arc;

/// The virtual resource of a kind, if it has one.
pub fn of(kind: &Kind, sources: &Sources) -> Option<Arc<dyn VirtualResource>> {
    let sources = sources.clone();
    Some(match (&*kind.group.stem, &*kind.name) {
        ("authorization", "SubjectAccessReview") => {
            Arc::new(access::Review { sources, reviewed_user: access::ReviewedUser::InSpec })
        }
        ("authorization", "LocalSubjectAccessReview") => {
            Arc::new(access::Review { sources, reviewed_user: access::ReviewedUser::InSpecOfNamespace })
        }
        ("authorization", "SelfSubjectAccessReview") => {
            Arc::new(access::Review { sources, reviewed_user: access::ReviewedUser::Requester })
        }
        ("authorization", "SelfSubjectRulesReview") => Arc::new(rules::Review { sources }),
        ("authentication", "TokenReview") => Arc::new(authentication::TokenReview { sources }),
        ("authentication", "SelfSubjectReview") => Arc::new(authentication::SelfReview),
        ("metrics", "NodeMetrics") => Arc::new(NodeMetrics { collector: sources.usage }),
        ("metrics", "PodMetrics") => Arc::new(PodMetrics { collector: sources.usage }),
        ("", "ComponentStatus") => Arc::new(components::Components { sources }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
