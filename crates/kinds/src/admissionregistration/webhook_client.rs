//! Validation of the client configuration of webhooks, shared by all kinds that have one.

use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value, format, url};

const FORM: &str = "; desired format: https://host[/path]";

/// Exactly one of an address and a service.
pub(crate) fn check(config: &Value, path: &Path<'_>, out: &mut Problems) {
    match (config.at(&["url"]), config.at(&["service"])) {
        (Some(address), None) => self::address(read::text(address), &path.field("url"), out),
        (None, Some(service)) => self::service(service, &path.field("service"), out),
        _ => out.push(Problem::required(path, "exactly one of url or service is required")),
    }
}

fn address(text: &str, path: &Path<'_>, out: &mut Problems) {
    let url = match url::parse(text) {
        Ok(url) => url,
        Err(why) => {
            return out.push(Problem::required(path, &format!("url must be a valid URL: {why}{FORM}")));
        }
    };
    let mut wrong = |text: &str, why: &str| out.push(Problem::invalid_text(path, text, why));
    if url.scheme != "https" {
        wrong(&url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        wrong(url.host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        wrong(url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        wrong(url.query, "query parameters are not permitted in the URL");
    }
}

fn service(service: &Value, path: &Path<'_>, out: &mut Problems) {
    // the API names the field `name` for a missing namespace, and the other way round
    if service.text(&["namespace"]).is_empty() {
        out.push(Problem::required(&path.field("name"), "service name is required"));
    }
    if service.text(&["name"]).is_empty() {
        out.push(Problem::required(&path.field("namespace"), "service namespace is required"));
    }
    let port = read::int(service, &["port"]);
    for why in format::port_number(port) {
        out.push(check::invalid_int(&path.field("port"), port, &format!("port is not valid: {why}")));
    }
    service_path(service.text(&["path"]), &path.field("path"), out);
}

fn service_path(text: &str, path: &Path<'_>, out: &mut Problems) {
    let mut wrong = |why: &str| out.push(Problem::invalid_text(path, text, why));
    match text {
        "" | "/" => return,
        "//" => return wrong("segment[0] may not be empty"),
        _ => {}
    }
    if !text.starts_with('/') {
        wrong("must start with a '/'");
    }
    // the byte that comes first is taken for the slash
    let steps = String::from_utf8_lossy(text.as_bytes().get(1..).unwrap_or_default());
    for (at, step) in steps.strip_suffix('/').unwrap_or(&steps).split('/').enumerate() {
        if step.is_empty() {
            wrong(&format!("segment[{at}] may not be empty"));
            continue;
        }
        for why in format::dns1123_subdomain(step) {
            wrong(&format!("segment[{at}]: {why}"));
        }
    }
}
