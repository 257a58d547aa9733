//! A read through the whole pipeline but for the network: authentication, audit, authorization, the answer's bytes.

use anyhow::ensure;
use apiserver::audit::{self, Batching, Format, LogOptions, Mode, Policy, Rotation, Target};
use apiserver::serve::{Certificate, ClientCertificate, Peer};
use apiserver::{Server, StoreChoice};
use bench::in_process::config;
use bytes::Bytes;
use env::{Seeded, World};
use http::{Request, header};
use http_body_util::{BodyExt, Empty, Full};
use names::Names;
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/api/v1/namespaces/default/configmaps/one";

/// A server in this process, called without a connection.
pub struct Reads {
    server: Server,
    peer: Arc<Peer>,
    folder: tempfile::TempDir,
}

impl Reads {
    /// With a record of every read's metadata, if that is wanted.
    pub async fn new(audited: bool) -> anyhow::Result<Self> {
        let world: World = Seeded::new(1_700_000_000, 1);
        let names = Names::kubernetes();
        let folder = tempfile::tempdir()?;
        let group = names.group("audit");
        let policy = format!("apiVersion: {group}/v1\nkind: Policy\nrules: [{{level: Metadata}}]");
        let batching = Batching { buffer: 10_000, max_size: 1, max_wait: Duration::ZERO, throttle: None };
        let log = LogOptions {
            target: Target::File(folder.path().join("log")),
            format: Format::Json,
            rotation: Rotation::default(),
            mode: Mode::Batch(batching),
            truncate: None,
        };
        let audit = match audited {
            true => audit::Options {
                policy: Some(Policy::parse(&policy, &names)?),
                log: Some(log),
                webhook: None,
            },
            false => audit::Options::default(),
        };
        let config = config(StoreChoice::Memory, audit, Default::default(), world)?;
        let server = Server::start(config).await?;
        let admin = auth::User { groups: vec![auth::MASTERS.to_owned()], ..auth::User::named("admin") };
        let user = Some(Ok(Arc::new(admin.authenticated())));
        let certificate = Certificate { user, proxy: None, until: i64::MAX };
        let certificate = Some(ClientCertificate::new(certificate));
        let remote = ([127, 0, 0, 1], 1).into();
        let peer = Arc::new(Peer { connection: 1, remote, certificate, http2: true });
        let body = r#"{"metadata":{"name":"one"},"data":{"key":"value"}}"#;
        let request = Request::post(PATH.trim_end_matches("/one"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))?;
        let made = server.service.respond(request, peer.clone()).await;
        ensure!(made.status() == 201, "the object could not be made: {}", made.status());
        Ok(Reads { server, peer, folder })
    }

    /// Any request, as an administrator.
    #[allow(dead_code, reason = "each program that includes this file uses a part of it")]
    pub async fn respond(&self, request: Request<Full<Bytes>>) -> http::Response<apiserver::serve::Body> {
        self.server.service.respond(request, self.peer.clone()).await
    }

    #[allow(dead_code, reason = "each program that includes this file uses a part of it")]
    pub async fn read(&self) -> anyhow::Result<()> {
        let request = Request::get(PATH).header(header::USER_AGENT, "work").body(Empty::<Bytes>::new())?;
        let answer = self.server.service.respond(request, self.peer.clone()).await;
        ensure!(answer.status() == 200, "the object could not be read: {}", answer.status());
        std::hint::black_box(answer.into_body().collect().await?.to_bytes());
        Ok(())
    }

    #[allow(dead_code, reason = "each program that includes this file uses a part of it")]
    /// Ends the server; says how many events were written.
    pub async fn end(self) -> anyhow::Result<usize> {
        let Reads { server, folder, .. } = self;
        server.shutdown().await;
        let log = folder.path().join("log");
        Ok(if log.exists() { std::fs::read_to_string(log)?.lines().count() } else { 0 })
    }
}
