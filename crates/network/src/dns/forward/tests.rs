//! Forwarding to servers of this test.

use super::*;
use crate::dns::tests::fixture::{data, empty, name, query, respond};
use crate::dns::{Transport, bind};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::{A, SOA};
use metrics::Registry;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

/// Another server: its address, and how many queries it got.
struct FakeServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
}

impl FakeServer {
    /// Answers as a function says, with `None` for silence. Truncated answers are whole over TCP.
    async fn start(respond: impl Fn(&Message) -> Option<Message> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        let (queries, respond) = (Arc::<AtomicUsize>::default(), Arc::new(respond));
        let (count, answer) = (queries.clone(), respond.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            loop {
                let (length, source) = socket.recv_from(&mut buffer).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let query = Message::from_vec(&buffer[..length]).unwrap();
                if let Some(answer) = answer(&query) {
                    socket.send_to(&answer.to_vec().unwrap(), source).await.unwrap();
                }
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut packet = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut packet).await.unwrap();
                let mut answer = respond(&Message::from_vec(&packet).unwrap()).unwrap();
                answer.metadata.truncation = false;
                answer.answers.push(address_record(&answer, [9, 9, 9, 9], 60));
                let bytes = answer.to_vec().unwrap();
                stream.write_all(&(bytes.len() as u16).to_be_bytes()).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
        });
        FakeServer { address, queries }
    }

    /// Answers with an address.
    async fn with_address(address: [u8; 4]) -> Self {
        FakeServer::start(move |query| {
            let mut answer = response(query, ResponseCode::NoError);
            answer.answers.push(address_record(query, address, 300));
            Some(answer)
        })
        .await
    }

    async fn with_code(code: ResponseCode) -> Self {
        FakeServer::start(move |query| Some(response(query, code))).await
    }

    fn count(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

fn address_record(message: &Message, address: [u8; 4], ttl: u32) -> Record {
    Record::from_rdata(message.queries[0].name.clone(), ttl, RData::A(A(Ipv4Addr::from(address))))
}

fn response(query: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
    message.metadata.response_code = code;
    message.add_query(query.queries[0].clone());
    message
}

fn forwarder(servers: &[&FakeServer], world: &World) -> Forwarder {
    let servers = servers.iter().map(|it| it.address).collect();
    let options = Options { servers, ..Options::default() };
    Forwarder::new(options, Metrics::new(&Registry::default(), "cluster.local", 53), world)
}

async fn resolve(forwarder: &Forwarder, text: &str) -> (ResponseCode, Vec<String>) {
    let response = forwarder.resolve(&Query::query(name(text), RecordType::A), false, false).await;
    (response.code, response.answers.iter().map(|it| format!("{} {}", it.ttl, data(it))).collect())
}

#[tokio::test]
async fn answers_are_kept_for_their_time() {
    let world = env::Simulated::new(1_700_000_000, 3);
    let server = FakeServer::with_address([192, 0, 2, 1]).await;
    let forwarder = forwarder(&[&server], &(world.clone() as World));
    let found = |ttl: u32| (ResponseCode::NoError, vec![format!("{ttl} 192.0.2.1")]);
    assert_eq!(resolve(&forwarder, "example.org").await, found(30));
    world.advance(Duration::from_secs(10));
    assert_eq!(resolve(&forwarder, "EXAMPLE.org").await, found(20));
    assert_eq!(server.count(), 1);
    world.advance(Duration::from_secs(20));
    assert_eq!(resolve(&forwarder, "example.org").await, found(30));
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn missing_names_are_kept_by_their_zone() {
    let world = env::Simulated::new(1_700_000_000, 3);
    let server = FakeServer::start(|query| {
        let mut answer = response(query, ResponseCode::NXDomain);
        let soa = SOA::new(name("ns.org"), name("root.org"), 1, 1, 1, 1, 7);
        answer.authorities.push(Record::from_rdata(name("org"), 900, RData::SOA(soa)));
        Some(answer)
    })
    .await;
    let forwarder = forwarder(&[&server], &(world.clone() as World));
    for (advance, queries) in [(0, 1), (6, 1), (1, 2)] {
        world.advance(Duration::from_secs(advance));
        assert_eq!(resolve(&forwarder, "none.org").await.0, ResponseCode::NXDomain);
        assert_eq!(server.count(), queries);
    }
}

#[tokio::test]
async fn truncated_answers_are_fetched_over_tcp() {
    let server = FakeServer::start(|query| {
        let mut answer = response(query, ResponseCode::NoError);
        answer.metadata.truncation = true;
        Some(answer)
    })
    .await;
    let forwarder = forwarder(&[&server], &crate::dns::tests::fixture::world());
    assert_eq!(resolve(&forwarder, "long.org").await, (ResponseCode::NoError, vec!["30 9.9.9.9".to_owned()]));
}

#[tokio::test]
async fn another_server_is_tried_and_then_preferred() {
    let broken = FakeServer::with_code(ResponseCode::ServFail).await;
    let good = FakeServer::with_address([192, 0, 2, 2]).await;
    let forwarder = forwarder(&[&broken, &good], &crate::dns::tests::fixture::world());
    for name in ["a.org", "b.org", "c.org"] {
        assert_eq!(resolve(&forwarder, name).await.1, ["30 192.0.2.2"]);
    }
    assert_eq!((broken.count(), good.count()), (1, 3));
}

#[tokio::test]
async fn a_closed_port_is_a_failure_and_not_silence() {
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let world = env::Simulated::new(1_700_000_000, 3);
    let options = Options { servers: vec![closed], ..Options::default() };
    let metrics = Metrics::new(&Registry::default(), "cluster.local", 53);
    let forwarder = Forwarder::new(options, metrics.clone(), &(world.clone() as World));
    assert_eq!(resolve(&forwarder, "a.org").await, (ResponseCode::ServFail, Vec::new()));
    // nor is it where there is no server at all
    let forwarder = Forwarder::new(Options::default(), metrics, &(world as World));
    assert_eq!(resolve(&forwarder, "a.org").await, (ResponseCode::ServFail, Vec::new()));
}

#[tokio::test]
async fn forged_answers_are_ignored() {
    let server = FakeServer::start(|query| {
        let mut answer = response(query, ResponseCode::NoError);
        answer.metadata.truncation = query.queries[0].name == name("real.org");
        answer.queries[0] = Query::query(name("forged.org"), RecordType::A);
        answer.answers.push(address_record(query, [6, 6, 6, 6], 60));
        Some(answer)
    })
    .await;
    let exchange = |id| exchange::exchange(server.address, id, &QUERY, (false, false));
    static QUERY: std::sync::LazyLock<Query> =
        std::sync::LazyLock::new(|| Query::query(name("other.org"), RecordType::A));
    let result = env::io::timeout(Duration::from_millis(200), exchange(5)).await;
    assert!(result.is_err(), "the answer is to another question");
}

#[tokio::test]
async fn equal_queries_are_one() {
    let server = FakeServer::with_address([192, 0, 2, 3]).await;
    let forwarder = forwarder(&[&server], &crate::dns::tests::fixture::world());
    let queries = (0..20).map(|_| resolve(&forwarder, "busy.org"));
    let answers = futures_util::future::join_all(queries).await;
    assert!(answers.iter().all(|(_, records)| *records == ["30 192.0.2.3"]));
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn stub_domains_have_servers_of_their_own() {
    let corp = FakeServer::with_address([10, 1, 1, 1]).await;
    let lab = FakeServer::with_address([10, 2, 2, 2]).await;
    let rest = FakeServer::with_address([192, 0, 2, 4]).await;
    let stub = |domain: &str, server: &FakeServer| StubDomain {
        domain: name(domain),
        servers: vec![server.address],
    };
    let options = Options {
        servers: vec![rest.address],
        stub_domains: vec![stub("corp.example", &corp), stub("lab.corp.example", &lab)],
        ..Options::default()
    };
    let metrics = Metrics::new(&Registry::default(), "cluster.local", 53);
    let forwarder = Forwarder::new(options, metrics, &crate::dns::tests::fixture::world());
    assert_eq!(resolve(&forwarder, "a.corp.example").await.1, ["30 10.1.1.1"]);
    assert_eq!(resolve(&forwarder, "a.Lab.corp.example").await.1, ["30 10.2.2.2"]);
    assert_eq!(resolve(&forwarder, "acorp.example").await.1, ["30 192.0.2.4"]);
}

#[tokio::test]
async fn a_server_that_leads_back_here_is_not_used() {
    let socket = bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
    let own = socket.addresses()[0];
    let cluster = empty(Options { servers: vec![own], ..Options::default() });
    let serving = tokio::spawn(socket.serve(cluster.handler.clone()));
    let upstream = cluster.forwarder.default.all().remove(0);
    cluster.forwarder.probe(&upstream).await;
    assert!(upstream.is_loop());
    let packet = query("example.org", RecordType::A, None);
    let answer = respond(&cluster.handler, &packet, own.ip(), Transport::Udp).await.unwrap();
    assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, ResponseCode::ServFail);
    serving.abort();
}

#[tokio::test]
async fn an_alias_goes_on_outside_of_the_cluster() {
    let server = FakeServer::with_address([192, 0, 2, 5]).await;
    let cluster = empty(Options { servers: vec![server.address], ..Options::default() });
    cluster.records.set_namespace("shop", true);
    let alias = crate::dns::tests::fixture::alias("shop", "out", "example.org");
    crate::dns::tests::fixture::put(&cluster.records, &alias);
    let message =
        crate::dns::tests::fixture::ask(&cluster.handler, "out.shop.svc.cluster.local", RecordType::A).await;
    let answers: Vec<_> = message.answers.iter().map(|it| format!("{} {}", it.name, data(it))).collect();
    assert_eq!(answers, ["out.shop.svc.cluster.local. example.org.", "example.org. 192.0.2.5"]);
}

#[test]
fn servers_of_the_machine_are_read_without_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    let world = crate::dns::tests::fixture::world();
    std::fs::write(&file, "nameserver 10.96.0.10\nnameserver 192.0.2.1\n").unwrap();
    let options = Options {
        resolv_conf: Some(file.clone()),
        own_addresses: vec!["10.96.0.10".parse().unwrap()],
        ..Options::default()
    };
    let forwarder = Forwarder::new(options, Metrics::new(&Registry::default(), "cluster.local", 53), &world);
    let servers = || forwarder.default.all().iter().map(|it| it.address().to_string()).collect::<Vec<_>>();
    assert_eq!(servers(), ["192.0.2.1:53"]);
    std::fs::write(&file, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n").unwrap();
    forwarder.reload();
    assert_eq!(servers(), ["192.0.2.1:53", "192.0.2.2:53"]);
    std::fs::remove_file(&file).unwrap();
    forwarder.reload();
    assert!(servers().is_empty());
}
