//! Resource, namespace, name and subresource that a request path names.

use super::subresources::serves;
use crate::request::{RequestInfo, Target};
use http::Method;
use rest::options::WriteOptions;
use rest::{ApiError, Requester, Resource, WriteRequest};
use std::sync::Arc;

/// A request path resolved to a resource.
pub(crate) struct ResourcePath<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

/// Why a path or its verb does not exist for a custom resource.
pub(super) enum PathError {
    Path,
    Subresource,
    Verb,
}

impl<'a> ResourcePath<'a> {
    /// A write to the object of the path.
    pub(super) fn write_request(
        &self,
        options: &'a WriteOptions,
        user: &'a Requester,
        manager: &'a str,
    ) -> WriteRequest<'a> {
        WriteRequest {
            resource: self.resource,
            namespace: self.namespace,
            name: self.name,
            subresource: self.subresource,
            options,
            user,
            manager,
            owned: false,
            warnings: Vec::new(),
        }
    }

    pub(super) fn is_proxy(&self) -> bool {
        self.subresource == "proxy"
    }

    /// Resolves a path of a built-in resource. A path of no valid form is 404; a verb that the form does not
    /// have is 405.
    pub(super) fn find(
        resource: &'a Arc<Resource>,
        target: &'a Target,
        info: &RequestInfo,
    ) -> Result<Self, ApiError> {
        let (kind, verb) = (&resource.kind, info.verb);
        let namespace = if kind.namespaced || !target.is_namespace { &*target.namespace } else { "" };
        let (named, sub) = (!target.name.is_empty(), !target.subresource.is_empty());
        let proxied = !target.rest.is_empty() && target.subresource != "proxy";
        if !kind.namespaced && !namespace.is_empty()
            || kind.namespaced && named && namespace.is_empty()
            || proxied
        {
            return Err(ApiError::no_such_path());
        }
        let path = ResourcePath { resource, namespace, name: &target.name, subresource: &target.subresource };
        let has = |verbs: &[schema::table::Text]| verbs.iter().any(|one| one == verb);
        if sub {
            let part = resource.subresource(&target.subresource).filter(|part| serves(resource, &part.name));
            let part = part.ok_or_else(ApiError::no_such_path)?;
            // a proxy passes on a method that is no verb, too
            let passes = path.is_proxy() && info.method == Method::OPTIONS;
            return if passes || has(&part.verbs) { Ok(path) } else { Err(ApiError::method_not_allowed()) };
        }
        let whole_cluster = kind.namespaced && namespace.is_empty();
        let forms: &[&str] = match (named, whole_cluster) {
            _ if target.watching => &["watch"],
            (true, _) => &["get", "update", "patch", "delete"],
            (false, true) => &["list", "watch"],
            (false, false) => &["create", "list", "watch", "deletecollection"],
        };
        // a form of path without any verb
        if !kind.verbs.iter().any(|one| forms.contains(&&**one)) {
            return Err(ApiError::no_such_path());
        }
        let fits = match verb {
            "get" | "update" | "patch" | "delete" => named,
            "create" | "deletecollection" => !named && !whole_cluster,
            "watch" if target.watching => matches!(info.method, Method::GET | Method::HEAD),
            "list" | "watch" => !named,
            _ => false,
        };
        // a watch of a resource that cannot be watched counts as its list
        let listed = verb == "watch" && !target.watching && kind.verbs.iter().any(|one| one == "list");
        if fits && (has(&kind.verbs) || listed) { Ok(path) } else { Err(ApiError::method_not_allowed()) }
    }

    /// Resolves a path of a custom resource, where the verb decides and the form of the path does not: an
    /// object can be created at the path of an item, too, and segments after a subresource are ignored.
    pub(super) fn find_custom(
        resource: &'a Arc<Resource>,
        target: &'a Target,
        verb: &str,
    ) -> Result<Self, PathError> {
        let kind = &resource.kind;
        let namespace = &*target.namespace;
        let fits = match (kind.namespaced, namespace.is_empty()) {
            (true, true) => matches!(verb, "list" | "watch"),
            (namespaced, cluster_wide) => namespaced != cluster_wide,
        };
        if !fits {
            return Err(PathError::Path);
        }
        // the body names a new object
        let name = if verb == "create" { "" } else { &*target.name };
        let path = ResourcePath { resource, namespace, name, subresource: &target.subresource };
        let has = |verbs: &[schema::table::Text]| verbs.iter().any(|one| one == verb);
        let served = if target.subresource.is_empty() {
            // changes are accepted while the definition exists
            has(&kind.verbs) || matches!(verb, "update" | "patch")
        } else {
            let part = resource.subresource(&target.subresource).filter(|part| serves(resource, &part.name));
            has(&part.ok_or(PathError::Subresource)?.verbs)
        };
        if served { Ok(path) } else { Err(PathError::Verb) }
    }
}
