//! Cluster DNS over a loopback socket: queries per second, and CPU time of the server per query.
//!
//! The server runs on one thread, with services and headless services in memory; another thread of this process keeps a
//! number of queries on their way. The server's CPU time is that of its thread, with its system calls, so it does not
//! depend on what else the machine does. Then the time from a change of a slice until an answer shows it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark fails loudly")]

use api::core::v1::{Service, ServicePort};
use api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use apimachinery::net::Network;
use clap::Parser;
use client::Key;
use env::World;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use metrics::Registry;
use network::dns::{
    AllowedSources, Authority, ForwardOptions, Forwarder, Handler, Metrics, Records, ServiceSource,
    SliceSource, bind,
};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    /// The services with an address
    #[arg(long, default_value_t = 5000)]
    services: usize,
    /// The headless services, of ten endpoints each
    #[arg(long, default_value_t = 500)]
    headless: usize,
    /// The queries on their way
    #[arg(long, default_value_t = 64)]
    window: usize,
    /// The seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).unwrap();
    name.set_fqdn(true);
    name
}

fn service(at: usize, address: Option<String>) -> Service {
    let mut service = Service::default();
    (service.metadata.namespace, service.metadata.name) =
        (format!("ns-{}", at % 50), format!("service-{at}"));
    service.spec.cluster_ip = address.unwrap_or_else(|| "None".to_owned());
    let port =
        ServicePort { name: "http".to_owned(), protocol: "TCP".to_owned(), port: 80, ..Default::default() };
    service.spec.ports = vec![port];
    service
}

fn slice(at: usize, last: usize) -> EndpointSlice {
    let endpoint = |it: usize| Endpoint {
        addresses: vec![format!("10.244.{}.{it}", at % 250)],
        hostname: Some(format!("pod-{it}")),
        ..Default::default()
    };
    let port = EndpointPort { name: Some("http".to_owned()), port: Some(8080), ..Default::default() };
    EndpointSlice { endpoints: (1..=last).map(endpoint).collect(), ports: vec![port], ..Default::default() }
}

/// The CPU time of this thread.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// A server on a thread of its own.
struct Server {
    records: Arc<Records>,
    address: SocketAddr,
    /// Asks the thread for its CPU time.
    time: tokio::sync::mpsc::UnboundedSender<mpsc::Sender<Duration>>,
}

impl Server {
    fn start(arguments: &Arguments, world: &World) -> Self {
        let zone = name("cluster.local");
        let records = Arc::new(Records::new(&zone, 1));
        (0..50).for_each(|it| records.set_namespace(&format!("ns-{it}"), true));
        let put = |at, address| {
            let service = service(at, address);
            records.set_service(&Key::of(&service), Some(ServiceSource::new(&service)));
            Key::of(&service)
        };
        for at in 0..arguments.services {
            put(at, Some(format!("10.96.{}.{}", at / 250, at % 250)));
        }
        for at in arguments.services..arguments.services + arguments.headless {
            records.set_slice(&put(at, None), "a", Some(SliceSource::new(&slice(at, 10))));
        }
        let ranges = vec![Network::parse("10.96.0.0/12").unwrap()];
        let authority = Authority::new(zone, ranges, &Key::new("kube-system", "kube-dns")).unwrap();
        let metrics = Metrics::new(&Registry::default(), "cluster.local", 53);
        let forwarder = Arc::new(Forwarder::new(ForwardOptions::default(), metrics.clone(), world));
        let sources = Arc::new(AllowedSources::new(Vec::new()));
        let handler = Arc::new(Handler::new(authority, records.clone(), sources, forwarder, metrics));
        let (sender, receiver) = mpsc::channel();
        let (time, mut requests) = tokio::sync::mpsc::unbounded_channel::<mpsc::Sender<Duration>>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listeners = bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
                sender.send(listeners.addresses()[0]).unwrap();
                let times = async {
                    while let Some(request) = requests.recv().await {
                        request.send(thread_time()).unwrap();
                    }
                };
                tokio::select! {
                    () = listeners.serve(handler) => {}
                    () = times => {}
                }
            });
        });
        Server { records, address: receiver.recv().unwrap(), time }
    }

    fn cpu_time(&self) -> Duration {
        let (sender, receiver) = mpsc::channel();
        self.time.send(sender).unwrap();
        receiver.recv().unwrap()
    }
}

fn packet(text: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    message.to_vec().unwrap()
}

/// Sends the packets in turn for some seconds.
fn measure(title: &str, server: &Server, packets: &[Vec<u8>], arguments: &Arguments) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut next = packets.iter().cycle();
    let mut send = || socket.send(next.next().unwrap()).unwrap();
    let mut buffer = [0; 2048];
    let (started, before) = (Instant::now(), server.cpu_time());
    for _ in 0..arguments.window {
        send();
    }
    let (mut answers, mut lost) = (0u64, 0u64);
    while started.elapsed() < Duration::from_secs(arguments.seconds) {
        match socket.recv(&mut buffer) {
            Ok(_) => answers += 1,
            Err(_) => lost += 1,
        }
        send();
    }
    let (wall, cpu) = (started.elapsed(), server.cpu_time() - before);
    let per_query = cpu.as_secs_f64() * 1e6 / answers as f64;
    println!(
        "{title:<28} {:>8.0} queries/s   {per_query:>7.2} us CPU/query   {:>8.0} queries/s per core   {lost} lost",
        answers as f64 / wall.as_secs_f64(),
        1e6 / per_query,
    );
}

/// The time from a change of a slice until an answer over the socket shows it: the median and the longest.
fn follow(server: &Server, arguments: &Arguments) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.address).unwrap();
    let at = arguments.services;
    let key = Key::of(&service(at, None));
    let query = packet(&format!("{}.{}.svc.cluster.local", key.name, key.namespace), RecordType::A);
    let mut buffer = [0; 2048];
    let mut times: Vec<Duration> = (0..1000)
        .map(|round| {
            let count = 1 + round % 10;
            let started = Instant::now();
            server.records.set_slice(&key, "a", Some(SliceSource::new(&slice(at, count))));
            loop {
                socket.send(&query).unwrap();
                let length = socket.recv(&mut buffer).unwrap();
                if Message::from_vec(&buffer[..length]).unwrap().answers.len() == count {
                    return started.elapsed();
                }
            }
        })
        .collect();
    times.sort();
    println!("change of a slice to answer: median {:?}, longest {:?}", times[500], times[999]);
}

fn main() {
    let arguments = Arguments::parse();
    let world: World = env::Seeded::new(1_700_000_000, 1);
    let started = Instant::now();
    let server = Server::start(&arguments, &world);
    println!(
        "{} services, {} headless: ready after {:?}",
        arguments.services,
        arguments.headless,
        started.elapsed()
    );
    let of = |range: std::ops::Range<usize>, kind, text: &dyn Fn(&str, &str) -> String| -> Vec<Vec<u8>> {
        let step = (range.len() / 1000).max(1);
        let keys = range.step_by(step).map(|at| Key::of(&service(at, None)));
        keys.map(|it| packet(&text(&it.name, &it.namespace), kind)).collect()
    };
    let (plain, headless) =
        (0..arguments.services, arguments.services..arguments.services + arguments.headless);
    let full = |service: &str, namespace: &str| format!("{service}.{namespace}.svc.cluster.local");
    measure("A of a service", &server, &of(plain.clone(), RecordType::A, &full), &arguments);
    measure("AAAA (no record)", &server, &of(plain.clone(), RecordType::AAAA, &full), &arguments);
    let searched =
        |service: &str, namespace: &str| format!("www.{service}.org.{namespace}.svc.cluster.local");
    measure("a name of a search path", &server, &of(plain.clone(), RecordType::A, &searched), &arguments);
    measure("A of ten endpoints", &server, &of(headless.clone(), RecordType::A, &full), &arguments);
    let locations =
        |service: &str, namespace: &str| format!("_http._tcp.{service}.{namespace}.svc.cluster.local");
    measure("SRV of ten endpoints", &server, &of(headless, RecordType::SRV, &locations), &arguments);
    follow(&server, &arguments);
}
