//! "Metrics" with the names and labels that dashboards use.

use super::*;
use ::metrics::{self as counting, Registry};
use apiserver::{authentication, flowcontrol, observability};
use http::Method;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tests::{Cluster, Options, TestUser, authority};
use tokio::io::AsyncWriteExt;

/// A scrape: the value of every series, by name and labels.
struct Scrape(String);

impl Scrape {
    async fn of(cluster: &Cluster) -> Self {
        let answer = cluster.get("/metrics").await.code(200);
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
        Scrape(answer.text())
    }

    fn series(&self) -> impl Iterator<Item = (&str, f64)> {
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series, value.parse().unwrap())
        })
    }

    /// The value of the one series with this name and these labels among others.
    fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let fits = |series: &str| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label))
        };
        let found: Vec<_> = self.series().filter(|(series, _)| fits(series)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?} in {}", self.0);
        found[0].1
    }

    fn has(&self, name: &str) -> bool {
        self.series().any(|(series, _)| series.split('{').next() == Some(name))
    }

    /// The labels that a family's series have, bounds of buckets aside.
    fn labels(&self, name: &str) -> BTreeSet<String> {
        let own = |series: &&str| {
            let found = series.split('{').next().unwrap();
            found == name || ["_bucket", "_sum", "_count"].iter().any(|it| found == format!("{name}{it}"))
        };
        let series = self.series().map(|(series, _)| series).filter(own);
        let labels = series.filter_map(|series| series.split_once('{')).flat_map(|(_, labels)| {
            labels.trim_end_matches('}').split("\",").map(|label| label.split('=').next().unwrap().to_owned())
        });
        labels.filter(|label| label != "le").collect()
    }
}

/// A client that must wait its turn.
async fn writer(cluster: &Cluster) -> TestUser {
    let binding = json!({
        "metadata": {"name": "writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "wanda"}],
    });
    cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.code(201);
    TestUser::Certificate(authority().client("wanda", "writers"))
}

#[tokio::test]
async fn metrics_of_dashboards_exist() {
    let cluster = Cluster::start().await;
    let wanda = writer(&cluster).await;
    cluster.named(CONFIGMAPS, "a").await;
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "b"}})).user(&wanda).await.code(201);
    cluster.get(CONFIGMAPS).user(&wanda).await.code(200);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    watch.expect("ADDED", "a").await;
    let scrape = Scrape::of(&cluster).await;
    let mut heads = BTreeMap::new();
    for line in scrape.0.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, rest] => drop(heads.insert(name, (rest, ""))),
            ["#", "TYPE", name, kind] => heads.get_mut(name).unwrap().1 = kind,
            _ => {}
        }
    }
    let facts = include_str!("metrics.txt").lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    for fact in facts {
        let words: Vec<_> = fact.split(' ').collect();
        let [name, kind, stability, ref labels @ ..] = words[..] else { panic!("{fact}") };
        let found = heads.get(name).map(|(help, kind)| {
            let stability = help.trim_start_matches('[').split(']').next().unwrap();
            let labels: Vec<_> = scrape.labels(name).into_iter().collect();
            format!("{name} {kind} {stability} {}", labels.join(" ")).trim_end().to_owned()
        });
        let expected = [&[name, kind, stability][..], labels].concat().join(" ");
        if found.as_deref() != Some(&expected) {
            wrong.push(format!("{expected}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nin {}", wrong.join("\n"), scrape.0);
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_resource() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let path = format!("{CONFIGMAPS}/a");
    cluster.get(&path).await.code(200);
    cluster.get(&format!("{CONFIGMAPS}/none")).await.code(404);
    cluster.get("/api/v1/configmaps").await.code(200);
    cluster.patch(&format!("{path}?dryRun=All"), json!({"data": {"k": "v"}})).await.code(200);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let apply = cluster.request(Method::PATCH, &format!("{path}?fieldManager=m")).body(applied);
    apply.content_type("application/apply-patch+yaml").await.code(200);
    cluster.request(Method::DELETE, CONFIGMAPS).await.code(200);
    cluster.get("/healthz").await.code(200);
    let scrape = Scrape::of(&cluster).await;
    let configmaps = ["group=\"\"", "version=\"v1\"", "resource=\"configmaps\"", "component=\"apiserver\""];
    for (verb, scope, dry_run, code) in [
        ("POST", "resource", "", "201"),
        ("GET", "resource", "", "200"),
        ("GET", "resource", "", "404"),
        ("LIST", "cluster", "", "200"),
        ("PATCH", "resource", "All", "200"),
        ("APPLY", "resource", "", "200"),
        ("DELETE", "namespace", "", "200"),
    ] {
        let own = [
            format!("verb=\"{verb}\""),
            format!("scope=\"{scope}\""),
            format!("dry_run=\"{dry_run}\""),
            format!("code=\"{code}\""),
        ];
        let labels: Vec<&str> = configmaps.into_iter().chain(own.iter().map(String::as_str)).collect();
        assert_eq!(scrape.value("apiserver_request_total", &labels), 1.0);
    }
    let labels = ["subresource=\"/healthz\"", "component=\"\"", "verb=\"GET\"", "code=\"200\""];
    assert_eq!(scrape.value("apiserver_request_total", &labels), 1.0);
    // both codes are in one histogram, whose bounds are those of dashboards
    let labels = ["verb=\"GET\"", "resource=\"configmaps\"", "scope=\"resource\""];
    assert_eq!(scrape.value("apiserver_request_duration_seconds_count", &labels), 2.0);
    // how long the requests took is up to the machine
    let within = ["0.005", "0.025", "0.05", "1", "1.25", "60", "+Inf"].map(|bound| {
        let bound = format!("le=\"{bound}\"");
        let labels = [labels[0], labels[1], labels[2], &bound];
        scrape.value("apiserver_request_duration_seconds_bucket", &labels)
    });
    assert!(within.is_sorted() && within.last() == Some(&2.0), "{within:?}");
    assert!(!scrape.0.contains("request_sli_duration_seconds_bucket{le=\"0.005\""));
    for bound in ["1000", "100000", "1e+06", "1e+09"] {
        let bound = format!("le=\"{bound}\"");
        let labels = [labels[0], labels[1], labels[2], &bound];
        assert_eq!(scrape.value("apiserver_response_sizes_bucket", &labels), 2.0);
    }
}

#[tokio::test]
async fn watches_are_long_running_until_they_end() {
    let cluster = Cluster::start().await;
    let watching = ["verb=\"WATCH\"", "resource=\"configmaps\"", "scope=\"namespace\""];
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=600")).watch().await;
    cluster.named(CONFIGMAPS, "a").await;
    watch.expect("ADDED", "a").await;
    let scrape = Scrape::of(&cluster).await;
    assert_eq!(scrape.value("apiserver_longrunning_requests", &watching), 1.0);
    assert_eq!(scrape.value("apiserver_watch_events_total", &["kind=\"ConfigMap\""]), 1.0);
    assert_eq!(scrape.value("apiserver_request_total", &watching), 0.0);
    drop(watch);
    let ended = async {
        loop {
            let scrape = Scrape::of(&cluster).await;
            if scrape.value("apiserver_longrunning_requests", &watching) == 0.0 {
                break scrape;
            }
        }
    };
    let scrape = tests::soon("the end of the watch", ended).await;
    assert_eq!(scrape.value("apiserver_request_total", &watching), 1.0);
}

#[tokio::test]
async fn unusual_requests_create_no_series() {
    let cluster = Cluster::start().await;
    let strange = async |round: usize| {
        let paths = [
            format!("/api/v1/namespaces/default/things{round}"),
            format!("/apis/group{round}.example/v{round}/things"),
            format!("{CONFIGMAPS}/a/part{round}"),
            format!("/page{round}"),
            format!("/healthz/check{round}"),
            format!("{CONFIGMAPS}?dryRun=no{round}&fieldManager=m{round}"),
            format!("/api/v{round}/namespaces/n{round}/pods/p{round}/log"),
        ];
        for path in paths {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", &format!("BREW{round}")] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let agent = format!("agent{round}");
                let sent = cluster.request(method, &path).header("user-agent", &agent);
                let _ = sent.content_type(&format!("text/x{round}")).await;
            }
        }
        let who =
            TestUser::Certificate(authority().client(&format!("user{round}"), &format!("group{round}")));
        cluster.get(CONFIGMAPS).user(&who).await.code(403);
    };
    strange(1).await;
    strange(2).await;
    let before: BTreeSet<String> = Scrape::of(&cluster).await.series().map(|it| it.0.to_owned()).collect();
    for round in 3..8 {
        strange(round).await;
    }
    let scrape = Scrape::of(&cluster).await;
    let after: BTreeSet<String> = scrape.series().map(|it| it.0.to_owned()).collect();
    let more: Vec<_> = after.difference(&before).collect();
    assert!(more.is_empty(), "{more:#?}");
    for word in ["things", "user1", "agent1", "group1", "BREW", "page1", "part1"] {
        assert!(!scrape.0.contains(word), "{word}");
    }
}

#[tokio::test]
async fn operators_hide_metrics_and_limit_labels() {
    let key = ("apiserver_request_total".to_owned(), "code".to_owned());
    let listed = ["200".to_owned(), "201".to_owned()].into_iter().collect();
    let options = counting::Options {
        disabled: ["apiserver_storage_objects".to_owned()].into_iter().collect(),
        allowed: [(key, listed)].into_iter().collect(),
    };
    let metrics = Arc::new(Registry::new(options));
    let observability = observability::Options { metrics, ..observability::Options::default() };
    let cluster = Cluster::with(Options { observability, ..Options::default() }).await;
    for name in ["a", "b"] {
        cluster.get(&format!("{CONFIGMAPS}/{name}")).await.code(404);
    }
    cluster.get(&format!("{CONFIGMAPS}?limit=x")).await.code(400);
    let scrape = Scrape::of(&cluster).await;
    assert!(!scrape.has("apiserver_storage_objects"));
    let labels = ["code=\"unexpected\"", "verb=\"GET\"", "resource=\"configmaps\""];
    assert_eq!(scrape.value("apiserver_request_total", &labels), 2.0);
    assert!(!scrape.0.contains("code=\"404\""));
}

#[tokio::test]
async fn callers_and_refusals_are_counted() {
    let tokens = auth::tokens::Tokens::parse("secret,jane@example.org,1").unwrap();
    let authentication =
        authentication::Options { tokens, anonymous: false, ..authentication::Options::default() };
    let cluster = Cluster::with(Options { authentication, ..Options::default() }).await;
    for (token, code) in [("secret", 403), ("other", 401)] {
        let request = cluster.get(CONFIGMAPS).user(&TestUser::Anonymous);
        request.header("authorization", &format!("Bearer {token}")).await.code(code);
    }
    cluster.get(CONFIGMAPS).user(&TestUser::Anonymous).await.code(401);
    let scrape = Scrape::of(&cluster).await;
    assert_eq!(scrape.value("authentication_attempts", &["result=\"error\""]), 1.0);
    assert_eq!(scrape.value("authentication_attempts", &["result=\"failure\""]), 1.0);
    assert_eq!(scrape.value("authenticated_user_requests", &["username=\"email_id\""]), 1.0);
    assert!(!scrape.0.contains("jane"));
}

#[tokio::test]
async fn dispatched_requests_are_counted() {
    let mut options = Options { fairness: flowcontrol::Options::default(), ..Options::default() };
    (options.requests.reading, options.requests.writing) = (1, 1);
    let cluster = Cluster::with(options).await;
    let wanda = writer(&cluster).await;
    cluster.get(CONFIGMAPS).user(&wanda).await.code(200);
    let scrape = Scrape::of(&cluster).await;
    let flow = ["flow_schema=\"global-default\"", "priority_level=\"global-default\""];
    assert_eq!(scrape.value("apiserver_flowcontrol_dispatched_requests_total", &flow), 1.0);
    assert_eq!(scrape.value("apiserver_flowcontrol_current_executing_requests", &flow), 0.0);
    assert_eq!(scrape.value("apiserver_flowcontrol_request_concurrency_in_use", &flow), 0.0);
    let exempt = ["flow_schema=\"exempt\"", "priority_level=\"exempt\""];
    assert!(scrape.value("apiserver_flowcontrol_dispatched_requests_total", &exempt) > 0.0);
    assert_eq!(scrape.value("apiserver_flowcontrol_current_executing_requests", &exempt), 0.0);
}

#[tokio::test]
async fn broken_handshakes_are_counted() {
    let cluster = Cluster::start().await;
    let mut plain = tokio::net::TcpStream::connect(cluster.address).await.unwrap();
    plain.write_all(b"this is not a handshake").await.unwrap();
    let counted = async {
        while Scrape::of(&cluster).await.value("apiserver_tls_handshake_errors_total", &[]) == 0.0 {}
    };
    tests::soon("the count of a broken handshake", counted).await;
}

#[tokio::test]
async fn metrics_can_be_compressed() {
    let cluster = Cluster::start().await;
    let answer = cluster.get("/metrics").header("accept-encoding", "gzip").await.code(200);
    assert_eq!(answer.header("content-encoding"), "gzip");
}

/// The series and labels that the rules and dashboards of kubernetes-mixin select by, of the API server.
const MIXIN: &[(&str, &[&str])] = &[
    ("aggregator_unavailable_apiservice", &[]),
    ("apiserver_client_certificate_expiration_seconds_bucket", &["le"]),
    ("apiserver_client_certificate_expiration_seconds_count", &[]),
    ("apiserver_request_duration_seconds_bucket", &["le", "verb", "resource", "subresource", "scope"]),
    ("apiserver_request_sli_duration_seconds_bucket", &["le", "verb", "resource", "subresource", "scope"]),
    ("apiserver_request_sli_duration_seconds_count", &["verb", "resource", "subresource", "scope"]),
    ("apiserver_request_slo_duration_seconds_bucket", &["le", "verb", "resource", "subresource", "scope"]),
    ("apiserver_request_terminations_total", &["code"]),
    ("apiserver_request_total", &["code", "verb", "resource"]),
    ("kubernetes_build_info", &["git_version"]),
];

#[tokio::test]
async fn metrics_of_common_alert_rules_exist() {
    let mut options = Options { fairness: flowcontrol::Options::default(), ..Options::default() };
    options.fairness.on = false;
    (options.requests.reading, options.requests.writing) = (1, 1);
    let cluster = Cluster::with(options).await;
    let wanda = writer(&cluster).await;
    // one that is refused because there is no room
    let held = super::limits::held(&cluster, &wanda, "POST").await;
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).user(&wanda).await.code(429);
    drop(held);
    let scrape = Scrape::of(&cluster).await;
    // outgoing calls are tested elsewhere
    for (name, labels) in MIXIN.iter().filter(|(name, _)| !name.starts_with("aggregator_")) {
        let mut series = scrape.series().filter(|(series, _)| series.split('{').next() == Some(name));
        let (found, _) = series.next().unwrap_or_else(|| panic!("{name} is not in {}", scrape.0));
        for label in *labels {
            assert!(found.contains(&format!("{label}=\"")), "{label} is not in {found}");
        }
    }
}

#[tokio::test]
async fn addresses_of_services_are_counted() {
    let cluster = Cluster::start().await;
    let service = |name: &str, address: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    cluster.create(services, service("named", "10.0.0.77")).await;
    cluster.create(services, service("any", "")).await;
    cluster.post(services, service("again", "10.0.0.77")).await.code(422);
    let scrape = Scrape::of(&cluster).await;
    let counted = |part: &str, labels: &[&str]| {
        scrape.value(&format!("kube_apiserver_clusterip_allocator_{part}"), labels)
    };
    assert_eq!(counted("allocated_ips", &[]), 2.0);
    assert_eq!(counted("allocation_total", &["scope=\"static\""]), 1.0);
    assert_eq!(counted("allocation_total", &["scope=\"dynamic\""]), 1.0);
    assert_eq!(counted("allocation_errors_total", &["scope=\"static\""]), 1.0);
    let free = counted("available_ips", &[]);
    cluster.delete(&format!("{services}/any")).await.code(200);
    let scrape = Scrape::of(&cluster).await;
    assert_eq!(scrape.value("kube_apiserver_clusterip_allocator_available_ips", &[]), free + 1.0);
}
