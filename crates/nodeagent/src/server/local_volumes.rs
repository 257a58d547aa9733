//! Folders of local volumes: `PUT` makes one, `DELETE` removes it.
//!
//! A folder is made if the query's `size` in bytes is available. A removal goes on when its client has gone, and can be
//! requested again meanwhile.

use super::body::{self, Body};
use super::query;
use super::service::Service;
use crate::local_volumes::LocalVolumeError;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use names::local_volumes::AGENT_PATH;
use serde_json::json;

pub async fn local_volume(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    let path = request.uri().path();
    let name =
        path.strip_prefix(AGENT_PATH).and_then(|it| it.strip_prefix('/')).unwrap_or_default().to_owned();
    let Some(volumes) = service.deps.local_volumes.clone() else { return body::not_found() };
    let pairs = query::pairs(request.uri().query());
    let size = query::get(&pairs, "size").unwrap_or("0");
    let Ok(size) = size.parse::<u64>() else {
        return body::text(StatusCode::BAD_REQUEST, format!("size {size:?} is not a number of bytes"));
    };
    let is_creation = request.method() == Method::PUT;
    let work = tokio::task::spawn_blocking(move || match is_creation {
        true => volumes.create(&name, size).map(|path| json!({"path": path.to_string_lossy()})),
        false => volumes.remove(&name).map(|()| json!({})),
    });
    match work.await {
        Ok(Ok(answer)) => body::json(answer.to_string()),
        Ok(Err(why)) => body::text(status(&why), why.to_string()),
        Err(why) => body::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
    }
}

fn status(why: &LocalVolumeError) -> StatusCode {
    match why {
        LocalVolumeError::InvalidName(_) => StatusCode::BAD_REQUEST,
        LocalVolumeError::NoSpace { .. } => StatusCode::INSUFFICIENT_STORAGE,
        LocalVolumeError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
