//! `CONNECT` requests for the kubelet of a node: exec, attach, port forwarding, proxy; and logs.
//!
//! Invariant: admission sees the options of the request before anything else happens. Reading logs has no
//! admission.

use super::request_context::RequestContext;
use super::resource::requester;
use super::resource_path::ResourcePath;
use super::service::Service;
use crate::serve::Body;
use http::Response;
use rest::{ApiError, ConnectRequest, Form};

impl Service {
    pub(super) async fn connect(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let (resource, sub) = (path.resource, path.subresource);
        if sub != "log" {
            self.admit(context, path).await?;
        }
        let name = if sub == "proxy" { proxied_name(path)? } else { path.name };
        self.api.get(resource, path.namespace, name, "").await?;
        let plural = &resource.kind.plural;
        Err(ApiError::unavailable(format!("no node agent can be reached for {sub:?} of {plural} {name:?}")))
    }

    async fn admit(&self, context: &RequestContext<'_>, path: &ResourcePath<'_>) -> Result<(), ApiError> {
        let (resource, of_kind) = (path.resource, &path.resource.kind);
        let part = resource.subresource(path.subresource).ok_or_else(ApiError::no_such_path)?;
        let kind = kinds::tables::kind_named(&of_kind.group, &of_kind.version, &part.kind);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        let connecting = ConnectRequest {
            resource,
            namespace: path.namespace,
            name: path.name,
            subresource: path.subresource,
            user: &requester(context),
            form: Form { kind: &kind.name, api_version: &resource.api_version, ty: &kind.root },
        };
        let info = &context.info;
        if path.subresource != "proxy" {
            return self.api.connect(&connecting, &info.query).await;
        }
        let mut query = info.query.clone();
        query.pairs.retain(|(key, _)| key != "path");
        query.pairs.push(("path".to_owned(), path_after(&info.path, "proxy", path.namespace.is_empty())));
        self.api.connect(&connecting, &query).await
    }
}

/// The name of a proxied object: it may stand between a scheme and a port, `https:name:8443`, or before a
/// port.
fn proxied_name<'a>(path: &ResourcePath<'a>) -> Result<&'a str, ApiError> {
    let parts: Vec<&str> = path.name.split(':').collect();
    let name = match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] => name,
        _ => "",
    };
    if name.is_empty() {
        let kind = path.resource.kind.name.to_lowercase();
        return Err(ApiError::bad_request(format!("invalid {kind} request {:?}", path.name)));
    }
    Ok(name)
}

/// The path after a subresource, with its leading slash.
fn path_after(path: &str, sub: &str, cluster: bool) -> String {
    // an empty segment, the root, the group if any, the version, and the segments up to the subresource
    let group = usize::from(!path.starts_with("/api/"));
    let steps = group + if cluster { 6 } else { 8 };
    let mut parts = path.splitn(steps + 1, '/');
    match (parts.nth(steps - 1), parts.next()) {
        (Some(last), Some(rest)) if last == sub => format!("/{rest}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_after_a_subresource_is_unchanged() {
        for (path, cluster, behind) in [
            ("/api/v1/nodes/n/proxy", true, ""),
            ("/api/v1/nodes/n/proxy/", true, "/"),
            ("/api/v1/nodes/proxy/proxy/a/proxy/", true, "/a/proxy/"),
            ("/api/v1/namespaces/d/pods/p/proxy", false, ""),
            ("/api/v1/namespaces/d/pods/p/proxy/a b//c", false, "/a b//c"),
            ("/apis/g/v1/namespaces/d/pods/p/proxy/x", false, "/x"),
        ] {
            assert_eq!(path_after(path, "proxy", cluster), behind, "{path}");
        }
    }
}
