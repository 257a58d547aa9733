//! The audit event of a request, and its two formats: JSON, and one line of text.
//!
//! Invariants: an event is one line, whatever clients put into paths, headers and bodies. Bodies are included
//! only where the policy says so, as compact JSON.

use super::json;
use super::policy::{Level, Selection, Stage};
use crate::request::RequestInfo;
use auth::{Attributes, User};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri};
use names::Names;
use rest::RecordedObjects;
use schema::encode::string;
use schema::problem::quoted;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The data of an event.
pub(crate) struct Record {
    pub selection: Selection,
    pub id: HeaderValue,
    pub uri: Uri,
    pub verb: &'static str,
    /// `None` before authentication.
    pub user: Option<Arc<User>>,
    pub impersonated: Option<Arc<User>>,
    pub sources: Vec<IpAddr>,
    pub agent: Option<HeaderValue>,
    pub object: Option<Reference>,
    pub received: SystemTime,
    /// The authorization decision, if there was one, and its reason.
    pub decision: Option<(Option<bool>, Cow<'static, str>)>,
    pub outcome: Option<Outcome>,
    pub recorded_objects: RecordedObjects,
    pub annotations: Vec<(String, String)>,
}

/// The object of a request.
#[derive(Default)]
pub(crate) struct Reference {
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    group: String,
    version: String,
    resource_version: String,
    subresource: String,
}

impl Reference {
    pub fn of(attributes: &Attributes<'_>) -> Option<Self> {
        attributes.resource_request.then(|| Reference {
            resource: attributes.resource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            group: attributes.api_group.to_owned(),
            version: attributes.version.to_owned(),
            subresource: attributes.subresource.to_owned(),
            ..Reference::default()
        })
    }

    /// Adds fields of the sent object that are not in the path.
    pub fn complete(&mut self, reference: &rest::ObjectReference) {
        for (own, sent) in [
            (&mut self.namespace, &reference.namespace),
            (&mut self.name, &reference.name),
            (&mut self.uid, &reference.uid),
            (&mut self.resource_version, &reference.resource_version),
        ] {
            if own.is_empty() {
                own.clone_from(sent);
            }
        }
    }
}

/// How a request ended.
pub(crate) enum Outcome {
    /// With this code, and its `Status`, if there is one.
    Code(u16),
    /// Without a response, because the client disconnected.
    Disconnected,
    /// With a panic.
    Panic(String),
}

impl Outcome {
    fn code(&self) -> u16 {
        match self {
            Outcome::Code(code) => *code,
            Outcome::Disconnected => 200,
            Outcome::Panic(_) => 500,
        }
    }
}

/// The names in events, by dialect.
pub(crate) struct Dialect {
    /// The common prefix of every event.
    pub head: Vec<u8>,
    pub api_version: String,
    decision: String,
    reason: String,
    truncated: String,
}

impl Dialect {
    pub fn new(names: &Names) -> Self {
        let (audit, authorization) = (names.group("audit"), names.group("authorization"));
        let api_version = format!("{audit}/v1");
        Dialect {
            head: format!("{{\"kind\":\"Event\",\"apiVersion\":\"{api_version}\",").into_bytes(),
            api_version,
            decision: format!("{authorization}/decision"),
            reason: format!("{authorization}/reason"),
            truncated: format!("{audit}/truncated"),
        }
    }
}

impl Record {
    /// The event as one line of JSON, without the line break. A truncated one omits bodies and is marked.
    pub fn json(&self, stage: Stage, at: SystemTime, dialect: &Dialect, truncated: bool) -> Vec<u8> {
        let bodies = if truncated { 0 } else { self.body_bytes() };
        let mut out = Vec::with_capacity(1024 + bodies);
        out.extend_from_slice(&dialect.head);
        out.extend_from_slice(b"\"level\":\"");
        out.extend_from_slice(self.selection.level.name().as_bytes());
        out.extend_from_slice(b"\",\"auditID\":");
        string(&text(&self.id), &mut out);
        out.extend_from_slice(b",\"stage\":\"");
        out.extend_from_slice(stage.name().as_bytes());
        out.extend_from_slice(b"\",\"requestURI\":");
        string(self.request_uri(), &mut out);
        out.extend_from_slice(b",\"verb\":");
        string(self.verb, &mut out);
        out.extend_from_slice(b",\"user\":");
        write_user(self.user.as_deref(), &mut out);
        if let Some(user) = &self.impersonated {
            out.extend_from_slice(b",\"impersonatedUser\":");
            write_user(Some(user), &mut out);
        }
        if !self.sources.is_empty() {
            out.extend_from_slice(b",\"sourceIPs\":[");
            for (nth, ip) in self.sources.iter().enumerate() {
                let comma = if nth > 0 { "," } else { "" };
                out.extend_from_slice(format!("{comma}\"{ip}\"").as_bytes());
            }
            out.push(b']');
        }
        if let Some(agent) = self.agent.as_ref().filter(|agent| !agent.is_empty()) {
            out.extend_from_slice(b",\"userAgent\":");
            string(&text(agent), &mut out);
        }
        if let Some(object) = &self.object {
            out.extend_from_slice(b",\"objectRef\":");
            object.write(&mut out);
        }
        self.write_status(&mut out);
        if !truncated {
            self.write_bodies(&mut out);
        }
        out.extend_from_slice(b",\"requestReceivedTimestamp\":\"");
        out.extend_from_slice(micros(self.received).as_bytes());
        out.extend_from_slice(b"\",\"stageTimestamp\":\"");
        out.extend_from_slice(micros(at).as_bytes());
        out.push(b'"');
        self.write_annotations(dialect, truncated, &mut out);
        out.push(b'}');
        out
    }

    fn request_uri(&self) -> &str {
        self.uri.path_and_query().map_or("/", |uri| uri.as_str())
    }

    fn body_bytes(&self) -> usize {
        [&self.recorded_objects.request, &self.recorded_objects.response]
            .into_iter()
            .flatten()
            .map(Bytes::len)
            .sum()
    }

    fn write_status(&self, out: &mut Vec<u8>) {
        let Some(outcome) = &self.outcome else { return };
        out.extend_from_slice(b",\"responseStatus\":{\"metadata\":{},");
        let code = outcome.code();
        match outcome {
            Outcome::Code(_) => {
                if let Some(status) = &self.recorded_objects.status {
                    json::write_status_fields(status, out);
                }
            }
            Outcome::Disconnected => {
                out.extend_from_slice(b"\"status\":\"Success\",\"message\":\"Connection closed early\",");
            }
            Outcome::Panic(why) => {
                out.extend_from_slice(b"\"status\":\"Failure\",\"message\":");
                string(&format!("APIServer panic'd: {why}"), out);
                out.extend_from_slice(b",\"reason\":\"InternalError\",");
            }
        }
        out.extend_from_slice(format!("\"code\":{code}}}").as_bytes());
    }

    fn write_bodies(&self, out: &mut Vec<u8>) {
        let (level, recorded_objects) = (self.selection.level, &self.recorded_objects);
        for (name, body, least) in [
            ("requestObject", &recorded_objects.request, Level::Request),
            ("responseObject", &recorded_objects.response, Level::RequestResponse),
        ] {
            let Some(body) = body.as_ref().filter(|_| level >= least) else { continue };
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            // a patch is no object: it keeps its managed fields
            if self.selection.without_managed_fields && (name == "responseObject" || self.verb != "patch") {
                json::write_without_managed_fields(body, out);
            } else {
                out.extend_from_slice(body);
            }
        }
    }

    fn write_annotations(&self, dialect: &Dialect, truncated: bool, out: &mut Vec<u8>) {
        let mut all: Vec<(&str, &str)> =
            self.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
        if let Some((allowed, reason)) = &self.decision {
            all.extend(allowed.map(|allowed| (&*dialect.decision, if allowed { "allow" } else { "forbid" })));
            all.push((&dialect.reason, reason));
        }
        if truncated {
            all.push((&dialect.truncated, "true"));
        }
        if all.is_empty() {
            return;
        }
        all.sort_unstable();
        out.extend_from_slice(b",\"annotations\":{");
        for (nth, (key, value)) in all.into_iter().enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            string(key, out);
            out.push(b':');
            string(value, out);
        }
        out.push(b'}');
    }

    /// The event as one line of text, without the line break.
    pub fn line(&self, stage: Stage) -> String {
        let lists = |groups: &[String]| groups.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(",");
        let (mut name, mut groups) = ("<none>".to_owned(), "<none>".to_owned());
        if let Some(user) = self.user.as_ref().filter(|user| !user.name.is_empty()) {
            name.clone_from(&user.name);
            if !user.groups.is_empty() {
                groups = lists(&user.groups);
            }
        }
        let (mut as_name, mut as_groups) = ("<self>".to_owned(), "<lookup>".to_owned());
        if let Some(user) = &self.impersonated {
            as_name.clone_from(&user.name);
            if !user.groups.is_empty() {
                as_groups = lists(&user.groups);
            }
        }
        let ip = self.sources.first().map_or("<unknown>".to_owned(), IpAddr::to_string);
        let namespace = self.object.as_ref().map(|object| &*object.namespace).filter(|it| !it.is_empty());
        let agent = self.agent.as_ref().map(text).unwrap_or_default();
        let response =
            self.outcome.as_ref().map_or("<deferred>".to_owned(), |outcome| outcome.code().to_string());
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} \
             namespace={} uri={} response=\"{response}\"",
            nanos(self.received),
            quoted(&text(&self.id)),
            quoted(stage.name()),
            quoted(&ip),
            quoted(self.verb),
            quoted(&name),
            quoted(&groups),
            quoted(&as_name),
            quoted(&as_groups),
            quoted(&agent),
            quoted(namespace.unwrap_or("<none>")),
            quoted(self.request_uri()),
        )
    }
}

impl Reference {
    fn write(&self, out: &mut Vec<u8>) {
        let mut before = b'{';
        for (name, value) in [
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
            ("apiGroup", &self.group),
            ("apiVersion", &self.version),
            ("resourceVersion", &self.resource_version),
            ("subresource", &self.subresource),
        ] {
            if !value.is_empty() {
                out.push(std::mem::replace(&mut before, b','));
                string(name, out);
                out.push(b':');
                string(value, out);
            }
        }
        out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
    }
}

fn write_user(user: Option<&User>, out: &mut Vec<u8>) {
    let Some(user) = user else {
        out.extend_from_slice(b"{}");
        return;
    };
    let mut before = b'{';
    for (name, value) in [("username", &user.name), ("uid", &user.uid)] {
        if !value.is_empty() {
            out.push(std::mem::replace(&mut before, b','));
            string(name, out);
            out.push(b':');
            string(value, out);
        }
    }
    if !user.groups.is_empty() {
        out.push(std::mem::replace(&mut before, b','));
        out.extend_from_slice(b"\"groups\":");
        write_list(&user.groups, out);
    }
    if !user.extra.is_empty() {
        out.push(std::mem::replace(&mut before, b','));
        out.extend_from_slice(b"\"extra\":{");
        for (nth, (key, values)) in user.extra.iter().enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            string(key, out);
            out.push(b':');
            write_list(values, out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
}

fn write_list(values: &[String], out: &mut Vec<u8>) {
    out.push(b'[');
    for (nth, value) in values.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        string(value, out);
    }
    out.push(b']');
}

/// The source addresses of a request: those of the forwarding headers, in order, and the remote end.
pub(crate) fn sources(headers: &HeaderMap, remote: IpAddr) -> Vec<IpAddr> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let address = |text: &str| text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let mut all: Vec<IpAddr> = header("x-forwarded-for").split(',').filter_map(address).collect();
    all.extend(address(header("x-real-ip")).filter(|ip| !all.contains(ip)));
    let remote = remote.to_canonical();
    if all.last() != Some(&remote) {
        all.push(remote);
    }
    all
}

/// Whether a request is long-running: such requests are recorded when the response begins, too.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    let part = info.target.as_ref().map_or("", |target| &*target.subresource);
    info.verb == "watch" || matches!(part, "attach" | "exec" | "proxy" | "log" | "portforward")
}

fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

fn micros(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    schema::time::format_micro_time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// With as many digits as needed.
fn nanos(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = schema::time::format_time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let fraction = format!(".{:09}", since.subsec_nanos());
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{}{fraction}Z", whole.trim_end_matches('Z'))
}
