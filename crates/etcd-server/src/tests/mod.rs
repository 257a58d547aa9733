//! Tests of the server: against a model, over the wire, and through the store that is a client of it.

mod durability;
mod leases;
mod limits;
mod model;
mod store;
mod watches;
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::{Seeded, World};
use grpc::etcd::kv_client::KvClient;
use grpc::etcd::watch_client::WatchClient;
use grpc::etcd::watch_request::RequestUnion;
use grpc::etcd::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use grpc::tonic::{Status, Streaming};
use metrics::Registry;
use outbound::{Channel, Target};
use tokio::sync::mpsc;

use crate::{Endpoint, Limits, Location, MemberInfo, Options, Server};

/// How long a test waits for what must come; only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(60);

fn seeded() -> World {
    Seeded::new(1_700_000_000, 1)
}

fn options(location: Location) -> Options {
    Options {
        location,
        endpoints: vec![Endpoint { address: ([127, 0, 0, 1], 0).into(), is_tls: false }],
        tls: None,
        member: MemberInfo { name: "default".to_owned(), peer_urls: Vec::new(), client_urls: Vec::new() },
        limits: Limits::default(),
        progress_interval: Duration::from_secs(600),
        retention: None,
        keep_alive: None,
        max_concurrent_streams: 1000,
    }
}

fn directory(path: &Path) -> Location {
    // the machine does not crash in tests
    Location::Directory { path: path.to_owned(), sync: false }
}

async fn start(options: Options, world: World) -> Server {
    Server::start(options, Arc::new(Registry::default()), world).await.unwrap()
}

async fn in_memory() -> Server {
    start(options(Location::Memory), seeded()).await
}

fn channel(server: &Server) -> Channel {
    let url = format!("http://{}", server.addresses()[0]);
    Channel::new(&Target { url, ..Target::default() }, &[]).unwrap()
}

/// A client of keys.
struct Kv(KvClient<Channel>);

impl Kv {
    fn new(server: &Server) -> Self {
        // answers may be of any size
        Kv(KvClient::new(channel(server)).max_decoding_message_size(usize::MAX))
    }

    async fn put(&mut self, key: &'static str, value: &'static str) -> i64 {
        let request = PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        self.put_request(request).await.unwrap().header.unwrap().revision
    }

    async fn put_request(&mut self, request: PutRequest) -> Result<PutResponse, Status> {
        self.0.put(request).await.map(|it| it.into_inner())
    }

    async fn delete(&mut self, key: &'static str, range_end: &'static str) -> DeleteRangeResponse {
        let request =
            DeleteRangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
        self.0.delete_range(request).await.unwrap().into_inner()
    }

    async fn range(&mut self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.0.range(request).await.map(|it| it.into_inner())
    }

    async fn get(&mut self, key: &'static str) -> Option<Bytes> {
        let request = RangeRequest { key: key.into(), ..Default::default() };
        self.range(request).await.unwrap().kvs.into_iter().next().map(|kv| kv.value)
    }
}

/// A stream of watches.
struct WatchStream {
    requests: mpsc::UnboundedSender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl WatchStream {
    async fn open(server: &Server) -> Self {
        let (requests, mut queued) = mpsc::unbounded_channel();
        let queued = futures_util::stream::poll_fn(move |context| queued.poll_recv(context));
        let mut client = WatchClient::new(channel(server)).max_decoding_message_size(usize::MAX);
        let responses = client.watch(queued).await.unwrap().into_inner();
        WatchStream { requests, responses }
    }

    fn send(&self, request: RequestUnion) {
        self.requests.send(WatchRequest { request_union: Some(request) }).unwrap();
    }

    /// Creates a watch of all keys from a revision on, and awaits its confirmation.
    async fn create(&mut self, start_revision: i64) -> WatchResponse {
        self.create_as(WatchCreateRequest {
            key: "\0".into(),
            range_end: "\0".into(),
            start_revision,
            ..Default::default()
        })
        .await
    }

    async fn create_as(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send(RequestUnion::CreateRequest(request));
        let response = self.next().await;
        assert!(response.created, "{response:?}");
        response
    }

    async fn next(&mut self) -> WatchResponse {
        env::io::timeout(TIMEOUT, self.responses.message()).await.unwrap().unwrap().unwrap()
    }
}
