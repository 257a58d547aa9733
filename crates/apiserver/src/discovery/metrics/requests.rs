//! Metrics of requests.
//!
//! Labels come from closed sets: known verbs, served resources and their subresources. Other values are
//! counted together.

use crate::discovery::health;
use crate::handle::subresources::subresource_index;
use crate::negotiate::is_apply;
use crate::request::RequestInfo;
use crate::serve::Body;
use http::{HeaderMap, Method, StatusCode};
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Index, Registry, counts, seconds};
use rest::{Api, Resource};
use std::time::Duration;

const COMPONENT: &str = "apiserver";

const LATENCY: &[u64] = &seconds([
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
]);
const TOTAL: Descriptor =
    Descriptor::stable("apiserver_request_total", "Requests by verb, resource and status code.").by(&[
        "verb",
        "dry_run",
        "group",
        "version",
        "resource",
        "subresource",
        "scope",
        "component",
        "code",
    ]);
const DURATION: Descriptor = Descriptor::stable("apiserver_request_duration_seconds", "Response latency.")
    .by(&["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"])
    .seconds(LATENCY);
const CHECKED: Descriptor = Descriptor::alpha(
    "field_validation_request_duration_seconds",
    "Response latency of writes by field validation.",
)
.by(&["enabled", "field_validation"])
.seconds(LATENCY.split_at(2).1);
const LABELS: &[&str] = &["verb", "group", "version", "resource", "subresource", "scope", "component"];
const SLI: Descriptor = Descriptor::alpha(
    "apiserver_request_sli_duration_seconds",
    "Response latency without the time spent in webhooks.",
)
.by(LABELS)
.seconds(LATENCY.split_at(2).1);
const SLO: Descriptor = Descriptor { name: "apiserver_request_slo_duration_seconds", ..SLI };
const SIZES: Descriptor = Descriptor::stable("apiserver_response_sizes", "Bytes of responses to reads.")
    .by(LABELS)
    .sizes(&counts::<7>(1000, 10));
const LONG_RUNNING: Descriptor =
    Descriptor::stable("apiserver_longrunning_requests", "Long-running requests in progress.").by(LABELS);
const TERMINATED: Descriptor = Descriptor::alpha(
    "apiserver_request_terminations_total",
    "Requests that the server ended or refused to protect itself.",
)
.by(&["verb", "group", "version", "resource", "subresource", "scope", "component", "code"]);
const ABORTED: Descriptor = Descriptor::alpha(
    "apiserver_request_aborts_total",
    "Requests whose client disconnected before the response.",
)
.by(&["verb", "group", "version", "resource", "subresource", "scope"]);
const BODIES: Descriptor =
    Descriptor::alpha("apiserver_request_body_sizes", "Bytes of bodies that were read.")
        .by(&["resource", "verb"])
        .sizes(&body_bounds());
const EVENT_SIZES: Descriptor =
    Descriptor::alpha("apiserver_watch_events_sizes", "Bytes of events sent to watchers.")
        .by(&["group", "version", "kind"])
        .sizes(&counts::<8>(1024, 2));
const EVENTS: Descriptor =
    Descriptor { name: "apiserver_watch_events_total", help: "Events sent to watchers.", ..EVENT_SIZES };
const INITIAL: Descriptor =
    Descriptor::alpha("apiserver_init_events_total", "Events of initial objects sent to watches.")
        .by(&["resource"]);

const fn body_bounds() -> [u64; 31] {
    let mut bounds = [50_000; 31];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] + 100_000;
        at += 1;
    }
    bounds
}

/// The metrics of requests.
pub struct Requests {
    /// Series by label combination: one lookup finds all series of a response.
    index: Index<Series>,
    total: Family<Counter>,
    duration: Family<Histogram>,
    sli: Family<Histogram>,
    checked: Family<Histogram>,
    /// The label value of field validation where it is disabled.
    checks: &'static str,
    sizes: Family<Histogram>,
    long_running: Family<Gauge>,
    terminated: Family<Counter>,
    aborted: Family<Counter>,
    bodies: Family<Histogram>,
    event_sizes: Family<Histogram>,
    initial: Family<Counter>,
}

/// The series of one label combination.
#[derive(Clone)]
struct Series {
    total: Counter,
    duration: Histogram,
    sli: Histogram,
    /// For reads.
    size: Option<Histogram>,
    /// For writes.
    checked: Option<Histogram>,
}

impl Series {
    fn count(&self, took: Duration, webhooks: Duration) {
        self.total.inc();
        self.duration.took(took);
        self.sli.took(took.saturating_sub(webhooks));
        if let Some(checked) = &self.checked {
            checked.took(took);
        }
    }
}

/// The labels of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels<'a> {
    verb: &'static str,
    dry_run: &'static str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    scope: &'static str,
    component: &'static str,
    /// The `fieldValidation` of a write.
    field_validation: &'static str,
    /// All labels as one number, unique per combination.
    number: u64,
}

impl<'a> Labels<'a> {
    pub fn of(info: &'a RequestInfo, headers: &HeaderMap, api: &Api) -> Self {
        let (scope, dry_run) = (scope(info), dry_run(info));
        let verb = verb(info, headers, SCOPES[scope]);
        let labels = Labels {
            verb: VERBS[verb],
            dry_run: DRY_RUNS[dry_run],
            group: "",
            version: "",
            resource: "",
            subresource: "",
            scope: SCOPES[scope],
            component: COMPONENT,
            field_validation: FIELD_VALIDATIONS[0],
            number: (verb << 4 | scope << 2 | dry_run) as u64,
        };
        let Some(target) = &info.target else {
            let Some((endpoint, _)) = health::parse(&info.path) else { return labels };
            let page = PAGES.iter().position(|page| page[1..] == *endpoint).unwrap_or(0);
            let number = labels.number | (page as u64 + 1) << PART;
            return Labels { subresource: PAGES[page], component: "", number, ..labels };
        };
        // unknown resources would let clients create any number of series
        let resources = api.resources();
        let Some(resource) = resources.get(&target.group_version, &target.resource) else { return labels };
        let part = subresource_index(resource, &target.subresource).unwrap_or(0);
        let field_validation = if WRITES.contains(&labels.verb) { field_validation(info) } else { 0 };
        Labels {
            field_validation: FIELD_VALIDATIONS[field_validation],
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: if part == 0 { "" } else { &target.subresource },
            number: labels.number
                | (part as u64) << PART
                | u64::from(resource.number) << RESOURCE
                | (field_validation as u64) << FIELD_VALIDATION,
            ..labels
        }
    }

    /// The verb in metrics and logs.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    fn values(&self) -> [&str; 7] {
        let Labels { verb, group, version, resource, subresource, scope, component, .. } = self;
        [verb, group, version, resource, subresource, scope, component]
    }
}

/// Bit offsets of subresource and resource in the number; below them are 4 bits of verb and 2 each of scope
/// and dry run. The status code comes above all of them.
const PART: u32 = 8;
const RESOURCE: u32 = 16;
const CODE: u32 = 48;
const FIELD_VALIDATION: u32 = 60;

const PAGES: [&str; 3] = ["/healthz", "/livez", "/readyz"];
const SCOPES: [&str; 4] = ["", "resource", "namespace", "cluster"];
const DRY_RUNS: [&str; 3] = ["", "All", "invalid"];
/// Values of `fieldValidation`; the last stands for invalid ones.
const FIELD_VALIDATIONS: [&str; 5] = ["", "Ignore", "Warn", "Strict", "invalid"];
const WRITES: [&str; 4] = ["POST", "PUT", "APPLY", "PATCH"];
const VERBS: [&str; 10] =
    ["other", "WATCH", "GET", "LIST", "POST", "PUT", "APPLY", "PATCH", "DELETE", "CONNECT"];

fn scope(info: &RequestInfo) -> usize {
    match &info.target {
        None => 0,
        Some(target) if !target.name.is_empty() || info.verb == "create" => 1,
        Some(target) if !target.namespace.is_empty() => 2,
        Some(_) => 3,
    }
}

fn verb(info: &RequestInfo, headers: &HeaderMap, scope: &str) -> usize {
    match (&info.method, scope) {
        _ if info.verb == "watch" => 1,
        (&Method::GET | &Method::HEAD, "" | "resource") => 2,
        (&Method::GET | &Method::HEAD, _) => 3,
        (&Method::POST, _) => 4,
        (&Method::PUT, _) => 5,
        (&Method::PATCH, _) if is_apply(headers) => 6,
        (&Method::PATCH, _) => 7,
        (&Method::DELETE, _) => 8,
        (&Method::CONNECT, _) => 9,
        _ => 0,
    }
}

fn field_validation(info: &RequestInfo) -> usize {
    let value = info.query.get("fieldValidation").unwrap_or_default();
    FIELD_VALIDATIONS.iter().position(|it| *it == value).unwrap_or(FIELD_VALIDATIONS.len() - 1)
}

fn dry_run(info: &RequestInfo) -> usize {
    let mut values = info.query.pairs.iter().filter(|(key, _)| key == "dryRun").peekable();
    if values.peek().is_none() {
        return 0;
    }
    if values.all(|(_, value)| value == "All") { 1 } else { 2 }
}

impl Requests {
    pub fn new(registry: &Registry) -> Self {
        let sli = registry.family(SLI);
        registry.second_name(SLO, &sli);
        let event_sizes = registry.family(EVENT_SIZES);
        registry.counted(EVENTS, &event_sizes);
        Requests {
            index: Index::default(),
            total: registry.family(TOTAL),
            duration: registry.family(DURATION),
            sli,
            checked: registry.family(CHECKED),
            checks: "true",
            sizes: registry.family(SIZES),
            long_running: registry.family(LONG_RUNNING),
            terminated: registry.family(TERMINATED),
            aborted: registry.family(ABORTED),
            bodies: registry.family(BODIES),
            event_sizes,
            initial: registry.family(INITIAL),
        }
    }

    /// Field validation is disabled from now on.
    pub fn disable_field_validation(&mut self) {
        self.checks = "false";
    }

    fn series<R>(&self, labels: &Labels<'_>, code: StatusCode, then: impl FnOnce(&Series) -> R) -> R {
        let make = || {
            let Labels { verb, dry_run, group, version, resource, subresource, scope, component, .. } =
                *labels;
            let key = [verb, dry_run, group, version, resource, subresource, scope, component, code.as_str()];
            Series {
                total: self.total.of(&key),
                duration: self.duration.of(&key[..key.len() - 1]),
                sli: self.sli.of(&labels.values()),
                checked: (WRITES.contains(&verb) && !resource.is_empty())
                    .then(|| self.checked.of(&[self.checks, labels.field_validation])),
                size: matches!(verb, "GET" | "LIST").then(|| self.sizes.of(&labels.values())),
            }
        };
        self.index.numbered(labels.number | u64::from(code.as_u16()) << CODE, make, then)
    }

    /// Counts a response; its size is observed when it is known. `webhooks` is the part of the time spent in
    /// webhook calls.
    pub fn record_response(
        &self,
        labels: &Labels<'_>,
        code: StatusCode,
        (took, webhooks): (Duration, Duration),
        body: Body,
    ) -> Body {
        self.series(labels, code, |series| {
            series.count(took, webhooks);
            match &series.size {
                Some(size) => body.observe_size(size),
                None => body,
            }
        })
    }

    /// Counts a request that panicked.
    pub fn record_panic(&self, labels: &Labels<'_>, took: Duration) {
        self.series(labels, StatusCode::INTERNAL_SERVER_ERROR, |series| series.count(took, Duration::ZERO));
    }

    /// Counts a request whose client disconnected.
    pub fn record_abort(&self, labels: &Labels<'_>) {
        let [verb, group, version, resource, subresource, scope, _] = labels.values();
        self.aborted.of(&[verb, group, version, resource, subresource, scope]).inc();
    }

    /// Counts a request that is rejected or cut for the server's sake.
    pub fn record_termination(&self, labels: &Labels<'_>, code: StatusCode) {
        let [verb, group, version, resource, subresource, scope, component] = labels.values();
        let values = [verb, group, version, resource, subresource, scope, component, code.as_str()];
        self.terminated.of(&values).inc();
    }

    /// Observes the size of a request body.
    pub fn body(&self, resource: &Resource, verb: &str, bytes: usize) {
        let name = resource_name(&resource.group, &resource.kind.plural);
        self.bodies.of(&[&name, verb]).observe(bytes as u64);
    }

    /// Counts a long-running request.
    pub fn start_long_running(&self, labels: &Labels<'_>, since: Duration) -> LongRunning {
        let active = self.long_running.of(&labels.values());
        active.inc();
        LongRunning { active, series: self.series(labels, StatusCode::OK, Series::clone), since }
    }

    /// The metrics of a watch's events.
    pub fn events(&self, resource: &Resource) -> Events {
        let sizes = self.event_sizes.of(&[&resource.group, &resource.kind.version, &resource.kind.name]);
        let name = resource_name(&resource.group, &resource.kind.plural);
        Events { sizes, initial: self.initial.of(&[&name]) }
    }
}

/// `pods` or `deployments.apps`.
pub fn resource_name(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// A long-running request, counted until `end`.
pub struct LongRunning {
    active: Gauge,
    series: Series,
    since: Duration,
}

impl LongRunning {
    pub fn end(&self, now: Duration) {
        self.active.dec();
        self.series.count(now.saturating_sub(self.since), Duration::ZERO);
    }
}

/// Metrics of the events of watches of one resource.
pub struct Events {
    pub sizes: Histogram,
    pub initial: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::parse(&method, path, query);
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, "application/apply-patch+yaml".parse().unwrap());
        let scope = SCOPES[scope(&info)];
        let verb = VERBS[verb(&info, &headers, scope)];
        let found = format!("{verb} {scope} {}", DRY_RUNS[dry_run(&info)]);
        assert_eq!(found.trim(), expected, "{method} {path}?{query}");
    }

    #[test]
    fn verbs_and_scopes_come_from_a_closed_set() {
        check("GET", "/healthz", "GET");
        check("GET", "/api/v1/pods", "LIST cluster");
        check("HEAD", "/api/v1/namespaces/a/pods", "LIST namespace");
        check("GET", "/api/v1/namespaces/a/pods/b", "GET resource");
        check("GET", "/api/v1/namespaces/a/pods?watch=1", "WATCH namespace");
        check("GET", "/api/v1/watch/pods", "WATCH cluster");
        check("POST", "/api/v1/namespaces/a/pods?dryRun=All", "POST resource All");
        check("PUT", "/api/v1/namespaces/a?dryRun=All&dryRun=Some", "PUT resource invalid");
        check("PATCH", "/api/v1/namespaces/a", "APPLY resource");
        check("DELETE", "/api/v1/namespaces/a/pods", "DELETE namespace");
        check("BREW", "/api/v1/namespaces/a/pods", "other namespace");
    }

    #[test]
    fn resources_have_the_names_of_dashboards() {
        assert_eq!(resource_name("", "pods"), "pods");
        assert_eq!(resource_name("apps", "deployments"), "deployments.apps");
    }
}
