//! Requests that the kubelet of a node must answer: logs, exec, attach, port forwarding.
//!
//! What always holds: whoever judges writes has judged the options of the request before anything else is done with
//! it. Reading logs is no such request.

use super::place::Place;
use super::request_context::RequestContext;
use super::resource::requester;
use super::service::Service;
use crate::serve::Body;
use http::Response;
use rest::{ApiError, ConnectRequest, Form};

impl Service {
    pub(super) async fn connect(
        &self,
        call: &RequestContext<'_>,
        place: &Place<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let (resource, sub) = (place.resource, place.subresource);
        if sub != "log" {
            self.judge(call, place).await?;
        }
        let name = if sub == "proxy" { proxied_name(place)? } else { place.name };
        self.api.get(resource, place.namespace, name, "").await?;
        let plural = &resource.kind.plural;
        Err(ApiError::unavailable(format!("no node agent can be reached for {sub:?} of {plural} {name:?}")))
    }

    async fn judge(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<(), ApiError> {
        let (resource, of_kind) = (place.resource, &place.resource.kind);
        let part = resource.subresource(place.subresource).ok_or_else(ApiError::no_such_path)?;
        let kind = kinds::tables::kind_named(&of_kind.group, &of_kind.version, &part.kind);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        let connecting = ConnectRequest {
            resource,
            namespace: place.namespace,
            name: place.name,
            subresource: place.subresource,
            user: &requester(call),
            form: Form { kind: &kind.name, api_version: &resource.api_version, ty: &kind.root },
        };
        let asked = &call.asked;
        if place.subresource != "proxy" {
            return self.api.connect(&connecting, &asked.query).await;
        }
        let mut query = asked.query.clone();
        query.pairs.retain(|(key, _)| key != "path");
        query.pairs.push(("path".to_owned(), path_behind(&asked.path, "proxy", place.namespace.is_empty())));
        self.api.connect(&connecting, &query).await
    }
}

/// The name of an object that requests are passed on to: it may stand between a scheme and a port, `https:name:8443`,
/// or before a port.
fn proxied_name<'a>(place: &Place<'a>) -> Result<&'a str, ApiError> {
    let parts: Vec<&str> = place.name.split(':').collect();
    let name = match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] => name,
        _ => "",
    };
    if name.is_empty() {
        let kind = place.resource.kind.name.to_lowercase();
        return Err(ApiError::bad_request(format!("invalid {kind} request {:?}", place.name)));
    }
    Ok(name)
}

/// What follows a subresource in a path, with the slash before it.
fn path_behind(path: &str, sub: &str, cluster: bool) -> String {
    // nothing before the first slash, the root, a group if any, the version, and what lies up to the subresource
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
    fn what_follows_a_subresource_is_kept_as_it_is() {
        for (path, cluster, behind) in [
            ("/api/v1/nodes/n/proxy", true, ""),
            ("/api/v1/nodes/n/proxy/", true, "/"),
            ("/api/v1/nodes/proxy/proxy/a/proxy/", true, "/a/proxy/"),
            ("/api/v1/namespaces/d/pods/p/proxy", false, ""),
            ("/api/v1/namespaces/d/pods/p/proxy/a b//c", false, "/a b//c"),
            ("/apis/g/v1/namespaces/d/pods/p/proxy/x", false, "/x"),
        ] {
            assert_eq!(path_behind(path, "proxy", cluster), behind, "{path}");
        }
    }
}
