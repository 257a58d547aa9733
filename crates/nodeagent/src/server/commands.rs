//! Exec, attach and run.

use super::body::{self, Body};
use super::command_streams::{self, Action};
use super::query;
use super::service::Service;
use crate::runtime::{ContainerInfo, ContainerState, StreamOptions};
use api::core::v1::Pod;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use names::node;
use std::time::Duration;

/// Pod, container and the id of the running container.
struct Target {
    id: String,
}

/// The container that a path names, or a refusal.
async fn find(service: &Service, path: &str, prefix: &str) -> Result<Target, Box<Response<Body>>> {
    let parts: Vec<&str> = path.trim_start_matches(prefix).trim_matches('/').split('/').collect();
    let (namespace, name, uid, container) = match parts[..] {
        [namespace, name, container] => (namespace, name, None, container),
        [namespace, name, uid, container] => (namespace, name, Some(uid), container),
        _ => return Err(Box::new(body::not_found())),
    };
    let pod = service.deps.pods.pod(namespace, name);
    let pod = pod.filter(|pod| uid.is_none_or(|uid| pod.metadata.uid == uid));
    let Some(pod) = pod else {
        return Err(Box::new(body::text(StatusCode::NOT_FOUND, "pod does not exist")));
    };
    let id = running_container(service, &pod, container).await;
    match id {
        Ok(Some(id)) => Ok(Target { id }),
        Ok(None) => {
            let message = format!("container not found ({container:?})");
            Err(Box::new(body::text(StatusCode::INTERNAL_SERVER_ERROR, message)))
        }
        Err(why) => Err(Box::new(body::text(StatusCode::INTERNAL_SERVER_ERROR, why))),
    }
}

/// The id of the running container of a name.
pub async fn running_container(service: &Service, pod: &Pod, name: &str) -> Result<Option<String>, String> {
    let uid = Some(pod.metadata.uid.as_str());
    let containers = service.deps.runtime.containers(uid).await.map_err(|why| why.to_string())?;
    let has_name = |it: &ContainerInfo| it.labels.get(node::CONTAINER_NAME).is_some_and(|it| it == name);
    let mut running = containers.into_iter().filter(|it| it.state == ContainerState::Running && has_name(it));
    Ok(running.next().map(|it| it.id))
}

/// The streams that a query requests, or the error response.
fn stream_options(pairs: &[(String, String)]) -> Result<StreamOptions, Box<Response<Body>>> {
    let flag = |key: &str| matches!(query::get(pairs, key), Some("1" | "true"));
    let tty = flag("tty");
    // a terminal has one output
    let options =
        StreamOptions { stdin: flag("input"), stdout: flag("output"), stderr: flag("error") && !tty, tty };
    match options.stdin || options.stdout || options.stderr {
        true => Ok(options),
        false => {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            Err(Box::new(body::error(StatusCode::BAD_REQUEST, message)))
        }
    }
}

pub async fn exec(service: &Service, request: Request<Incoming>) -> Response<Body> {
    let pairs = query::pairs(request.uri().query());
    let command: Vec<String> =
        pairs.iter().filter(|(key, _)| key == "command").map(|(_, word)| word.clone()).collect();
    stream(service, request, "/exec", &pairs, |id| Action::Exec { id, command }).await
}

pub async fn attach(service: &Service, request: Request<Incoming>) -> Response<Body> {
    let pairs = query::pairs(request.uri().query());
    stream(service, request, "/attach", &pairs, |id| Action::Attach { id }).await
}

async fn stream(
    service: &Service,
    request: Request<Incoming>,
    prefix: &str,
    pairs: &[(String, String)],
    action: impl FnOnce(String) -> Action,
) -> Response<Body> {
    let found = async {
        let options = stream_options(pairs)?;
        let target = find(service, request.uri().path(), prefix).await?;
        Ok::<_, Box<Response<Body>>>((options, target))
    };
    match found.await {
        Ok((options, target)) => {
            let deps = &service.deps;
            command_streams::start(
                deps.runtime.clone(),
                request,
                options,
                action(target.id),
                deps.idle_timeout,
            )
        }
        Err(refused) => *refused,
    }
}

/// Runs a command and responds with its output.
pub async fn run(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    let pairs = query::pairs(request.uri().query());
    let target = match find(service, request.uri().path(), "/run").await {
        Ok(target) => target,
        Err(refused) => return *refused,
    };
    let command: Vec<String> =
        query::get(&pairs, "cmd").unwrap_or("").split(' ').map(str::to_owned).collect();
    match service.deps.runtime.exec_sync(&target.id, &command, Duration::ZERO).await {
        Ok(output) if output.exit_code == 0 => {
            let mut all = output.stdout;
            all.extend(output.stderr);
            body::text(StatusCode::OK, all)
        }
        Ok(output) => {
            let message = format!("command '{}' exited with {}", command.join(" "), output.exit_code);
            body::text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        Err(why) => body::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
    }
}
