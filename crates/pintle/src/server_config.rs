//! What the command line says about the API server, read and found to be usable.

use crate::files;
use crate::options::{Apiserver, Authorities, ConfigErrors, Problems, ServingCertificates};
use apiserver::egress::Egress;
use apiserver::{
    Found, Gates, admission, aggregation, audit, authentication, authorization, cors, encryption_at_rest,
    flowcontrol, limits, observability, serve,
};
use kinds::Serving;
use metrics::Registry;
use names::Names;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// In which company the server runs, which decides what it does where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeploymentMode {
    /// As one of several components that somebody else puts together: as upstream's does, with whatever certificates
    /// and keys it is given.
    Alone,
    /// With others in one process, which needs nothing that is given. Something may make the accounts of namespaces.
    SingleFlight { accounts: bool },
}

pub struct ServerConfig {
    pub names: Names,
    pub sealing: Option<encryption_at_rest::Options>,
    pub address: SocketAddr,
    pub share_port: bool,
    pub shown: ServingCertificates,
    pub identity: authentication::Options,
    pub authorities: Authorities,
    pub permission: authorization::Options,
    pub admission: admission::Options,
    pub audit: audit::Options,
    pub limits: limits::Options,
    pub fairness: flowcontrol::Options,
    pub connections: serve::Limits,
    pub serving: Serving,
    pub kinds: kinds::Options,
    pub event_ttl: Duration,
    pub delete_workers: usize,
    /// The address by which pods reach the server.
    pub reached_at: Option<IpAddr>,
    pub found: Found,
    pub egress: Egress,
    pub aggregation: aggregation::Options,
    pub gates: Gates,
    /// Those of the loops beside it.
    pub loop_gates: controllers::gates::Gates,
    pub browsers: cors::Options,
    pub observe: observability::Options,
    /// The etcd to keep objects in.
    pub etcd: Option<store_etcd::Options>,
}

impl ServerConfig {
    /// Reads all of it, or tells everything that is wrong.
    pub fn read(asked: &Apiserver, company: DeploymentMode) -> Result<Self, Problems> {
        let mut wrong = ConfigErrors::default();
        let names = asked.dialect.read(&mut wrong);
        let egress = asked.outward.read(&names, &mut wrong);
        let beside = &egress.control_plane;
        let etcd = asked.etcd.read(asked.limits.etcd_compaction_interval, &egress.etcd, &mut wrong);
        if company == DeploymentMode::Alone && asked.secure_port == 0 {
            wrong.add("--secure-port", "must be between 1 and 65535: it cannot be turned off with 0");
        }
        let shown = asked.tls.read(&mut wrong);
        let (mut identity, authorities) = asked.authentication.read(company, beside, &mut wrong);
        let permission = asked.authorization.read(&names, beside, &mut wrong);
        let admission = asked.admission.read(company, &names, &mut wrong);
        let decided = asked.features.read(&mut wrong);
        let gates = decided.of_server();
        let sealing = asked.store.sealing(&names, gates.key_servers, &mut wrong);
        asked.logs.check(decided.shapes_log(), &mut wrong);
        identity.service_accounts.tracked = gates.tracking;
        let (opened, closed) = decided.of_kinds();
        let audit = asked.audit.read(&names, beside, &mut wrong);
        let limits = asked.limits.read(&mut wrong);
        let fairness = asked.limits.of_turns(gates.turns, &mut wrong);
        let browsers = asked.browsers.read(&mut wrong);
        let observe = observability::Options {
            metrics: Arc::new(Registry::new(asked.observing.numbers.read(&mut wrong))),
            tracing: asked.observing.tracing(gates.tracing, &names, &mut wrong),
            verbosity: None,
            profiling: asked.observing.numbers.profiling,
            command: crate::cli::command_line(),
        };
        let serving = Serving::parse(asked.runtime_config.iter().map(String::as_str), &names);
        let serving = wrong.take("--runtime-config", serving).unwrap_or_default();
        if asked.runtime_config.iter().any(|pair| pair.trim_start().starts_with("api/legacy")) {
            tracing::warn!(
                "--runtime-config: api/legacy is deprecated and has no effect: there is nothing that it names"
            );
        }
        let services = services(asked, &mut wrong);
        let found = found(asked, &mut wrong);
        let aggregation = asked.aggregation.read(&mut wrong);
        wrong.check()?;
        if identity.anonymous && permission.modes.contains(&auth::Mode::AlwaysAllow) {
            tracing::warn!(
                "who shows nothing is refused: --authorization-mode AlwaysAllow would allow them all"
            );
            identity.anonymous = false;
        }
        Ok(ServerConfig {
            sealing,
            address: SocketAddr::new(asked.bind_address, asked.secure_port),
            share_port: asked.tls.permit_port_sharing,
            shown,
            identity,
            authorities,
            permission,
            admission,
            audit,
            limits,
            fairness,
            connections: asked.limits.of_connections(files::most_open()),
            serving: serving
                .with_gates(opened)
                .without_gates(closed)
                .at(asked.emulated_version.unwrap_or(kinds::RELEASE)),
            kinds: kinds::Options {
                allow_privileged: asked.allow_privileged,
                services,
                uncollected: !asked.store.enable_garbage_collector,
            },
            event_ttl: asked.event_ttl,
            delete_workers: asked.delete_collection_workers.into(),
            reached_at: asked.advertise_address.or_else(|| own_address(asked.bind_address)),
            found,
            egress,
            aggregation,
            gates,
            loop_gates: decided.of_loops(),
            browsers,
            observe,
            etcd,
            names,
        })
    }
}

impl ServerConfig {
    /// Whether the server needs certificates or keys that nobody gave it.
    pub fn needs_own_identity(&self, company: DeploymentMode) -> bool {
        company != DeploymentMode::Alone
            || self.shown.everybody.is_none()
            || self.authorities.clients.is_none()
            || self.identity.service_accounts.signer.is_none()
    }

    /// Whether clients of the cluster's own authority are believed.
    pub fn believes_own_clients(&self, company: DeploymentMode) -> bool {
        company != DeploymentMode::Alone || self.authorities.clients.is_none()
    }
}

/// Where services get their addresses and ports from.
fn services(asked: &Apiserver, wrong: &mut ConfigErrors) -> kinds::ServiceOptions {
    const OPTION: &str = "--service-cluster-ip-range";
    let ranges = &asked.service_cluster_ip_range;
    if !(1..=2).contains(&ranges.len()) {
        wrong.add(OPTION, "takes one range, or one of each address family");
    }
    for why in ranges.iter().filter_map(|range| range.unusable()) {
        wrong.add(OPTION, why);
    }
    let second_network = ranges.get(1).copied();
    if second_network.is_some_and(|second| second.family() == ranges[0].family()) {
        wrong.add(OPTION, "two ranges must be of different address families");
    }
    let usual = kinds::ServiceOptions::default();
    kinds::ServiceOptions {
        network: ranges.first().copied().unwrap_or(usual.network),
        second_network,
        node_ports: asked.service_node_port_range,
    }
}

/// How others find the server.
fn found(asked: &Apiserver, wrong: &mut ConfigErrors) -> Found {
    let (port, range) = (asked.kubernetes_service_node_port, asked.service_node_port_range);
    if port > 0 && !(range.first..=range.last).contains(&port) {
        let why = format!("{port} is not in the range {range} of --service-node-port-range");
        wrong.add("--kubernetes-service-node-port", why);
    }
    let name = asked.external_hostname.clone().filter(|name| !name.is_empty());
    if let Some(bad) = name.as_deref().filter(|it| it.contains(['/', ' ', '@', '?', '#'])) {
        wrong.add("--external-hostname", format!("{bad:?} is no name of a host"));
    }
    let keeps_addresses = asked.endpoint_reconciler_type != "none";
    let machine = Some(crate::up::machine_name().unwrap_or_else(|| "localhost".to_owned()));
    Found { name, node_port: port, keeps_addresses, machine }
}

/// The address by which others reach this machine: the one to listen on, or else that of the way out.
fn own_address(bind: IpAddr) -> Option<IpAddr> {
    if !bind.is_unspecified() && !bind.is_loopback() {
        return Some(bind);
    }
    // nothing is sent: connecting only makes the system choose the way, to an address that is nobody's
    let (from, to): (SocketAddr, SocketAddr) = match bind {
        IpAddr::V4(_) => (([0; 4], 0).into(), ([192, 0, 2, 1], 9).into()),
        IpAddr::V6(_) => (([0u16; 8], 0).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into()),
    };
    let socket = std::net::UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified() && !own.is_loopback()).then_some(own)
}
