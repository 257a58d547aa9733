//! An egress proxy and its protocol.

use super::tunnel::{self, TunnelError};
use super::{Stream, TIMEOUT, Wire, connect};
use crate::{InvalidTarget, Target, tls};
use env::World;
use env::io::RealInstant;
use http::Uri;
use http::uri::Scheme;
use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use rustls_pki_types::ServerName;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

const STARTED: Descriptor =
    Descriptor::alpha("apiserver_egress_dialer_dial_start_total", "Dials through proxies.")
        .by(&["protocol", "transport"]);
const FAILED: Descriptor = Descriptor::alpha(
    "apiserver_egress_dialer_dial_failure_count",
    "Failed dials through proxies, by stage.",
)
.by(&["protocol", "stage", "transport"]);
const TOOK: Descriptor = Descriptor::alpha(
    "apiserver_egress_dialer_dial_duration_seconds",
    "How long it took until a proxy had made a connection.",
)
.by(&["protocol", "transport"])
.seconds(&seconds([0.005, 0.025, 0.1, 0.5, 2.5, 12.5]));

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    HttpConnect,
    /// The protocol of konnectivity, with one tunnel per connection.
    Grpc,
}

/// Metrics of dialing through proxies.
pub struct DialMetrics {
    started: Family<Counter>,
    failed: Family<Counter>,
    took: Family<Histogram>,
}

impl DialMetrics {
    pub fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(DialMetrics {
            started: registry.family(STARTED),
            failed: registry.family(FAILED),
            took: registry.family(TOOK),
        })
    }
}

/// See the module.
pub struct Proxy {
    protocol: Protocol,
    at: ProxyAddress,
    /// The proxy as a target, for the protocol that opens its own channels.
    target: Target,
    /// Its name in errors.
    name: String,
    begun: OnceLock<(Arc<DialMetrics>, World)>,
}

enum ProxyAddress {
    Tcp { address: String, tls: Option<(TlsConnector, ServerName<'static>)> },
    Unix(PathBuf),
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Proxy({:?} at {})", self.protocol, self.name)
    }
}

impl Proxy {
    /// A proxy at an `http`, `https` or `unix` URL, with the target's TLS settings. It dials only after
    /// [`begin`](Self::begin).
    pub fn new(protocol: Protocol, target: &Target) -> Result<Self, InvalidTarget> {
        let bad = || InvalidTarget::Url(target.url.clone());
        let at = match target.url.strip_prefix("unix:") {
            Some("") => return Err(bad()),
            Some(path) => ProxyAddress::Unix(path.into()),
            None => {
                let url = target.url.parse::<Uri>().map_err(|_| bad())?;
                let address = super::address(&url).ok_or_else(bad)?;
                let tls = match url.scheme() {
                    Some(scheme) if *scheme == Scheme::HTTP => None,
                    Some(scheme) if *scheme == Scheme::HTTPS => {
                        let host = url.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_owned();
                        let name = ServerName::try_from(host).map_err(|_| bad())?;
                        Some((TlsConnector::from(Arc::new(tls::config(target)?)), name))
                    }
                    _ => return Err(bad()),
                };
                ProxyAddress::Tcp { address, tls }
            }
        };
        let name = match &at {
            ProxyAddress::Tcp { address, .. } => address.clone(),
            ProxyAddress::Unix(path) => path.display().to_string(),
        };
        let target = target.clone();
        Ok(Proxy { protocol, at, target, name, begun: OnceLock::new() })
    }

    /// Enables dialing through it, with these metrics.
    pub fn begin(&self, dials: &Arc<DialMetrics>, world: &World) {
        self.begun.get_or_init(|| (dials.clone(), world.clone()));
    }

    /// Connects to `host:port`.
    pub(super) async fn dial(&self, to: &str) -> io::Result<Wire> {
        let Some((dials, world)) = self.begun.get() else {
            return Err(io::Error::other(format!("the egress proxy at {} is not ready yet", self.name)));
        };
        let (began, until) = (RealInstant::now(), RealInstant::after(TIMEOUT));
        let labels = self.labels();
        dials.started.of(&labels).inc();
        let mut counted = DialGuard { dials, labels, stage: Some("connect") };
        let late = |_| {
            let why = format!("no connection to {to} through {} within {TIMEOUT:?}", self.name);
            io::Error::new(io::ErrorKind::TimedOut, why)
        };
        let unreachable = |why: &dyn fmt::Display| {
            io::Error::other(format!("the proxy at {} cannot be reached: {why}", self.name))
        };
        let wire = match self.protocol {
            Protocol::HttpConnect => {
                let stream = until.timeout(self.connect()).await.map_err(late)?;
                let stream = stream.map_err(|why| unreachable(&why))?;
                counted.stage = Some("proxy");
                until.timeout(connect::open(stream, &self.name, to)).await.map_err(late)??
            }
            Protocol::Grpc => {
                counted.stage = Some("proxy");
                let random = (env::random_u64(world) >> 1) as i64;
                let asking = tunnel::open(&self.target, to, random, TIMEOUT);
                match until.timeout(asking).await.map_err(late)? {
                    Ok(wire) => wire,
                    Err(TunnelError::Unreachable(why)) => {
                        counted.stage = Some("connect");
                        return Err(unreachable(&why));
                    }
                    Err(TunnelError::Refused(why)) => {
                        let why = format!("proxy error from {} while dialing {to}: {why}", self.name);
                        return Err(io::Error::other(why));
                    }
                }
            }
        };
        counted.stage = None;
        dials.took.of(&labels).took(began.elapsed());
        Ok(wire)
    }

    fn labels(&self) -> [&'static str; 2] {
        let protocol = match self.protocol {
            Protocol::HttpConnect => "http_connect",
            Protocol::Grpc => "grpc",
        };
        let transport = match self.at {
            ProxyAddress::Tcp { .. } => "tcp",
            ProxyAddress::Unix(_) => "uds",
        };
        [protocol, transport]
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.at {
            ProxyAddress::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            ProxyAddress::Tcp { address, tls } => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Ok(Box::new(stream)),
                    Some((tls, name)) => Ok(Box::new(tls.connect(name.clone(), stream).await?)),
                }
            }
        }
    }
}

/// A dial in progress. Dropping it counts as a failure.
struct DialGuard<'d> {
    dials: &'d DialMetrics,
    labels: [&'static str; 2],
    stage: Option<&'static str>,
}

impl Drop for DialGuard<'_> {
    fn drop(&mut self) {
        if let Some(stage) = self.stage {
            let [protocol, transport] = self.labels;
            self.dials.failed.of(&[protocol, stage, transport]).inc();
        }
    }
}
