//! Paths and methods.

use super::authorization::{Decision, subresource, verb};
use super::body::{self, Body};
use super::port::Port;
use super::request_span::RequestSpan;
use super::service::{MetricsPage, Service};
use super::user::CertificateUser;
use super::{
    checkpoint, commands, container_logs, handlers, local_volumes, log_files, port_forward, profiles,
};
use crate::configuration::Configuration;
use crate::stats::counters::RequestLabels;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use names::local_volumes::AGENT_PATH;

/// A path of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Healthz,
    Pods,
    RunningPods,
    Configz,
    Metrics(MetricsPage),
    ContainerLogs,
    Logs,
    Exec,
    Attach,
    Run,
    PortForward,
    DebugVerbosity,
    Profile,
    Checkpoint,
    /// The folder of a local volume.
    LocalVolume,
    /// A path below a prefix that exists, without a page.
    Nothing,
}

/// Methods of a route; empty means all of them.
fn methods(route: &Route) -> &'static [Method] {
    match route {
        Route::Pods | Route::RunningPods | Route::ContainerLogs | Route::Logs => &[Method::GET],
        Route::Metrics(MetricsPage::Summary) => &[Method::GET, Method::POST],
        Route::Exec | Route::Attach | Route::PortForward => &[Method::GET, Method::POST],
        Route::Run | Route::Checkpoint => &[Method::POST],
        Route::LocalVolume => &[Method::PUT, Method::DELETE],
        _ => &[],
    }
}

/// The route of a path, `None` if the path does not exist.
pub fn find(path: &str, port: Port) -> Option<Route> {
    let below =
        |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if port == Port::Healthz {
        return (path == "/healthz").then_some(Route::Healthz);
    }
    let route = match path {
        "/pods" | "/pods/" => Route::Pods,
        "/stats/summary" => Route::Metrics(MetricsPage::Summary),
        "/metrics" => Route::Metrics(MetricsPage::Agent),
        "/metrics/cadvisor" => Route::Metrics(MetricsPage::Cadvisor),
        "/metrics/resource" => Route::Metrics(MetricsPage::Resource),
        "/metrics/probes" => Route::Metrics(MetricsPage::Probes),
        "/healthz" | "/healthz/ping" | "/healthz/log" | "/healthz/syncloop" => Route::Healthz,
        _ if below("/stats").is_some() => Route::Nothing,
        _ if port == Port::ReadOnly => return None,
        "/configz" => Route::Configz,
        "/runningpods" | "/runningpods/" => Route::RunningPods,
        "/debug/flags/v" => Route::DebugVerbosity,
        _ if below("/logs").is_some() => Route::Logs,
        _ if below("/containerLogs").is_some() => Route::ContainerLogs,
        _ if below("/exec").is_some() => Route::Exec,
        _ if below("/attach").is_some() => Route::Attach,
        _ if below("/run").is_some() => Route::Run,
        _ if below("/portForward").is_some() => Route::PortForward,
        _ if below("/checkpoint").is_some() => Route::Checkpoint,
        _ if below("/debug/pprof").is_some() => Route::Profile,
        _ if below(AGENT_PATH).is_some() => Route::LocalVolume,
        _ => return None,
    };
    Some(route)
}

/// Handles one request.
pub async fn respond(
    service: &Service,
    request: Request<Incoming>,
    port: Port,
    certificate: &CertificateUser,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if let Some(clean) = cleaned(&path) {
        return log_files::moved(&clean, request.uri().query());
    }
    let _request = service.deps.counters.request(labels(request.method(), &path, port));
    let config = &service.deps.configuration;
    let route = find(&path, port).filter(|route| match route {
        Route::DebugVerbosity => config.flag(&["enableDebuggingHandlers"]),
        Route::Checkpoint => service.deps.has_checkpoints && config.flag(&["enableDebuggingHandlers"]),
        Route::LocalVolume => service.deps.local_volumes.is_some(),
        _ => true,
    });
    let Some(route) = route else { return body::not_found() };
    let traced = service.deps.tracer.as_ref().zip(template(&route, &path));
    let span = traced.and_then(|(tracer, name)| RequestSpan::begin(tracer, &request, name));
    let Some(span) = span else {
        return answer(service, request, port, certificate, route).await;
    };
    let answer = answer(service, request, port, certificate, route);
    // calls to the runtime and the API server belong to the request
    let response = match span.open.context.header() {
        Some(parent) => outbound::within(parent, answer).await,
        None => answer.await,
    };
    span.end(response.status());
    response
}

/// Handles one request for a page that exists.
async fn answer(
    service: &Service,
    request: Request<Incoming>,
    port: Port,
    certificate: &CertificateUser,
    route: Route,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let config = &service.deps.configuration;
    if port == Port::Main
        && let Err(refused) = authorize(service, &request, &path, certificate).await
    {
        return *refused;
    }
    if let Some(why) = refusal(&route, config) {
        return body::error(StatusCode::METHOD_NOT_ALLOWED, why);
    }
    let allowed = methods(&route);
    if !allowed.is_empty() && !allowed.contains(request.method()) {
        return body::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    }
    match route {
        Route::Healthz => handlers::healthz(service, &request, port),
        Route::Pods => handlers::pods(service),
        Route::RunningPods => handlers::running_pods(service).await,
        Route::Configz => handlers::configz(service),
        Route::Metrics(page) => handlers::metrics(service, page, request.uri().query()).await,
        Route::DebugVerbosity => handlers::verbosity(service, request).await,
        Route::ContainerLogs => container_logs::container_logs(service, &request).await,
        Route::Logs => log_files::log_files(&service.deps.log_directory, &path).await,
        Route::Exec => commands::exec(service, request).await,
        Route::Attach => commands::attach(service, request).await,
        Route::Run => commands::run(service, &request).await,
        Route::PortForward => port_forward::port_forward(service, request).await,
        Route::Checkpoint => checkpoint::checkpoint(service, &request).await,
        Route::Profile => profiles::profile(service, &path),
        Route::LocalVolume => local_volumes::local_volume(service, &request).await,
        Route::Nothing => body::not_found(),
    }
}

/// The path of a route with the names of its variables, which is the name of its spans. Pages that are plain handlers
/// upstream, such as metrics and health, have none.
fn template(route: &Route, path: &str) -> Option<String> {
    const CONTAINER: &str = "{podNamespace}/{podID}/{containerName}";
    const UID: &str = "{podNamespace}/{podID}/{uid}/{containerName}";
    let parts = path.trim_matches('/').split('/').count();
    let below = |prefix: &str| Some(format!("/{prefix}/{}", if parts > 4 { UID } else { CONTAINER }));
    match route {
        Route::Pods => Some("/pods/".to_owned()),
        Route::RunningPods => Some("/runningpods/".to_owned()),
        Route::Metrics(MetricsPage::Summary) => Some("/stats/summary".to_owned()),
        Route::ContainerLogs => below("containerLogs"),
        Route::Exec => below("exec"),
        Route::Attach => below("attach"),
        Route::Run => below("run"),
        Route::Checkpoint => below("checkpoint"),
        Route::PortForward if parts > 3 => Some("/portForward/{podNamespace}/{podID}/{uid}".to_owned()),
        Route::PortForward => Some("/portForward/{podNamespace}/{podID}".to_owned()),
        Route::Logs if parts > 1 => Some("/logs/{logpath:*}".to_owned()),
        Route::Logs => Some("/logs/".to_owned()),
        Route::Profile => Some("/debug/pprof/{subpath:*}".to_owned()),
        Route::LocalVolume => Some(format!("{AGENT_PATH}/{{volume}}")),
        _ => None,
    }
}

/// Why a route is not served, if its switch in the configuration is off.
fn refusal(route: &Route, config: &Configuration) -> Option<&'static str> {
    let (field, why) = match route {
        _ if is_debugging(route) && !config.flag(&["enableDebuggingHandlers"]) => {
            return Some("Debug endpoints are disabled.");
        }
        Route::Logs => ("enableSystemLogHandler", "logs endpoint is disabled."),
        Route::Profile => ("enableProfilingHandler", "profiling endpoint is disabled."),
        Route::DebugVerbosity => ("enableDebugFlagsHandler", "flags endpoint is disabled."),
        _ => return None,
    };
    (!config.flag(&[field])).then_some(why)
}

fn is_debugging(route: &Route) -> bool {
    matches!(
        route,
        Route::Exec
            | Route::Attach
            | Route::Run
            | Route::PortForward
            | Route::ContainerLogs
            | Route::RunningPods
            | Route::Logs
            | Route::Profile
    )
}

/// The labels under which a request is counted: the first part of its path.
fn labels(method: &Method, path: &str, port: Port) -> RequestLabels {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let is_known = find(path, port).is_some();
    RequestLabels {
        is_long_running: matches!(first, "exec" | "attach" | "portForward" | "debug"),
        method: if verb(method).is_empty() { "other".to_owned() } else { method.to_string() },
        path: if is_known { first.to_owned() } else { "other".to_owned() },
        is_read_only_port: matches!(port, Port::Healthz | Port::ReadOnly),
    }
}

/// The cleaned path, if it differs: the client is sent there.
fn cleaned(path: &str) -> Option<String> {
    if !path.contains("//") && !path.contains("/.") {
        return None;
    }
    let mut clean = String::from_utf8_lossy(&schema::url::clean_path(path.as_bytes())).into_owned();
    if path.ends_with('/') && !clean.ends_with('/') {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

async fn authorize(
    service: &Service,
    request: &Request<Incoming>,
    path: &str,
    certificate: &CertificateUser,
) -> Result<(), Box<Response<Body>>> {
    let Some(user) = service.authentication.authenticate(request.headers(), certificate).await else {
        return Err(Box::new(body::text(StatusCode::UNAUTHORIZED, "Unauthorized")));
    };
    let described = format!(
        "(user={}, verb={}, resource=nodes, subresource={})",
        user.name,
        verb(request.method()),
        subresource(path)
    );
    match service.authorization.authorize(user, request.method(), path).await {
        Decision::Allowed => Ok(()),
        Decision::Denied => {
            Err(Box::new(body::text(StatusCode::FORBIDDEN, format!("Forbidden {described}"))))
        }
        Decision::Failed(why) => {
            tracing::warn!(%why, "access cannot be reviewed");
            let message = format!("Authorization error {described}");
            Err(Box::new(body::text(StatusCode::INTERNAL_SERVER_ERROR, message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_routes() {
        for (path, port, expected) in [
            ("/pods", Port::Main, Some(Route::Pods)),
            ("/exec/a/b/c", Port::Main, Some(Route::Exec)),
            ("/exec/a/b/c", Port::ReadOnly, None),
            ("/spec/", Port::Main, None),
            ("/", Port::Main, None),
            ("/healthz/zz", Port::Main, None),
            ("/healthz", Port::Healthz, Some(Route::Healthz)),
            ("/healthz/", Port::Healthz, None),
            ("/metrics", Port::Healthz, None),
            ("/metrics/resource", Port::ReadOnly, Some(Route::Metrics(MetricsPage::Resource))),
            ("/debug/pprof/", Port::Main, Some(Route::Profile)),
            ("/podsx", Port::Main, None),
        ] {
            assert_eq!(find(path, port), expected, "{path}");
        }
        let mut tree = schema::Value::map();
        let refused =
            |tree: &schema::Value, route: Route| refusal(&route, &Configuration::with_defaults(tree.clone()));
        assert_eq!(refused(&tree, Route::Profile), None);
        tree.set(&["enableProfilingHandler"], false);
        tree.set(&["enableSystemLogHandler"], false);
        tree.set(&["enableDebugFlagsHandler"], false);
        assert_eq!(refused(&tree, Route::Profile), Some("profiling endpoint is disabled."));
        assert_eq!(refused(&tree, Route::Logs), Some("logs endpoint is disabled."));
        assert_eq!(refused(&tree, Route::DebugVerbosity), Some("flags endpoint is disabled."));
        assert_eq!(refused(&tree, Route::Exec), None);
        tree.set(&["enableDebuggingHandlers"], false);
        assert_eq!(refused(&tree, Route::Exec), Some("Debug endpoints are disabled."));
        assert_eq!(refused(&tree, Route::Profile), Some("Debug endpoints are disabled."));
        assert_eq!(refused(&tree, Route::Pods), None);
        assert_eq!(cleaned("/logs/../etc/passwd").as_deref(), Some("/etc/passwd"));
        assert_eq!(cleaned("/logs/a.b/"), None);
    }
}
