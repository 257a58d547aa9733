//! `CONNECT` requests for the kubelet of a node: exec, attach, port forwarding, proxy; and logs.
//!
//! Invariant: admission sees the options of the request before anything else happens. Reading logs has no
//! admission.

use super::request_context::RequestContext;
use super::resource::requester;
use super::resource_path::ResourcePath;
use super::service::Service;
use crate::node_proxy::{Location, LogOptions, NodeRequest, ProxyName, container, location};
use crate::serve::Body;
use http::{Response, StatusCode};
use rest::{ApiError, ConnectRequest, Form, Subject};
use schema::Value;
use schema::problem::quoted;

impl Service {
    pub(super) async fn connect(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let sub = path.subresource;
        if sub != "log" {
            if context.info.query.get("dryRun").is_some() {
                return Err(ApiError::bad_request("dryRun is not supported"));
            }
            self.admit(context, path).await?;
        }
        let query = &context.info.query;
        match (&*path.resource.kind.plural, sub) {
            (_, "proxy") => Box::pin(self.proxy(context, path)).await,
            ("pods", "log") => Box::pin(self.log(context, path)).await,
            ("pods", _) => {
                let pod = self.object(path, "pods", path.namespace, path.name).await?;
                let agent_path = match sub {
                    "portforward" => location::port_forward_path(&pod, query),
                    _ => location::command_path(&pod, sub, query)?,
                };
                let Some(node) = location::node_of(&pod) else {
                    let message = format!("pod {} does not have a host assigned", path.name);
                    return Err(ApiError::bad_request(message));
                };
                let location = self.agent_of(path, node, agent_path).await?;
                Box::pin(self.node_proxy.connect(self.node_request(context)?, &location)).await
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    async fn log(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let options = LogOptions::read(&context.info.query, path.name)?;
        let pod = self.object(path, "pods", path.namespace, path.name).await?;
        let container = container::resolve(&options.container, &pod)?;
        let Some(node) = location::node_of(&pod) else {
            // a pod without a node has no log
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        };
        let location = self.agent_of(path, node, options.path(&pod, container)).await?;
        self.node_proxy.log(&location, path.name, !options.insecure).await
    }

    async fn proxy(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let kind = path.resource.kind.name.to_lowercase();
        let request = ProxyName::parse(path.name, &kind)?;
        let location = match &*path.resource.kind.plural {
            "pods" => {
                let pod = self.object(path, "pods", path.namespace, request.name).await?;
                let authority = location::pod_address(&pod, request.port)?;
                Location { scheme: request.scheme, authority, path: String::new(), is_agent: false }
            }
            "services" => self.proxied_service(path, &request).await?,
            _ => self.proxied_node(path, &request).await?,
        };
        let rest = path_after(&context.info.path, "proxy", path.namespace.is_empty());
        self.node_proxy.proxy(self.node_request(context)?, &location, &rest).await
    }

    async fn proxied_service(
        &self,
        path: &ResourcePath<'_>,
        request: &ProxyName<'_>,
    ) -> Result<Location, ApiError> {
        let service = match request.port.parse::<i64>() {
            Ok(_) => self.object(path, "services", path.namespace, request.name).await?,
            Err(_) => Value::Null,
        };
        let port = location::service_port_name(&service, request.name, request.port)?;
        let endpoints = self.object(path, "endpoints", path.namespace, request.name).await?;
        let none =
            |name| ApiError::unavailable(format!("no endpoints available for service {}", quoted(name)));
        if endpoints.items(&["subsets"]).is_empty() {
            return Err(none(request.name));
        }
        let is_pod = |namespace: &str, name: &str, ip: &str| {
            let pod = self.api.lookup("pods", namespace, name).filter(|_| namespace == path.namespace);
            let ips = |pod: &Value| pod.items(&["status", "podIPs"]).iter().any(|it| it.text(&["ip"]) == ip);
            pod.is_some_and(|pod| pod.text(&["status", "podIP"]) == ip || ips(&pod))
        };
        let mut addresses = location::endpoint_addresses(&endpoints, port, is_pod);
        if addresses.is_empty() {
            return Err(none(path.name));
        }
        let index = (env::random_u64(&self.api.world) % addresses.len() as u64) as usize;
        let authority = addresses.swap_remove(index);
        Ok(Location { scheme: request.scheme, authority, path: String::new(), is_agent: false })
    }

    async fn proxied_node(
        &self,
        path: &ResourcePath<'_>,
        request: &ProxyName<'_>,
    ) -> Result<Location, ApiError> {
        let node = self.object(path, "nodes", "", request.name).await?;
        let agent = location::agent(&node, self.node_proxy.options())?;
        if request.port.is_empty() || request.port == agent.port.to_string() {
            return Ok(agent.location(String::new()));
        }
        let host = agent.host;
        env::io::timeout(self.node_proxy.options().timeout, check_host(&host))
            .await
            .unwrap_or_else(|_| Err(ApiError::bad_request(format!("lookup {host}: timed out"))))?;
        let authority = location::host_port(&host, request.port);
        Ok(Location { scheme: request.scheme, authority, path: String::new(), is_agent: false })
    }

    /// The agent of a node.
    async fn agent_of(
        &self,
        path: &ResourcePath<'_>,
        node: &str,
        agent_path: String,
    ) -> Result<Location, ApiError> {
        let node = self.object(path, "nodes", "", node).await?;
        Ok(location::agent(&node, self.node_proxy.options())?.location(agent_path))
    }

    /// The newest state of an object that a request needs. If there is none, the error has its name and the resource of
    /// the request, as upstream's has: `pods "node-1" not found`.
    async fn object(
        &self,
        path: &ResourcePath<'_>,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, ApiError> {
        self.api.catch_up().await?;
        let subject = Subject { group: "", kind: &path.resource.kind.plural, name };
        self.api.lookup(plural, namespace, name).ok_or_else(|| ApiError::not_found(subject))
    }

    fn node_request<'a>(&'a self, context: &'a RequestContext<'_>) -> Result<NodeRequest<'a>, ApiError> {
        let stream = context.stream.as_ref();
        let stream = stream.ok_or_else(|| ApiError::internal("the request cannot be forwarded"))?;
        let body = stream.body.lock().take();
        Ok(NodeRequest { parts: stream.parts, peer: stream.peer, callers: &self.access.callers, body })
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

/// Checks that a host has addresses, and that each of them may be proxied to. Names and short forms of addresses, such as
/// `127.1`, are resolved as a connection resolves them.
async fn check_host(host: &str) -> Result<(), ApiError> {
    let found = tokio::net::lookup_host((host, 0)).await;
    let found = found.map_err(|why| ApiError::bad_request(format!("lookup {host}: {why}")))?;
    let found: Vec<_> = found.collect();
    match !found.is_empty() && found.iter().all(|it| location::is_global_unicast(it.ip())) {
        true => Ok(()),
        false => Err(ApiError::bad_request("address not allowed")),
    }
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
