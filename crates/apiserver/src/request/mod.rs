//! `RequestInfo`: verb, group, resource, name and subresource of a request.
//!
//! Parsing does not depend on whether the resource exists. A path is unescaped before it is split: an escaped
//! slash separates segments like any other.

use http::Method;
use rest::options::Query;
use schema::url::unescape_path;

/// The parsed request line.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    pub method: Method,
    /// Unescaped; bytes that are not UTF-8 are replaced.
    pub path: String,
    pub query: Query,
    /// The API verb, or the method in lower case for nonresource paths.
    pub verb: &'static str,
    /// Present when the path names a resource.
    pub target: Option<Target>,
}

/// The resource that a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    /// `v1` or `apps/v1`, as resources are registered.
    pub group_version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// The path after the subresource, for proxies.
    pub rest: String,
    /// Whether the path has the deprecated `/watch/` prefix.
    pub watching: bool,
    /// Whether the path is `/namespaces/<name>`: the namespace counts as namespaced by itself.
    pub is_namespace: bool,
}

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, query: &str) -> Self {
        let mut query = Query::parse(query);
        let path = match path.contains('%') {
            true => String::from_utf8_lossy(&unescape_path(path)).into_owned(),
            false => path.to_owned(),
        };
        let target = target(&path);
        if let Some(target) = target.as_ref().filter(|target| target.watching && !target.name.is_empty()) {
            // a selector in the query must select the same name, which is checked with the other options
            if query.get("fieldSelector").is_none_or(str::is_empty) {
                query.pairs.retain(|(key, _)| key != "fieldSelector");
                query.pairs.push(("fieldSelector".to_owned(), format!("metadata.name={}", target.name)));
            }
        }
        let verb = match &target {
            None => plain_verb(method),
            Some(target) => verb(method, target, &query),
        };
        RequestInfo { method: method.clone(), path, query, verb, target }
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "other",
    }
}

fn verb(method: &Method, target: &Target, query: &Query) -> &'static str {
    match (method.as_str(), target.name.is_empty()) {
        // for every method
        _ if target.watching => "watch",
        ("GET" | "HEAD", true) if query.flag("watch") => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "",
    }
}

fn target(path: &str) -> Option<Target> {
    let mut parts: Vec<String> = path.trim_matches('/').split('/').map(str::to_owned).collect();
    let prefix = match parts.first().map(String::as_str) {
        Some("api") => 2,
        Some("apis") => 3,
        _ => return None,
    };
    if parts.len() <= prefix {
        return None;
    }
    let mut rest = parts.split_off(prefix).into_iter().peekable();
    let version = parts.pop()?;
    let group = if prefix == 3 { parts.pop().filter(|group| !group.is_empty())? } else { String::new() };
    let group_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
    let mut target = Target { group, version, group_version, ..Target::default() };
    let mut first = rest.next()?;
    if first == "watch" {
        target.watching = true;
        first = rest.next()?;
    }
    if first == "namespaces" {
        let Some(namespace) = rest.next() else {
            target.resource = first;
            return Some(target);
        };
        target.namespace = namespace.clone();
        let part = rest.next();
        target.is_namespace =
            part.as_deref().is_none_or(|part| matches!(part, "status" | "finalize") && rest.peek().is_none());
        match part {
            // the namespace itself, or a subresource of it
            part if target.is_namespace => {
                (target.resource, target.name) = (first, namespace);
                target.subresource = part.unwrap_or_default();
            }
            resource => target.resource = resource.unwrap_or_default(),
        }
    } else {
        target.resource = first;
    }
    if target.name.is_empty() {
        target.name = rest.next().unwrap_or_default();
        target.subresource = rest.next().unwrap_or_default();
    }
    target.rest = rest.collect::<Vec<_>>().join("/");
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expect: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let info = RequestInfo::parse(&Method::from_bytes(method.as_bytes()).unwrap(), path, query);
        let text = match &info.target {
            None => format!("{} {}", info.verb, info.path),
            Some(t) => format!(
                "{} {} ns={} {} {} {}{}",
                info.verb, t.group_version, t.namespace, t.resource, t.name, t.subresource, t.rest
            ),
        };
        assert_eq!(text, expect, "{method} {path}");
    }

    #[test]
    fn paths_are_parsed() {
        check("GET", "/healthz", "get /healthz");
        check("GET", "/api/v1", "get /api/v1");
        check("GET", "/api/v1/pods", "list v1 ns= pods  ");
        check("GET", "/api/v1/pods?watch=1", "watch v1 ns= pods  ");
        check("GET", "/api/v1/namespaces", "list v1 ns= namespaces  ");
        check("GET", "/api/v1/namespaces/a", "get v1 ns=a namespaces a ");
        check("PUT", "/api/v1/namespaces/a/finalize", "update v1 ns=a namespaces a finalize");
        check("DELETE", "/api/v1/namespaces/a/pods", "deletecollection v1 ns=a pods  ");
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "patch apps/v1 ns=a deployments d scale",
        );
        check("GET", "/api/v1/namespaces/a/pods/p/proxy/x/y", "get v1 ns=a pods p proxyx/y");
        check("GET", "/api/v1%2fpods/a+b%20c%2Fstatus", "get v1 ns= pods a+b c status");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch v1 ns=a pods p ");
        check("DELETE", "/api/v1/watch/namespaces/a/pods/p", "watch v1 ns=a pods p ");
        check("POST", "/apis/node.k8s.io/v1/runtimeclasses", "create node.k8s.io/v1 ns= runtimeclasses  ");
    }
}
