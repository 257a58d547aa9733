//! Resource, namespace, name and subresource that a request path names.

use super::subresources::serves;
use crate::request::{RequestInfo, Target};
use http::Method;
use rest::{ApiError, Resource};
use std::sync::Arc;

/// See the module.
pub(crate) struct Place<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

/// The reason why a path or its verb has no place in a custom resource.
pub(super) enum Misplaced {
    Path,
    Subresource,
    Verb,
}

impl<'a> Place<'a> {
    /// Finds the place in a built-in resource. A path that fits no form of the resource is 404; a verb that the form
    /// does not have is 405.
    pub(super) fn find(
        resource: &'a Arc<Resource>,
        target: &'a Target,
        asked: &RequestInfo,
    ) -> Result<Self, ApiError> {
        let (kind, verb) = (&resource.kind, asked.verb);
        let namespace = if kind.namespaced || !target.is_namespace { &*target.namespace } else { "" };
        let (named, sub) = (!target.name.is_empty(), !target.subresource.is_empty());
        let proxied = !target.rest.is_empty() && target.subresource != "proxy";
        if !kind.namespaced && !namespace.is_empty()
            || kind.namespaced && named && namespace.is_empty()
            || proxied
        {
            return Err(ApiError::no_such_path());
        }
        check_segment(&target.name)?;
        let place = Place { resource, namespace, name: &target.name, subresource: &target.subresource };
        let has = |verbs: &[schema::table::Text]| verbs.iter().any(|one| one == verb);
        if sub {
            let part = resource.subresource(&target.subresource).filter(|part| serves(resource, &part.name));
            let part = part.ok_or_else(ApiError::no_such_path)?;
            return if has(&part.verbs) { Ok(place) } else { Err(ApiError::method_not_allowed()) };
        }
        let whole_cluster = kind.namespaced && namespace.is_empty();
        let forms: &[&str] = match (named, whole_cluster) {
            _ if target.watching => &["watch"],
            (true, _) => &["get", "update", "patch", "delete"],
            (false, true) => &["list", "watch"],
            (false, false) => &["create", "list", "watch", "deletecollection"],
        };
        // a form of path that none of the verbs has
        if !kind.verbs.iter().any(|one| forms.contains(&&**one)) {
            return Err(ApiError::no_such_path());
        }
        let fits = match verb {
            "get" | "update" | "patch" | "delete" => named,
            "create" | "deletecollection" => !named && !whole_cluster,
            "watch" if target.watching => matches!(asked.method, Method::GET | Method::HEAD),
            "list" | "watch" => !named,
            _ => false,
        };
        // a list that is asked for as a watch is a list that cannot be watched
        let listed = verb == "watch" && !target.watching && kind.verbs.iter().any(|one| one == "list");
        if fits && (has(&kind.verbs) || listed) { Ok(place) } else { Err(ApiError::method_not_allowed()) }
    }

    /// Finds the place in a custom resource, where the verb decides and the form of the path does not: an object is
    /// created at the path of an item, too, and segments behind a subresource are overlooked.
    pub(super) fn find_custom(
        resource: &'a Arc<Resource>,
        target: &'a Target,
        verb: &str,
    ) -> Result<Self, Misplaced> {
        let kind = &resource.kind;
        let namespace = &*target.namespace;
        let fits = match (kind.namespaced, namespace.is_empty()) {
            (true, true) => matches!(verb, "list" | "watch"),
            (namespaced, cluster_wide) => namespaced != cluster_wide,
        };
        if !fits {
            return Err(Misplaced::Path);
        }
        // the body names a new object
        let name = if verb == "create" { "" } else { &*target.name };
        let place = Place { resource, namespace, name, subresource: &target.subresource };
        let has = |verbs: &[schema::table::Text]| verbs.iter().any(|one| one == verb);
        let served = if target.subresource.is_empty() {
            // changes are taken as long as the definition is there
            has(&kind.verbs) || matches!(verb, "update" | "patch")
        } else {
            let part = resource.subresource(&target.subresource).filter(|part| serves(resource, &part.name));
            has(&part.ok_or(Misplaced::Subresource)?.verbs)
        };
        if served { Ok(place) } else { Err(Misplaced::Verb) }
    }
}

/// Refuses a name that cannot be a segment of a path.
pub(super) fn check_segment(name: &str) -> Result<(), ApiError> {
    match name {
        "." | ".." => {
            Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: may not be '{name}'")))
        }
        _ => Ok(()),
    }
}
