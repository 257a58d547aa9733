//! Resource, namespace, name and subresource that a request path names.

use super::subresources::serves;
use crate::request::Target;
use rest::{ApiError, Resource};
use std::sync::Arc;

/// See the module.
pub(crate) struct Place<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl<'a> Place<'a> {
    /// A path that fits no form of the resource is 404; a verb that the form does not have is 405.
    pub(super) fn find(
        resource: &'a Arc<Resource>,
        target: &'a Target,
        verb: &str,
    ) -> Result<Self, ApiError> {
        let kind = &resource.kind;
        // `/namespaces/<name>` names a namespace as if it lay in itself
        let namespace =
            if kind.namespaced || target.namespace != target.name { &*target.namespace } else { "" };
        let (named, sub) = (!target.name.is_empty(), !target.subresource.is_empty());
        let proxied = !target.rest.is_empty() && target.subresource != "proxy";
        if !kind.namespaced && !namespace.is_empty()
            || kind.namespaced && named && namespace.is_empty()
            || proxied
        {
            return Err(ApiError::no_such_path());
        }
        if matches!(&*target.name, "." | "..") {
            let name = &target.name;
            return Err(ApiError::bad_request(format!(
                "Name parameter invalid: {name:?}: may not be '{name}'"
            )));
        }
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
            "watch" if target.watching => target.subresource.is_empty(),
            "list" | "watch" => !named,
            _ => false,
        };
        // a list that is asked for as a watch is a list that cannot be watched
        let listed = verb == "watch" && !target.watching && kind.verbs.iter().any(|one| one == "list");
        // what was made while the server runs can be changed as long as it is there
        let changed = !kind.kind_first && matches!(verb, "update" | "patch");
        if fits && (has(&kind.verbs) || listed || changed) {
            Ok(place)
        } else {
            Err(ApiError::method_not_allowed())
        }
    }
}
