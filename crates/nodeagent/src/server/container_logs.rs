//! `/containerLogs/NAMESPACE/POD/CONTAINER`: the log of a container.

use super::body::{self, Body};
use super::query;
use super::service::Service;
use crate::logs::memory::LogText;
use crate::logs::options::InvalidOptions;
use crate::logs::reader::LogSink;
use crate::logs::{self, LogOptions};
use crate::runtime::{ContainerState, SharedRuntime};
use api::core::v1::{ContainerStatus, Pod};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use std::io;
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Pieces that are gathered before they are sent.
const PIECE: usize = 16 << 10;

pub async fn container_logs(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    let mut parts =
        request.uri().path().trim_start_matches("/containerLogs").trim_start_matches('/').split('/');
    let (namespace, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let container = parts.next().unwrap_or("");
    if namespace.is_empty() || name.is_empty() || container.is_empty() {
        return body::not_found();
    }
    let deps = &service.deps;
    let since = deps.world.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = i128::try_from(since.as_nanos()).unwrap_or(0);
    let options = match LogOptions::parse(&query::pairs(request.uri().query()), now) {
        Ok(options) => options,
        Err(InvalidOptions::Syntax) => {
            return body::text(StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#);
        }
        Err(InvalidOptions::Value) => {
            return body::text(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#);
        }
    };
    let Some(pod) = deps.pods.pod(namespace, name) else {
        return body::text(StatusCode::NOT_FOUND, format!("pod {name:?} does not exist"));
    };
    if !has_container(&pod, container) {
        let message = format!("container {container:?} not found in pod {name:?}");
        return body::text(StatusCode::NOT_FOUND, message);
    }
    let id = match container_id(&pod, container, options.previous) {
        Ok(id) => id,
        Err(why) => return body::text(StatusCode::BAD_REQUEST, why),
    };
    let status = match deps.runtime.container_status(&id).await {
        Ok(status) => status,
        Err(why) => {
            let message =
                format!("unable to retrieve container logs for {}: {why}", full_id(&pod, container, &id));
            return body::text(StatusCode::BAD_REQUEST, message);
        }
    };
    let in_memory = matches!(deps.runtime.log(&id).await, Ok(Some(_)));
    let path = PathBuf::from(&status.log_path);
    if !in_memory && let Err(why) = tokio::fs::metadata(&path).await {
        let why = if why.kind() == io::ErrorKind::NotFound {
            "no such file or directory".to_owned()
        } else {
            why.to_string()
        };
        let message =
            format!("failed to try resolving symlinks in path {0:?}: lstat {0}: {why}", status.log_path);
        return body::text(StatusCode::BAD_REQUEST, message);
    }
    let (pieces, receiver) = mpsc::channel(2);
    let runtime = deps.runtime.clone();
    tokio::spawn(async move {
        let mut sink = Pieces { gathered: BytesMut::new(), pieces: pieces.clone() };
        let read = async {
            match in_memory {
                true => logs::read_text(|| log_text(runtime.clone(), id.clone()), &options, &mut sink).await,
                false => {
                    let is_running = || is_running(runtime.clone(), id.clone());
                    logs::read(&path, &options, is_running, &mut sink).await
                }
            }
        };
        tokio::select! {
            read = read => {
                if let Err(why) = read {
                    tracing::debug!(%why, "a log cannot be read to its end");
                    let _ = pieces.send(Err(why)).await;
                }
            }
            // the client is gone
            () = pieces.closed() => {}
        }
    });
    let mut response = Response::new(body::channel(receiver));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn is_running(runtime: SharedRuntime, id: String) -> BoxFuture<'static, bool> {
    async move {
        let status = runtime.container_status(&id).await;
        // a runtime that does not answer may still run the container
        status.map_or_else(|why| !why.is_not_found(), |status| status.state == ContainerState::Running)
    }
    .boxed()
}

/// The log of a container that is in the memory of the runtime; that of a container that is gone is empty.
fn log_text(runtime: SharedRuntime, id: String) -> BoxFuture<'static, io::Result<LogText>> {
    async move {
        let is_running = is_running(runtime.clone(), id.clone()).await;
        match runtime.log(&id).await {
            Ok(text) => Ok((text.unwrap_or_default(), is_running)),
            Err(why) if why.is_not_found() => Ok((Vec::new(), false)),
            Err(why) => Err(io::Error::other(why.to_string())),
        }
    }
    .boxed()
}

fn full_id(pod: &Pod, container: &str, id: &str) -> String {
    let status = statuses(pod).find(|status| status.name == container && status.container_id.ends_with(id));
    status.map_or_else(|| id.to_owned(), |status| status.container_id.clone())
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let spec = &pod.spec;
    spec.containers.iter().any(|it| it.name == name)
        || spec.init_containers.iter().any(|it| it.name == name)
        || spec.ephemeral_containers.iter().any(|it| it.name == name)
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = &pod.status;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    all.chain(&status.ephemeral_container_statuses)
}

/// The id of the container whose log is wanted; the error is the text of the response.
fn container_id(pod: &Pod, container: &str, previous: bool) -> Result<String, String> {
    let name = pod.metadata.name.as_str();
    let about = format!("container {container:?} in pod {name:?}");
    let Some(status) = statuses(pod).find(|status| status.name == container) else {
        return Err(format!("{about} is not available"));
    };
    let state = &status.state;
    let last = status.last_state.terminated.as_ref();
    let of_last = last.map(|it| it.container_id.clone()).filter(|id| !id.is_empty());
    let id = if previous {
        of_last.ok_or_else(|| format!("previous terminated {about} not found"))?
    } else if state.running.is_some() {
        status.container_id.clone()
    } else if let Some(terminated) = &state.terminated {
        let own = Some(terminated.container_id.clone()).filter(|id| !id.is_empty());
        own.or(of_last).ok_or_else(|| format!("{about} is terminated"))?
    } else if last.is_some() {
        of_last.ok_or_else(|| format!("{about} is terminated"))?
    } else if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_str();
        return Err(match reason {
            "ErrImagePull" => format!("{about} is waiting to start: image can't be pulled"),
            "ImagePullBackOff" => format!("{about} is waiting to start: trying and failing to pull image"),
            reason => format!("{about} is waiting to start: {reason}"),
        });
    } else {
        return Err(format!("{about} is waiting to start - no logs yet"));
    };
    Ok(id.rsplit_once("://").map_or(id.clone(), |(_, id)| id.to_owned()))
}

/// Gathers lines into pieces of the response.
struct Pieces {
    gathered: BytesMut,
    pieces: mpsc::Sender<io::Result<Bytes>>,
}

impl LogSink for Pieces {
    fn write<'a>(&'a mut self, bytes: &'a [u8], _: bool) -> BoxFuture<'a, io::Result<()>> {
        async move {
            self.gathered.extend_from_slice(bytes);
            if self.gathered.len() >= PIECE { self.flush().await } else { Ok(()) }
        }
        .boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, io::Result<()>> {
        async move {
            if self.gathered.is_empty() {
                return Ok(());
            }
            let piece = self.gathered.split().freeze();
            self.pieces.send(Ok(piece)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
        .boxed()
    }
}
