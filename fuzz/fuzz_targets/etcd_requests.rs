//! Requests to the etcd server: each is answered, revisions never go back, and answers agree with each other.

#![no_main]

use env::{Simulated, World};
use etcd_server::{Endpoint, Limits, Location, MemberInfo, Options, Server};
use fuzz::duplex::run;
use fuzz::parts::parts;
use grpc::Message;
use grpc::etcd::kv_client::KvClient;
use grpc::etcd::lease_client::LeaseClient;
use grpc::etcd::maintenance_client::MaintenanceClient;
use grpc::etcd::{RangeRequest, RangeResponse, ResponseHeader};
use grpc::tonic::{Code, Request, Response, Status};
use libfuzzer_sys::fuzz_target;
use metrics::Registry;
use outbound::{Channel, Target};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

/// A server has so many revisions.
const MAX_REVISIONS: i64 = 2000;

struct Etcd {
    server: Server,
    channel: Channel,
    revision: i64,
}

thread_local! {
    static ETCD: ManuallyDrop<RefCell<Etcd>> = ManuallyDrop::new(run(Etcd::start()).into());
}

fuzz_target!(|data: &[u8]| {
    ETCD.with(|etcd| {
        let mut etcd = etcd.borrow_mut();
        run(async {
            for (choice, request) in parts(data, 12) {
                etcd.call(choice, request).await;
            }
            if etcd.revision > MAX_REVISIONS {
                let old = std::mem::replace(&mut *etcd, Etcd::start().await);
                old.server.stop().await;
            }
        });
    });
});

impl Etcd {
    async fn start() -> Self {
        let options = Options {
            location: Location::Memory,
            endpoints: vec![Endpoint { address: ([127, 0, 0, 1], 0).into(), is_tls: false }],
            tls: None,
            member: MemberInfo { name: "a".to_owned(), peer_urls: Vec::new(), client_urls: Vec::new() },
            limits: Limits::default(),
            progress_interval: Duration::from_secs(600),
            retention: None,
            keep_alive: None,
            max_concurrent_streams: 100,
        };
        let world: World = Simulated::new(1_700_000_000, 7);
        let server = Server::start(options, Arc::new(Registry::default()), world).await.expect("a server");
        let url = format!("http://{}", server.addresses()[0]);
        let channel = Channel::new(&Target { url, ..Target::default() }, &[]).expect("an address");
        Etcd { server, channel, revision: 0 }
    }

    async fn call(&mut self, choice: u8, bytes: &[u8]) {
        macro_rules! call {
            ($client:ident, $method:ident) => {{
                let Ok(request) = Message::decode(bytes) else { return };
                let answer = $client::new(self.channel.clone()).$method(Request::new(request)).await;
                self.note(answer, |it| it.header)
            }};
        }
        match choice % 10 {
            0 => {
                let Ok(request) = RangeRequest::decode(bytes) else { return };
                let answer = KvClient::new(self.channel.clone()).range(request.clone()).await;
                if let Some(answer) = self.note(answer, |it| it.header) {
                    check(&request, &answer);
                }
            }
            1 => drop(call!(KvClient, put)),
            2 => drop(call!(KvClient, delete_range)),
            3 | 4 => drop(call!(KvClient, txn)),
            5 => drop(call!(KvClient, compact)),
            6 => drop(call!(LeaseClient, lease_grant)),
            7 => drop(call!(LeaseClient, lease_revoke)),
            8 => drop(call!(LeaseClient, lease_time_to_live)),
            _ => drop(call!(MaintenanceClient, hash_kv)),
        }
    }

    /// The answer, if the request was not refused.
    fn note<T>(
        &mut self,
        answer: Result<Response<T>, Status>,
        header: impl Fn(&T) -> Option<ResponseHeader>,
    ) -> Option<T> {
        match answer {
            Err(why) => {
                assert!(!matches!(why.code(), Code::Internal | Code::Unavailable), "{why:?}");
                None
            }
            Ok(answer) => {
                let answer = answer.into_inner();
                let revision = header(&answer).map_or(0, |it| it.revision);
                assert!(revision >= self.revision, "{revision} after {}", self.revision);
                self.revision = revision;
                Some(answer)
            }
        }
    }
}

fn check(request: &RangeRequest, answer: &RangeResponse) {
    let found = answer.kvs.len() as i64;
    assert!(request.limit <= 0 || found <= request.limit, "{found} of {}", request.limit);
    assert!(request.count_only || answer.count >= found, "{found} of {}", answer.count);
    assert!(!request.count_only || found == 0);
    for kv in &answer.kvs {
        assert!(kv.create_revision <= kv.mod_revision && kv.version >= 1, "{kv:?}");
    }
}
