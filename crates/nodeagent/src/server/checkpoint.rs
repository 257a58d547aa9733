//! `/checkpoint/NAMESPACE/POD/CONTAINER`: writes the state of a container to an archive.

use super::body::{self, Body};
use super::commands::running_container;
use super::query;
use super::service::Service;
use api::core::v1::Pod;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use schema::time::format_time;
use std::path::PathBuf;
use std::time::Duration;

pub async fn checkpoint(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().trim_start_matches("/checkpoint").trim_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let [namespace, name, container] = parts[..] else { return body::not_found() };
    let refused = |text: String| body::text(StatusCode::NOT_FOUND, text);
    let Some(pod) = service.deps.pods.pod(namespace, name) else {
        return refused("pod does not exist".to_owned());
    };
    if !has_container(&pod, container) {
        return refused(format!("container {container} does not exist"));
    }
    let pairs = query::pairs(request.uri().query());
    let timeout = pairs.iter().rfind(|(key, _)| key == "timeout").map(|(_, text)| text.parse::<i64>());
    let timeout = match timeout {
        None => 0,
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => return refused("cannot parse value of timeout parameter".to_owned()),
    };
    match write(service, &pod, container, timeout).await {
        Ok(archive) => body::json(serde_json::json!({ "items": [archive.to_string_lossy()] }).to_string()),
        Err(why) => {
            let message = format!("checkpointing of {namespace}/{name}/{container} failed ({why})");
            body::text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let spec = &pod.spec;
    spec.containers.iter().any(|it| it.name == name)
        || spec.init_containers.iter().any(|it| it.name == name)
        || spec.ephemeral_containers.iter().any(|it| it.name == name)
}

async fn write(service: &Service, pod: &Pod, container: &str, timeout: i64) -> Result<PathBuf, String> {
    let deps = &service.deps;
    let id = running_container(service, pod, container).await?;
    let id = id.ok_or_else(|| format!("container {container} not found"))?;
    tokio::fs::create_dir_all(&deps.checkpoint_dir).await.map_err(|why| why.to_string())?;
    let time = format_time(env::unix_seconds(&deps.world));
    let (name, namespace) = (&pod.metadata.name, &pod.metadata.namespace);
    let archive = deps.checkpoint_dir.join(format!("checkpoint-{name}_{namespace}-{container}-{time}.tar"));
    let timeout = u64::try_from(timeout).map(Duration::from_secs);
    let timeout = timeout.map_err(|_| "CheckpointContainer requires the timeout value to be > 0")?;
    let written = deps.runtime.checkpoint(&id, &archive.to_string_lossy(), timeout).await;
    written.map(|()| archive).map_err(|why| why.to_string())
}
