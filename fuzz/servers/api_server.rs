//! An API server in this process, of which inputs are connections. Its clock stands still.
//!
//! It is a part of its targets, not of the library: the coverage of all code in a program is read after each input.

use apiserver::authentication::jose::Signer;
use apiserver::egress::Egress;
use apiserver::handle::Service;
use apiserver::serve::{
    Certificate, ClientCertificate, Limits, ListenConfig, Peer, Shutdown, StreamServer, TlsMaterial,
};
use apiserver::{
    AdvertiseOptions, Config, Gates, Server, StoreChoice, admission, aggregation, audit, authentication,
    authorization, cors, flowcontrol, limits, node_proxy, observability,
};
use auth::{Mode, User};
use env::{Env, Paused, Simulated};
use fuzz::certificates::{NOW, SERVER};
use names::Names;
use outbound::{Dialer, InProcessServers};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::runtime::{Builder, Runtime};

/// A server has so many connections or writes, so that one input depends little on those before it.
const MAX_CONNECTIONS: usize = 2000;
const MAX_WRITES: u64 = 100;
/// A client reads no more than this.
const MAX_RECEIVED: usize = 8 << 20;

/// See the module.
pub struct InProcess {
    pub server: Server,
    streams: StreamServer<Service>,
    clock: Arc<Paused>,
    connections: usize,
    writes_before: u64,
    runtime: Runtime,
}

/// All users that a connection may have.
pub fn user(choice: usize) -> Option<User> {
    let in_group = |name: &str, group: &str| {
        User { groups: vec![group.to_owned()], ..User::named(name) }.authenticated()
    };
    match choice % 8 {
        0 => None,
        1 => Some(User::named("nobody").authenticated()),
        2 => Some(in_group("system:node:n", auth::NODES)),
        3 => Some(User::service_account("default", "default")),
        _ => Some(in_group("administrator", auth::MASTERS)),
    }
}

/// Whether a user of the choice may write something.
pub fn may_write(choice: usize) -> bool {
    choice % 8 == 2 || choice % 8 > 3
}

impl InProcess {
    pub fn start() -> Self {
        let clock = Paused::new(Duration::from_secs(NOW), Simulated::new(0, 7));
        let idle = clock.clone();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || idle.on_idle())
            .build()
            .expect("a runtime");
        let server = runtime.block_on(Server::start(config(clock.clone()))).expect("a server");
        let streams =
            StreamServer::new(server.service.clone(), Limits::default(), Shutdown::new(), clock.clone());
        let writes_before = server.service.api.storage.store.revision().0;
        InProcess { server, streams, clock, connections: 0, writes_before, runtime }
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.server.service.api.storage.store.revision().0
    }

    /// Another server in its place, if it is used up.
    pub fn renew(&mut self) {
        let writes = self.revision() - self.writes_before;
        if self.connections < MAX_CONNECTIONS && writes < MAX_WRITES {
            return;
        }
        let old = std::mem::replace(self, Self::start());
        old.runtime.block_on(old.server.shutdown());
        old.runtime.shutdown_timeout(Duration::from_secs(10));
    }

    /// All that the server sends to a client that sends these bytes, reads, and leaves when nothing more happens.
    pub fn exchange(&mut self, user: Option<User>, http2: bool, sent: Vec<u8>) -> Vec<u8> {
        self.connections += 1;
        let certificate = user.map(|user| {
            let user = Some(Ok(Arc::new(user)));
            ClientCertificate::new(Certificate { user, proxy: None, until: i64::MAX })
        });
        let remote = ([127, 0, 0, 1], 1).into();
        let peer = Peer { connection: self.connections as u64, remote, certificate, http2 };
        let client = Arc::new(Mutex::new(Client { sent, ..Client::default() }));
        self.runtime.block_on(async {
            self.streams.serve(End(client.clone()), peer).await;
            self.settle().await;
            client.lock().expect("no panic").leave();
            self.settle().await;
        });
        std::mem::take(&mut client.lock().expect("no panic").received)
    }

    /// Returns when no task has anything to do.
    async fn settle(&self) {
        self.clock.advance_in_part(self.clock.elapsed(), usize::MAX).await;
    }
}

/// The client's end of a connection.
#[derive(Default)]
struct Client {
    sent: Vec<u8>,
    at: usize,
    received: Vec<u8>,
    has_left: bool,
    reader: Option<Waker>,
}

impl Client {
    fn leave(&mut self) {
        self.has_left = true;
        self.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// The server's end of it.
struct End(Arc<Mutex<Client>>);

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut client = self.0.lock().expect("no panic");
        let left = &client.sent[client.at..];
        if left.is_empty() && !client.has_left {
            client.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = left.len().min(out.remaining());
        out.put_slice(&left[..count]);
        client.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut client = self.0.lock().expect("no panic");
        if client.has_left || client.received.len() > MAX_RECEIVED {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        client.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// No other server: no input leads to a connection.
#[derive(Debug)]
struct NoServers;

impl InProcessServers for NoServers {
    fn contains(&self, _: &str) -> bool {
        false
    }

    fn connect(&self, _: &str) -> Option<DuplexStream> {
        None
    }
}

fn config(world: env::World) -> Config {
    let nowhere = || Dialer::InProcess(Arc::new(NoServers));
    let names = Names::kubernetes();
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}";
    let log = audit::LogOptions {
        target: audit::Target::File("/dev/null".into()),
        format: audit::Format::Json,
        rotation: audit::Rotation::default(),
        mode: audit::Mode::BlockingStrict,
        truncate: None,
    };
    Config {
        store: StoreChoice::Memory,
        encryption: None,
        listen: ListenConfig {
            address: ([127, 0, 0, 1], 0).into(),
            tls: TlsMaterial {
                certificate_chain: SERVER.0.clone().into_bytes(),
                private_key: SERVER.1.clone().into_bytes(),
                ..TlsMaterial::default()
            },
            limits: Limits::default(),
            share_port: false,
            world: world.clone(),
        },
        world,
        event_ttl: Duration::from_secs(3600),
        delete_workers: 1,
        authentication: authentication::Options {
            service_accounts: authentication::ServiceAccounts {
                signer: Some(Signer::from_pem(SERVER.1.as_bytes()).expect("a key")),
                ..Default::default()
            },
            bootstrap_tokens: true,
            ..Default::default()
        },
        authorization: authorization::Options { modes: vec![Mode::Node, Mode::Rbac], ..Default::default() },
        admission: admission::Options::default(),
        fairness: flowcontrol::Options::default(),
        audit: audit::Options {
            policy: Some(audit::Policy::parse(policy, &names).expect("a policy")),
            log: Some(log),
            webhook: None,
        },
        names,
        serving: Default::default(),
        limits: limits::Options::default(),
        cache: Default::default(),
        kinds: Default::default(),
        advertise_address: None,
        advertise: AdvertiseOptions::default(),
        egress: Egress { control_plane: nowhere(), cluster: nowhere(), etcd: nowhere() },
        aggregation: aggregation::Options { dialer: nowhere(), ..Default::default() },
        node_proxy: node_proxy::Options { dialer: nowhere(), ..Default::default() },
        gates: Gates { validating_admission_policy: true, ..Gates::default() },
        cors: cors::Options::default(),
        observability: observability::Options::default(),
        deployment: Default::default(),
    }
}
