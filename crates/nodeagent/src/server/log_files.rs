//! Files of the node's log directory, below `/logs/`.
//!
//! Invariant: nothing outside of the directory is read; links are followed only within it.

use super::body::{self, Body};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use schema::url::unescape_path;
use std::io;
use std::path::{Component, Path};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

const PIECE: usize = 32 << 10;

/// A redirect, with Go's body.
pub fn moved(path: &str, query: Option<&str>) -> Response<Body> {
    let location = query.map_or(path.to_owned(), |query| format!("{path}?{query}"));
    let text = format!("<a href=\"{}\">Moved Permanently</a>.\n\n", escape(&location));
    let mut response = body::response(StatusCode::MOVED_PERMANENTLY, "text/html; charset=utf-8", text);
    if let Ok(value) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

pub async fn log_files(root: &Path, path: &str) -> Response<Body> {
    let Some(rest) = path.strip_prefix("/logs/") else { return moved("/logs/", None) };
    let Ok(rest) = String::from_utf8(unescape_path(rest)) else { return body::not_found() };
    let is_plain = Path::new(&rest).components().all(|part| matches!(part, Component::Normal(_)));
    let full = root.join(&rest);
    let (Ok(real), Ok(real_root)) =
        (tokio::fs::canonicalize(&full).await, tokio::fs::canonicalize(root).await)
    else {
        return body::not_found();
    };
    if !is_plain || !real.starts_with(&real_root) {
        return body::not_found();
    }
    let Ok(data) = tokio::fs::metadata(&real).await else { return body::not_found() };
    match data.is_dir() {
        true if !path.ends_with('/') => moved(&format!("{path}/"), None),
        true => list(&real).await.unwrap_or_else(|_| body::not_found()),
        false => send(&real, data.len()).await.unwrap_or_else(|_| body::not_found()),
    }
}

async fn list(directory: &Path) -> io::Result<Response<Body>> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(directory).await?;
    while let Some(entry) = entries.next_entry().await? {
        let slash = if entry.file_type().await?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort();
    let links: String = names.iter().map(|name| format!("<a href=\"{0}\">{0}</a>\n", escape(name))).collect();
    Ok(body::response(StatusCode::OK, "text/html; charset=utf-8", format!("<pre>\n{links}</pre>\n")))
}

async fn send(path: &Path, length: u64) -> io::Result<Response<Body>> {
    // a file that grows is sent up to the length of now
    let mut file = tokio::fs::File::open(path).await?.take(length);
    let (pieces, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let mut piece = vec![0; PIECE];
            let read = file.read(&mut piece).await;
            let piece = match read {
                Ok(0) => return,
                Ok(count) => {
                    piece.truncate(count);
                    Ok(Bytes::from(piece))
                }
                Err(why) => Err(why),
            };
            let is_error = piece.is_err();
            if pieces.send(piece).await.is_err() || is_error {
                return;
            }
        }
    });
    let mut response = Response::new(body::channel(receiver));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}
