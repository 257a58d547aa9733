use super::event::{Dialect, Outcome, Record, Reference};
use super::policy::Selection;
use super::*;
use auth::User;
use bytes::Bytes;
use env::{Simulated, World};
use http::HeaderValue;
use names::Names;
use rest::RecordedObjects;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A receiver that responds with these codes, the last of them forever; 0 is no response.
async fn receiver(codes: &'static [u16]) -> (outbound::Target, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let nth = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        while let Ok((mut stream, _)) = listener.accept().await {
            let (sender, nth) = (sender.clone(), nth.clone());
            tokio::spawn(async move {
                let (mut received, mut part) = (Vec::new(), [0; 65536]);
                while let Ok(count @ 1..) = stream.read(&mut part).await {
                    received.extend_from_slice(&part[..count]);
                    let text = String::from_utf8_lossy(&received).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.lines().find_map(|line| {
                        line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
                    });
                    if body.len() < length.unwrap() {
                        continue;
                    }
                    assert!(head.starts_with("POST /hook HTTP/1.1"), "{head}");
                    received.clear();
                    let at = nth.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let code = codes[at.min(codes.len() - 1)];
                    let _ = sender.send(body.to_owned());
                    if code > 0 {
                        let response = format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n");
                        stream.write_all(response.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (outbound::Target { url, ..outbound::Target::default() }, received)
}

fn full_policy() -> Policy {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]";
    Policy::parse(text, &Names::kubernetes()).unwrap()
}

fn record(id: &str) -> Record {
    let user = User { uid: "7".into(), groups: vec!["a\"b".into(), "c".into()], ..User::named("jane") };
    let selection = Selection {
        level: Level::RequestResponse,
        omitted: Default::default(),
        without_managed_fields: false,
    };
    Record {
        selection,
        id: HeaderValue::try_from(id).unwrap(),
        uri: "/api/v1/pods?limit=1".parse().unwrap(),
        verb: "list",
        user: Some(Arc::new(user)),
        impersonated: None,
        sources: vec![[127, 0, 0, 1].into()],
        agent: Some(HeaderValue::from_static("curl")),
        object: Some(Reference::default()),
        received: std::time::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_700),
        decision: Some((Some(true), "so".into())),
        outcome: None,
        recorded_objects: RecordedObjects::default(),
        annotations: vec![("z".into(), "1".into()), ("a".into(), "2".into())],
    }
}

fn start(options: Options) -> (Arc<Audit>, Counters) {
    let registry = ::metrics::Registry::default();
    let (counters, calls) = (Counters::new(&registry), outbound::ClientMetrics::new(&registry));
    let world: World = Simulated::new(1_700_000_000, 5);
    let audit = Audit::start(options, &Names::kubernetes(), &world, &counters, &calls).unwrap();
    (audit.unwrap(), counters)
}

fn to(receiver: outbound::Target, mode: Mode) -> Options {
    let initial_backoff = Duration::from_millis(1);
    let webhook = WebhookOptions { receiver, initial_backoff, mode, truncate: None };
    Options { policy: Some(full_policy()), webhook: Some(webhook), log: None }
}

fn lists(max_size: usize) -> Batching {
    Batching { buffer: 100, max_size, max_wait: Duration::from_secs(3600), throttle: None }
}

fn lost(counters: &Counters, plugin: &'static str) -> u64 {
    counters.errors.of(&[plugin]).get()
}

/// The ids of the events in a list.
fn ids(list: &str) -> Vec<String> {
    assert!(list.starts_with(
        "{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[{\"level\":"
    ));
    let value = schema::decode::json_untyped(list.as_bytes()).unwrap().value;
    value.items(&["items"]).iter().map(|event| event.text(&["auditID"]).to_owned()).collect()
}

async fn emit(audit: &Audit, record: &Record, stage: Stage) -> bool {
    audit.emit(record, stage).get().await
}

#[tokio::test]
async fn events_are_posted_in_lists_and_the_rest_at_the_end() {
    let (target, mut received) = receiver(&[200]).await;
    let (audit, counters) = start(to(target, Mode::Batch(lists(3))));
    for nth in 0..7 {
        assert!(emit(&audit, &record(&nth.to_string()), Stage::RequestReceived).await);
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        let list = ids(&received.recv().await.unwrap());
        assert_eq!(list.len(), 3);
        all.extend(list);
    }
    assert!(received.try_recv().is_err());
    audit.close().await;
    all.extend(ids(&received.recv().await.unwrap()));
    // batches may overtake each other, events within one do not
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!((counters.events.get(), lost(&counters, "webhook")), (7, 0));
}

#[tokio::test]
async fn a_failing_receiver_is_retried_a_few_times() {
    let (target, mut received) = receiver(&[500, 404, 200]).await;
    let (audit, counters) = start(to(target, Mode::BlockingStrict));
    assert!(emit(&audit, &record("a"), Stage::RequestReceived).await);
    for _ in 0..3 {
        assert_eq!(ids(&received.recv().await.unwrap()), ["a"]);
    }
    let (target, mut received) = receiver(&[503]).await;
    let (strict, strictly) = start(to(target.clone(), Mode::BlockingStrict));
    assert!(!emit(&strict, &record("b"), Stage::RequestReceived).await);
    let (lenient, leniently) = start(to(target, Mode::Blocking));
    assert!(emit(&lenient, &record("b"), Stage::RequestReceived).await);
    let attempts = std::iter::from_fn(|| received.try_recv().ok()).count();
    assert_eq!((attempts, lost(&counters, "webhook")), (10, 0));
    assert_eq!((lost(&strictly, "webhook"), lost(&leniently, "webhook")), (1, 1));
}

#[tokio::test]
async fn a_hanging_receiver_blocks_no_request_and_is_bounded() {
    let (target, _received) = receiver(&[0]).await;
    let batching = Batching { buffer: 5, ..lists(1) };
    let (audit, counters) = start(to(target, Mode::Batch(batching)));
    for nth in 0..200 {
        assert!(emit(&audit, &record(&nth.to_string()), Stage::RequestReceived).await);
        tokio::task::yield_now().await;
    }
    let lost = lost(&counters, "buffered");
    assert!((150..200).contains(&lost), "{lost}");
    // nor is the shutdown delayed: the paused clock advances while all tasks wait
    tokio::time::pause();
    audit.close().await;
}

#[tokio::test]
async fn a_full_disk_stops_requests_only_in_strict_mode() {
    for (mode, goes_on) in [(Mode::Blocking, true), (Mode::BlockingStrict, false)] {
        let log = LogOptions {
            target: Target::File(PathBuf::from("/dev/full")),
            format: Format::Json,
            rotation: Rotation::default(),
            mode,
            truncate: None,
        };
        let (audit, counters) = start(Options { policy: Some(full_policy()), log: Some(log), webhook: None });
        assert_eq!(emit(&audit, &record("a"), Stage::RequestReceived).await, goes_on);
        assert_eq!(lost(&counters, "log"), 1);
    }
}

#[tokio::test]
async fn large_events_lose_their_bodies_and_then_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogOptions {
        target: Target::File(path.clone()),
        format: Format::Json,
        rotation: Rotation::default(),
        mode: Mode::Batch(Batching { max_wait: Duration::ZERO, ..lists(10) }),
        truncate: Some(Truncate { max_event_bytes: 1000, max_batch_bytes: 1500 }),
    };
    let (audit, counters) = start(Options { policy: Some(full_policy()), log: Some(log), webhook: None });
    let mut large = record("large");
    large.recorded_objects.request = Some(Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(1000))));
    large.outcome = Some(Outcome::Code(200));
    emit(&audit, &large, Stage::ResponseComplete).await;
    let mut huge = record("huge");
    huge.uri = format!("/{}", "y".repeat(1000)).parse().unwrap();
    emit(&audit, &huge, Stage::ResponseComplete).await;
    // the second line of the policy is the level: without bodies there is nothing to omit
    huge.selection.level = Level::Metadata;
    emit(&audit, &huge, Stage::ResponseComplete).await;
    emit(&audit, &record("small"), Stage::ResponseComplete).await;
    audit.close().await;
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("\"large\"") && lines[0].contains("\"audit.k8s.io/truncated\":\"true\""));
    assert!(!lines[0].contains("requestObject") && !lines[1].contains("truncated"), "{text}");
    assert_eq!(lost(&counters, "truncate"), 2);
    let split = audit.sinks[0].split(vec![Bytes::from(vec![0; 700]); 5]);
    assert_eq!(split.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn lists_are_written_no_more_often_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let throttle = Some(Throttle { per_second: 2.0, burst: 2 });
    let log = LogOptions {
        target: Target::File(folder.path().join("log")),
        format: Format::Legacy,
        rotation: Rotation::default(),
        mode: Mode::Batch(Batching { max_wait: Duration::ZERO, throttle, ..lists(1) }),
        truncate: None,
    };
    let (audit, _) = start(Options { policy: Some(full_policy()), log: Some(log), webhook: None });
    for nth in 0..5 {
        emit(&audit, &record(&nth.to_string()), Stage::RequestReceived).await;
    }
    let written = || std::fs::read_to_string(folder.path().join("log")).unwrap().lines().count();
    for (pause_ms, lines) in [(10, 2), (500, 3), (500, 4), (500, 5)] {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        assert_eq!(written(), lines);
    }
}

#[test]
fn the_formats_of_an_event_match_upstream() {
    let dialect = Dialect::new(&Names::kubernetes());
    let mut one = record("x\"y");
    one.impersonated = Some(Arc::new(User { groups: vec!["g".into()], ..User::named("bob") }));
    assert_eq!(
        one.line(Stage::RequestReceived),
        r#"2023-11-14T22:13:20.1234567Z AUDIT: id="x\"y" stage="RequestReceived" ip="127.0.0.1" method="list" user="jane" groups="\"a\\\"b\",\"c\"" as="bob" asgroups="\"g\"" user-agent="curl" namespace="<none>" uri="/api/v1/pods?limit=1" response="<deferred>""#
    );
    one.outcome = Some(Outcome::Disconnected);
    one.recorded_objects.response =
        Some(Bytes::from_static(b"{\"kind\":\"X\",\"metadata\":{\"managedFields\":[]}}"));
    one.selection.without_managed_fields = true;
    let at = one.received + Duration::from_secs(1);
    assert_eq!(
        String::from_utf8(one.json(Stage::ResponseComplete, at, &dialect, false)).unwrap(),
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"x\"y","stage":"ResponseComplete","requestURI":"/api/v1/pods?limit=1","verb":"list","user":{"username":"jane","uid":"7","groups":["a\"b","c"]},"impersonatedUser":{"username":"bob","groups":["g"]},"sourceIPs":["127.0.0.1"],"userAgent":"curl","objectRef":{},"responseStatus":{"metadata":{},"status":"Success","message":"Connection closed early","code":200},"responseObject":{"kind":"X","metadata":{}},"requestReceivedTimestamp":"2023-11-14T22:13:20.123456Z","stageTimestamp":"2023-11-14T22:13:21.123456Z","annotations":{"a":"2","authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"so","z":"1"}}"#
    );
    // a lower level includes no bodies, even if they are available
    one.selection.level = Level::Request;
    let event = one.json(Stage::ResponseComplete, at, &dialect, false);
    assert!(!String::from_utf8(event).unwrap().contains("responseObject"));
    one.outcome = Some(Outcome::Panic("why".into()));
    let event = String::from_utf8(one.json(Stage::Panic, at, &dialect, false)).unwrap();
    assert!(event.contains(
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"APIServer panic'd: why","reason":"InternalError","code":500}"#
    ));
}

#[tokio::test]
async fn a_request_that_was_received_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogOptions {
        target: Target::File(path.clone()),
        format: Format::Json,
        rotation: Rotation::default(),
        mode: Mode::Blocking,
        truncate: None,
    };
    let (audit, _) = start(Options { policy: Some(full_policy()), log: Some(log), webhook: None });
    let (parts, ()) = http::Request::get("/version").body(()).unwrap().into_parts();
    let info = crate::request::RequestInfo::parse(&parts.method, "/version", "");
    let remote = ([10, 0, 0, 9], 1).into();
    let peer = crate::serve::Peer { connection: 1, remote, certificate: None, http2: false };
    let user = Arc::new(User::named("jane"));
    let attributes = auth::Attributes {
        user: &user,
        verb: "get",
        api_group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: "/version",
        resource_request: false,
    };
    let begin = |request_record| AuditContext::begin(&audit, &info, &parts, &peer, request_record);
    let request_record = Default::default();
    let mut audit_context = begin(&request_record);
    assert!(audit_context.record_received(&user, &attributes).get().await);
    drop(audit_context);
    let mut audit_context = begin(&request_record);
    assert!(audit_context.record_received(&user, &attributes).get().await);
    audit_context.record_panic("a panic").await;
    let text = std::fs::read_to_string(&path).unwrap();
    let stages: Vec<_> = text
        .lines()
        .map(|line| {
            let event = schema::decode::json_untyped(line.as_bytes()).unwrap().value;
            format!("{} {}", event.text(&["stage"]), event.text(&["responseStatus", "message"]))
        })
        .collect();
    assert_eq!(
        stages,
        [
            "RequestReceived ",
            "ResponseComplete Connection closed early",
            "RequestReceived ",
            "Panic APIServer panic'd: a panic"
        ]
    );
}
