//! Metrics of requests.
//!
//! Labels come from closed sets: verbs that there are, resources that are served and their parts. What a client
//! makes up is counted together.

use crate::discovery::health;
use crate::handle::part_number;
use crate::negotiate::is_apply;
use crate::request::RequestInfo;
use crate::serve::Body;
use http::{HeaderMap, Method, StatusCode};
use metrics::{About, Counter, Family, Gauge, Histogram, Index, Registry, counts, seconds};
use rest::{Api, Resource};
use std::time::Duration;

const COMPONENT: &str = "apiserver";

const LATENCY: &[u64] = &seconds([
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
]);
const TOTAL: About = About::stable("apiserver_request_total", "Requests by what was asked and how it ended.")
    .by(&["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"]);
const DURATION: About =
    About::stable("apiserver_request_duration_seconds", "Time from a request to its answer.")
        .by(&["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"])
        .seconds(LATENCY);
const CHECKED: About = About::alpha(
    "field_validation_request_duration_seconds",
    "Time from a write to its answer, by what was to become of fields that nobody knows.",
)
.by(&["enabled", "field_validation"])
.seconds(LATENCY.split_at(2).1);
const WHAT: &[&str] = &["verb", "group", "version", "resource", "subresource", "scope", "component"];
const SLI: About = About::alpha(
    "apiserver_request_sli_duration_seconds",
    "Time from a request to its answer, without the time that webhooks took.",
)
.by(WHAT)
.seconds(LATENCY.split_at(2).1);
const SLO: About = About { name: "apiserver_request_slo_duration_seconds", ..SLI };
const SIZES: About = About::stable("apiserver_response_sizes", "Bytes of answers to those who read.")
    .by(WHAT)
    .sizes(&counts::<7>(1000, 10));
const LASTING: About = About::stable(
    "apiserver_longrunning_requests",
    "Requests under way that last as long as both sides like.",
)
.by(WHAT);
const TERMINATED: About = About::alpha(
    "apiserver_request_terminations_total",
    "Requests that the server ended or refused to protect itself.",
)
.by(&["verb", "group", "version", "resource", "subresource", "scope", "component", "code"]);
const ABORTED: About =
    About::alpha("apiserver_request_aborts_total", "Requests whose client was gone before the answer.")
        .by(&["verb", "group", "version", "resource", "subresource", "scope"]);
const BODIES: About = About::alpha("apiserver_request_body_sizes", "Bytes of bodies that were read.")
    .by(&["resource", "verb"])
    .sizes(&body_bounds());
const EVENT_SIZES: About = About::alpha("apiserver_watch_events_sizes", "Bytes of events sent to watchers.")
    .by(&["group", "version", "kind"])
    .sizes(&counts::<8>(1024, 2));
const EVENTS: About =
    About { name: "apiserver_watch_events_total", help: "Events sent to watchers.", ..EVENT_SIZES };
const INITIAL: About =
    About::alpha("apiserver_init_events_total", "Events that told watchers what was there when they began.")
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

/// See the module.
pub struct Requests {
    /// By everything that tells requests apart: one look finds all that is counted of an answer.
    lines: Index<Line>,
    total: Family<Counter>,
    duration: Family<Histogram>,
    sli: Family<Histogram>,
    checked: Family<Histogram>,
    /// Whether fields are checked at all, as it is shown.
    checks: &'static str,
    sizes: Family<Histogram>,
    lasting: Family<Gauge>,
    terminated: Family<Counter>,
    aborted: Family<Counter>,
    bodies: Family<Histogram>,
    event_sizes: Family<Histogram>,
    initial: Family<Counter>,
}

/// The series of answers that are alike.
#[derive(Clone)]
struct Line {
    total: Counter,
    duration: Histogram,
    sli: Histogram,
    /// For those who read.
    size: Option<Histogram>,
    /// For those who write.
    checked: Option<Histogram>,
}

impl Line {
    fn count(&self, took: Duration, elsewhere: Duration) {
        self.total.inc();
        self.duration.took(took);
        self.sli.took(took.saturating_sub(elsewhere));
        if let Some(checked) = &self.checked {
            checked.took(took);
        }
    }
}

/// What a request is counted as.
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
    /// What a write says about fields that nobody knows.
    checking: &'static str,
    /// All of this as one number: the same for requests that are alike, and for no others.
    number: u64,
}

impl<'a> Labels<'a> {
    pub fn of(asked: &'a RequestInfo, headers: &HeaderMap, api: &Api) -> Self {
        let (scope, dry_run) = (scope(asked), dry_run(asked));
        let verb = verb(asked, headers, SCOPES[scope]);
        let labels = Labels {
            verb: VERBS[verb],
            dry_run: DRY_RUNS[dry_run],
            group: "",
            version: "",
            resource: "",
            subresource: "",
            scope: SCOPES[scope],
            component: COMPONENT,
            checking: CHECKINGS[0],
            number: (verb << 4 | scope << 2 | dry_run) as u64,
        };
        let Some(target) = &asked.target else {
            let Some((endpoint, _)) = health::parse(&asked.path) else { return labels };
            let page = PAGES.iter().position(|page| page[1..] == *endpoint).unwrap_or(0);
            let number = labels.number | (page as u64 + 1) << PART;
            return Labels { subresource: PAGES[page], component: "", number, ..labels };
        };
        // names that no resource has would let anybody grow the counters without end
        let resources = api.resources();
        let Some(resource) = resources.get(&target.group_version, &target.resource) else { return labels };
        let part = part_number(resource, &target.subresource).unwrap_or(0);
        let checking = if WRITES.contains(&labels.verb) { checking(asked) } else { 0 };
        Labels {
            checking: CHECKINGS[checking],
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: if part == 0 { "" } else { &target.subresource },
            number: labels.number
                | (part as u64) << PART
                | u64::from(resource.number) << RESOURCE
                | (checking as u64) << CHECKING,
            ..labels
        }
    }

    /// The verb that is counted and logged.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    fn what(&self) -> [&str; 7] {
        let Labels { verb, group, version, resource, subresource, scope, component, .. } = self;
        [verb, group, version, resource, subresource, scope, component]
    }
}

/// Where parts and resources begin in a number; below them are 4 bits of verb and 2 each of scope and dry run. The code
/// of an answer comes before all of them.
const PART: u32 = 8;
const RESOURCE: u32 = 16;
const CODE: u32 = 48;
const CHECKING: u32 = 60;

const PAGES: [&str; 3] = ["/healthz", "/livez", "/readyz"];
const SCOPES: [&str; 4] = ["", "resource", "namespace", "cluster"];
const DRY_RUNS: [&str; 3] = ["", "All", "invalid"];
/// What is said about fields that nobody knows; the last stands for what is not known itself.
const CHECKINGS: [&str; 5] = ["", "Ignore", "Warn", "Strict", "invalid"];
const WRITES: [&str; 4] = ["POST", "PUT", "APPLY", "PATCH"];
const VERBS: [&str; 10] =
    ["other", "WATCH", "GET", "LIST", "POST", "PUT", "APPLY", "PATCH", "DELETE", "CONNECT"];

fn scope(asked: &RequestInfo) -> usize {
    match &asked.target {
        None => 0,
        Some(target) if !target.name.is_empty() || asked.verb == "create" => 1,
        Some(target) if !target.namespace.is_empty() => 2,
        Some(_) => 3,
    }
}

fn verb(asked: &RequestInfo, headers: &HeaderMap, scope: &str) -> usize {
    match (&asked.method, scope) {
        _ if asked.verb == "watch" => 1,
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

fn checking(asked: &RequestInfo) -> usize {
    let said = asked.query.get("fieldValidation").unwrap_or_default();
    CHECKINGS.iter().position(|it| *it == said).unwrap_or(CHECKINGS.len() - 1)
}

fn dry_run(asked: &RequestInfo) -> usize {
    let mut given = asked.query.pairs.iter().filter(|(key, _)| key == "dryRun").peekable();
    if given.peek().is_none() {
        return 0;
    }
    if given.all(|(_, value)| value == "All") { 1 } else { 2 }
}

impl Requests {
    pub fn new(registry: &Registry) -> Self {
        let sli = registry.family(SLI);
        registry.second_name(SLO, &sli);
        let event_sizes = registry.family(EVENT_SIZES);
        registry.counted(EVENTS, &event_sizes);
        Requests {
            lines: Index::default(),
            total: registry.family(TOTAL),
            duration: registry.family(DURATION),
            sli,
            checked: registry.family(CHECKED),
            checks: "true",
            sizes: registry.family(SIZES),
            lasting: registry.family(LASTING),
            terminated: registry.family(TERMINATED),
            aborted: registry.family(ABORTED),
            bodies: registry.family(BODIES),
            event_sizes,
            initial: registry.family(INITIAL),
        }
    }

    /// From now on fields are not checked, whatever is asked for.
    pub fn check_nothing(&mut self) {
        self.checks = "false";
    }

    fn line<R>(&self, labels: &Labels<'_>, code: StatusCode, then: impl FnOnce(&Line) -> R) -> R {
        let make = || {
            let Labels { verb, dry_run, group, version, resource, subresource, scope, component, .. } =
                *labels;
            let key = [verb, dry_run, group, version, resource, subresource, scope, component, code.as_str()];
            Line {
                total: self.total.of(&key),
                duration: self.duration.of(&key[..key.len() - 1]),
                sli: self.sli.of(&labels.what()),
                checked: (WRITES.contains(&verb) && !resource.is_empty())
                    .then(|| self.checked.of(&[self.checks, labels.checking])),
                size: matches!(verb, "GET" | "LIST").then(|| self.sizes.of(&labels.what())),
            }
        };
        self.lines.numbered(labels.number | u64::from(code.as_u16()) << CODE, make, then)
    }

    /// There is an answer; its size is counted when it is known. Of what it took, so much was spent waiting for
    /// webhooks.
    pub fn answered(
        &self,
        labels: &Labels<'_>,
        code: StatusCode,
        (took, elsewhere): (Duration, Duration),
        body: Body,
    ) -> Body {
        self.line(labels, code, |line| {
            line.count(took, elsewhere);
            match &line.size {
                Some(size) => body.sized(size),
                None => body,
            }
        })
    }

    /// A request ended without an answer: the server made a mistake.
    pub fn broke(&self, labels: &Labels<'_>, took: Duration) {
        self.line(labels, StatusCode::INTERNAL_SERVER_ERROR, |line| line.count(took, Duration::ZERO));
    }

    /// A request ended without an answer: nobody waits for it any more.
    pub fn aborted(&self, labels: &Labels<'_>) {
        let [verb, group, version, resource, subresource, scope, _] = labels.what();
        self.aborted.of(&[verb, group, version, resource, subresource, scope]).inc();
    }

    /// A request is refused or ended so that the server can go on.
    pub fn terminated(&self, labels: &Labels<'_>, code: StatusCode) {
        let [verb, group, version, resource, subresource, scope, component] = labels.what();
        let values = [verb, group, version, resource, subresource, scope, component, code.as_str()];
        self.terminated.of(&values).inc();
    }

    /// A body was read to be written.
    pub fn body(&self, resource: &Resource, verb: &str, bytes: usize) {
        let name = resource_name(&resource.group, &resource.kind.plural);
        self.bodies.of(&[&name, verb]).observe(bytes as u64);
    }

    /// A request begins that lasts.
    pub fn lasts(&self, labels: &Labels<'_>, since: Duration) -> Lasting {
        let under_way = self.lasting.of(&labels.what());
        under_way.inc();
        Lasting { under_way, line: self.line(labels, StatusCode::OK, Line::clone), since }
    }

    /// Where the events of a watch are counted.
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

/// A request that lasts. Whoever has it tells when it ends.
pub struct Lasting {
    under_way: Gauge,
    line: Line,
    since: Duration,
}

impl Lasting {
    pub fn end(&self, now: Duration) {
        self.under_way.dec();
        self.line.count(now.saturating_sub(self.since), Duration::ZERO);
    }
}

/// The events of watches of one kind.
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
        let asked = RequestInfo::parse(&method, path, query);
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, "application/apply-patch+yaml".parse().unwrap());
        let scope = SCOPES[scope(&asked)];
        let verb = VERBS[verb(&asked, &headers, scope)];
        let found = format!("{verb} {scope} {}", DRY_RUNS[dry_run(&asked)]);
        assert_eq!(found.trim(), expected, "{method} {path}?{query}");
    }

    #[test]
    fn verbs_and_scopes_are_those_of_a_closed_set() {
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
