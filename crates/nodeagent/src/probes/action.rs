//! One run of a probe or a hook: a command, an HTTP or gRPC request, a TCP connection.

use super::http::{self, Url};
use crate::container::expansion::{expand, lookup};
use crate::runtime::{RuntimeCode, SharedRuntime};
use api::IntOrString;
use api::core::v1::{Container, HTTPGetAction, Probe};
use grpc::health::HealthCheckRequest;
use grpc::health::health_check_response::ServingStatus;
use grpc::health::health_client::HealthClient;
use grpc::tonic::Code;
use outbound::{Channel, RpcError, Target, code_name};
use std::collections::BTreeMap;
use std::time::Duration;

/// The version in the names of clients.
const VERSION: &str = "1.26";
/// Bytes of a command's output in events.
const OUTPUT_LIMIT: usize = 10 << 10;
const REDIRECTS: usize = 10;

/// The result of a probe that could be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A success with a remark.
    Warning(String),
    Failure(String),
}

/// The container that a probe looks at.
pub struct ProbeTarget<'a> {
    pub runtime: &'a SharedRuntime,
    pub container: &'a Container,
    pub container_id: &'a str,
    pub pod_ip: &'a str,
    /// Counts the runs of the probe.
    pub run: u64,
}

/// Runs a probe once. An error is a probe that could not be run.
pub async fn run(probe: &Probe, target: &ProbeTarget<'_>) -> Result<Outcome, String> {
    let timeout = Duration::from_secs(u64::try_from(probe.timeout_seconds).unwrap_or(1).max(1));
    if let Some(exec) = &probe.exec {
        return run_command(&expanded(&exec.command, target.container), target, timeout).await;
    }
    if let Some(get) = &probe.http_get {
        let url = url(get, target)?;
        let budget = http::Timeout { limit: timeout, run: target.run };
        return Ok(run_http(url, &probe_headers(get), budget).await);
    }
    if let Some(tcp) = &probe.tcp_socket {
        let port = port(&tcp.port, target.container)?;
        let host = if tcp.host.is_empty() { target.pod_ip } else { &tcp.host };
        let connected = env::io::timeout(timeout, http::connect(host, port)).await;
        return Ok(match connected {
            Ok(Ok(_)) => Outcome::Success,
            Ok(Err(why)) => Outcome::Failure(why),
            Err(_) => Outcome::Failure(format!("dial tcp {host}:{port}: i/o timeout")),
        });
    }
    if let Some(check) = &probe.grpc {
        let service = check.service.clone().unwrap_or_default();
        return Ok(run_grpc(target.pod_ip, check.port, service, timeout).await);
    }
    Err("missing probe handler".to_owned())
}

/// A command with the variables that the container's spec sets.
fn expanded(command: &[String], container: &Container) -> Vec<String> {
    let values = container.env.iter().map(|it| (it.name.clone(), it.value.clone()));
    let values: BTreeMap<String, String> = values.collect();
    command.iter().map(|text| expand(text, |name| lookup(name, &[&values]))).collect()
}

async fn run_command(
    command: &[String],
    target: &ProbeTarget<'_>,
    timeout: Duration,
) -> Result<Outcome, String> {
    let answer = target.runtime.exec_sync(target.container_id, command, timeout).await;
    match answer {
        Ok(output) if output.exit_code == 0 => Ok(Outcome::Success),
        Ok(output) => {
            let mut bytes = output.stdout;
            bytes.extend(output.stderr);
            bytes.truncate(OUTPUT_LIMIT);
            Ok(Outcome::Failure(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Err(why) if why.code == RuntimeCode::DeadlineExceeded => {
            Ok(Outcome::Failure(format!("command \"{}\" timed out", command.join(" "))))
        }
        Err(why) => Err(why.to_string()),
    }
}

/// The number of a port, which may be a name of the container's ports.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => match container.ports.iter().find(|it| it.name == *name) {
            Some(port) => port.container_port.into(),
            None => name.parse().map_err(|_| format!("couldn't find port: {port:?}"))?,
        },
    };
    u16::try_from(number).ok().filter(|it| *it > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

/// The URL of an HTTP action.
pub fn url(get: &HTTPGetAction, target: &ProbeTarget<'_>) -> Result<Url, String> {
    let port = port(&get.port, target.container)?;
    let host = if get.host.is_empty() { target.pod_ip } else { &get.host };
    let path = if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) };
    let is_https = get.scheme.eq_ignore_ascii_case("https");
    Ok(Url { is_https, host: host.to_owned(), port, has_port: true, path })
}

fn headers(get: &HTTPGetAction, agent: &str, last: (&str, &str)) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        get.http_headers.iter().map(|it| (it.name.clone(), it.value.clone())).collect();
    let has = |name: &str| get.http_headers.iter().any(|it| it.name.eq_ignore_ascii_case(name));
    let mut defaults = vec![("Accept", "*/*"), last];
    let agent = format!("{agent}/{VERSION}");
    defaults.insert(0, ("User-Agent", &agent));
    for (name, value) in defaults.into_iter().filter(|it| !has(it.0)) {
        headers.push((name.to_owned(), value.to_owned()));
    }
    // an empty value leaves the header out
    headers.retain(|(name, value)| !(value.is_empty() && ["Accept", "User-Agent"].contains(&&**name)));
    headers
}

fn probe_headers(get: &HTTPGetAction) -> Vec<(String, String)> {
    headers(get, "kube-probe", ("Connection", "close"))
}

/// Headers of a lifecycle hook.
pub fn hook_headers(get: &HTTPGetAction) -> Vec<(String, String)> {
    headers(get, "kube-lifecycle", ("Accept-Encoding", "gzip"))
}

async fn run_http(mut url: Url, headers: &[(String, String)], timeout: http::Timeout) -> Outcome {
    let first = url.clone();
    for _ in 0..REDIRECTS {
        let response = match http::get(&url, headers, timeout).await {
            Ok(response) => response,
            Err(why) => return Outcome::Failure(format!("Get \"{url}\": {why}")),
        };
        match response.status {
            200..=299 => return Outcome::Success,
            300..=399 => {
                let follows = matches!(response.status, 301 | 302 | 303 | 307 | 308);
                let next = response.location.filter(|_| follows).and_then(|it| url.join(&it));
                match next {
                    Some(next) if next.host == first.host => url = next,
                    _ => {
                        let body = response.body;
                        return Outcome::Warning(format!(
                            "Probe terminated redirects, Response body: {body}"
                        ));
                    }
                }
            }
            status => return Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
        }
    }
    Outcome::Failure(format!("Get \"{url}\": stopped after 10 redirects"))
}

async fn run_grpc(host: &str, port: i32, service: String, timeout: Duration) -> Outcome {
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let within = crate::pod::backoff::go_duration(timeout);
    let unreachable = || {
        Outcome::Failure(format!(
            "timeout: failed to connect service \"{shown}\" within {within}: context deadline exceeded"
        ))
    };
    let target = Target { url: format!("http://{shown}"), ..Target::default() };
    let Ok(channel) = Channel::new(&target, &[("user-agent", "kube-probe/1.26")]) else {
        return unreachable();
    };
    let mut client = HealthClient::new(channel.clone());
    let checked = channel.within(timeout, client.check(HealthCheckRequest { service })).await;
    match checked {
        Ok(response) => match ServingStatus::try_from(response.status) {
            Ok(ServingStatus::Serving) => Outcome::Success,
            status => {
                let name = status.map_or("UNKNOWN", |it| it.as_str_name());
                Outcome::Failure(format!("service unhealthy (responded with \"{name}\")"))
            }
        },
        Err(RpcError::Timeout(_)) => {
            Outcome::Failure(format!("timeout: health rpc did not complete within {within}"))
        }
        Err(RpcError::Refused { code: Code::Unimplemented, message }) => Outcome::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Err(RpcError::Refused { code, message }) => Outcome::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            code_name(code)
        )),
        Err(_) => unreachable(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::SimulatedRuntime;
    use crate::testing::https_server::{VERSION_1, serve_https};
    use std::sync::Arc;

    /// The outcome of an HTTPS probe of a server with this certificate and key.
    async fn probe_https(pem: &[u8], status: &'static str) -> Outcome {
        let answer = move |head: &str| {
            assert!(head.starts_with("GET /live HTTP/1.1\r\n"), "{head}");
            format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok")
        };
        let port = serve_https(pem, answer).await;
        let probe: Probe = crate::objects::testing::object(&format!(
            r#"{{"httpGet":{{"port":{port},"scheme":"HTTPS","path":"/live"}},"timeoutSeconds":60}}"#
        ));
        let world: env::World = env::Seeded::new(0, 1);
        let target = ProbeTarget {
            runtime: &(Arc::new(SimulatedRuntime::new(world)) as _),
            container: &Container::default(),
            container_id: "",
            pod_ip: "127.0.0.1",
            run: 0,
        };
        run(&probe, &target).await.unwrap()
    }

    #[tokio::test]
    async fn an_https_probe_accepts_any_certificate() {
        let made = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
        let usual = made.cert.pem() + &made.signing_key.serialize_pem();
        for pem in [usual.as_bytes(), VERSION_1] {
            assert_eq!(probe_https(pem, "200 OK").await, Outcome::Success);
            let failure = "HTTP probe failed with statuscode: 503".to_owned();
            assert_eq!(probe_https(pem, "503 Unavailable").await, Outcome::Failure(failure));
        }
    }
}
