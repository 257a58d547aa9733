//! Clients of agents, pods and services, built when they are first needed.

use super::location::Location;
use super::options::Options;
use crate::outgoing::forwarding::RequestBody;
use outbound::{ReverseProxy, Target};
use std::sync::OnceLock;

/// A client, or why it cannot be built.
type Client = OnceLock<Result<ReverseProxy<RequestBody>, String>>;

/// The server to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An agent: its certificate is verified, this server's is presented.
    Agent,
    /// An agent whose certificate is not verified, at the client's wish.
    UnverifiedAgent,
    /// A pod, or another port of a node: any certificate is accepted, none is presented.
    Workload,
    /// An agent in this process.
    InProcessAgent,
}

impl Peer {
    /// The agent at a location.
    pub fn agent(location: &Location, is_verified: bool) -> Self {
        match (location.scheme, is_verified) {
            ("http", _) => Peer::InProcessAgent,
            (_, true) => Peer::Agent,
            (_, false) => Peer::UnverifiedAgent,
        }
    }
}

/// See the module.
pub struct Transports {
    options: Options,
    clients: [Client; 4],
}

impl Transports {
    pub fn new(options: Options) -> Self {
        Transports { options, clients: Default::default() }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn client(&self, peer: Peer) -> Result<&ReverseProxy<RequestBody>, String> {
        let client = &self.clients[peer as usize];
        client.get_or_init(|| self.build(peer)).as_ref().map_err(Clone::clone)
    }

    fn build(&self, peer: Peer) -> Result<ReverseProxy<RequestBody>, String> {
        let options = &self.options;
        if let (Peer::InProcessAgent, Some(servers)) = (peer, &options.in_process) {
            let way = outbound::Dialer::InProcess(servers.clone());
            let target = Target { insecure: true, way, ..Target::default() };
            return ReverseProxy::new(&target).map_err(|why| why.to_string());
        }
        let is_verified = peer == Peer::Agent && options.authorities.is_some();
        let is_known = peer != Peer::Workload;
        let target = Target {
            authorities: options.authorities.clone().filter(|_| is_verified),
            authority_file: options.authority_file.clone().filter(|_| is_verified),
            insecure: !is_verified,
            identity: options.identity.clone().filter(|_| is_known),
            identity_files: options.identity_files.clone().filter(|_| is_known),
            way: options.dialer.clone(),
            connect_timeout: Some(options.timeout),
            ..Target::default()
        };
        ReverseProxy::new(&target).map_err(|why| why.to_string())
    }
}
