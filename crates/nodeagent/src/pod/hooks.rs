//! Lifecycle hooks of containers: a command or an HTTP request.

use super::events::PodEvents;
use crate::probes::action::{self, ProbeTarget};
use crate::probes::http::{self, Url};
use crate::stats::AgentMetrics;
use api::core::v1::{LifecycleHandler, Pod};
use client::EventType;
use std::time::Duration;

/// How a hook ended that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    Done,
    /// A server at this address that was to speak HTTPS has answered over HTTP.
    FellBack(String),
}

impl HookOutcome {
    /// Says that a hook fell back to HTTP.
    pub fn report(&self, pod: &Pod, events: &dyn PodEvents, metrics: &AgentMetrics) {
        let HookOutcome::FellBack(host) = self else { return };
        let message =
            format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
        events.record(pod, None, EventType::Warning, "LifecycleHTTPFallback", &message);
        metrics.hook_fell_back();
    }
}

/// Runs a hook once. The error says why it failed; a status code of an HTTP server is no failure.
pub async fn run(
    handler: &LifecycleHandler,
    target: &ProbeTarget<'_>,
    timeout: Duration,
) -> Result<HookOutcome, String> {
    if let Some(exec) = &handler.exec {
        let output = target.runtime.exec_sync(target.container_id, &exec.command, Duration::ZERO).await;
        return match output {
            Ok(output) if output.exit_code == 0 => Ok(HookOutcome::Done),
            Ok(output) => Err(format!(
                "command '{}' exited with {}: {}",
                exec.command.join(" "),
                output.exit_code,
                String::from_utf8_lossy(&output.stderr)
            )),
            Err(why) => Err(why.to_string()),
        };
    }
    if let Some(get) = &handler.http_get {
        let url = action::url(get, target)?;
        let timeout = http::Timeout { limit: timeout, run: 0 };
        let mut headers = action::hook_headers(get);
        let answer = http::get(&url, &headers, timeout).await;
        if !answer.as_ref().is_err_and(|why| why == http::PLAIN_ANSWER) {
            return answer.map(|_| HookOutcome::Done);
        }
        // credentials are for the server behind TLS
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        let plain = Url { is_https: false, ..url };
        return match http::get(&plain, &headers, timeout).await {
            Ok(_) => Ok(HookOutcome::FellBack(plain.authority())),
            Err(_) => Err(http::PLAIN_ANSWER.to_owned()),
        };
    }
    Err("invalid handler".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::Records;
    use api::core::v1::Container;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_hook_over_https_falls_back_to_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let mut requests = Vec::new();
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                requests.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
            requests
        });
        let hook: LifecycleHandler = crate::objects::testing::object(&format!(
            r#"{{"httpGet":{{"host":"127.0.0.1","port":{port},"scheme":"HTTPS","path":"/h",
                "httpHeaders":[{{"name":"Authorization","value":"secret"}},{{"name":"X","value":"y"}}]}}}}"#
        ));
        let world: env::World = env::Seeded::new(0, 1);
        let target = ProbeTarget {
            runtime: &(Arc::new(crate::runtime::simulated::SimulatedRuntime::new(world)) as _),
            container: &Container::default(),
            container_id: "",
            pod_ip: "",
            run: 0,
        };
        let outcome = run(&hook, &target, Duration::from_secs(10)).await.unwrap();
        assert_eq!(outcome, HookOutcome::FellBack(format!("127.0.0.1:{port}")));
        let plain = server.await.unwrap().remove(1);
        assert!(plain.starts_with("GET /h HTTP/1.1") && plain.contains("X: y"), "{plain}");
        assert!(!plain.contains("secret"), "{plain}");
        let (events, metrics) = (Records::default(), AgentMetrics::default());
        outcome.report(&Pod::default(), &events, &metrics);
        let expected = format!(
            "LifecycleHTTPFallback: request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
        );
        assert_eq!(*events.events.lock(), [expected]);
    }
}
