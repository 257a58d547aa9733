//! Lifecycle hooks of containers: a command or an HTTP request.

use crate::probes::action::{self, ProbeTarget};
use crate::probes::http;
use api::core::v1::LifecycleHandler;
use std::time::Duration;

/// Runs a hook once. The error says why it failed; a status code of an HTTP server is no failure.
pub async fn run(
    handler: &LifecycleHandler,
    target: &ProbeTarget<'_>,
    timeout: Duration,
) -> Result<(), String> {
    if let Some(exec) = &handler.exec {
        let output = target.runtime.exec_sync(target.container_id, &exec.command, Duration::ZERO).await;
        return match output {
            Ok(output) if output.exit_code == 0 => Ok(()),
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
        return http::get(&url, &action::hook_headers(get), http::Timeout { limit: timeout, run: 0 })
            .await
            .map(drop);
    }
    Err("invalid handler".to_owned())
}
