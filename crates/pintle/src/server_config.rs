//! The validated configuration of the API server.

use crate::deployment_mode::DeploymentMode;
use crate::options::{
    Apiserver, Authorities, ConfigErrors, InvalidConfig, SchedulerGates, ServingCertificates,
};
use apiserver::egress::Egress;
use apiserver::{
    AdvertiseOptions, Gates, admission, aggregation, audit, authentication, authorization, cors,
    encryption_at_rest, flowcontrol, limits, node_proxy, observability, serve,
};
use kinds::Serving;
use metrics::Registry;
use names::Names;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub struct ServerConfig {
    pub names: Names,
    pub sealing: Option<encryption_at_rest::Options>,
    pub address: SocketAddr,
    pub share_port: bool,
    pub certificates: ServingCertificates,
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
    /// The address that pods use to reach the server.
    pub reached_at: Option<IpAddr>,
    pub found: AdvertiseOptions,
    pub egress: Egress,
    pub aggregation: aggregation::Options,
    pub node_proxy: node_proxy::Options,
    pub gates: Gates,
    /// The feature gates of the control loops in the same process.
    pub loop_gates: controllers::gates::Gates,
    /// The feature gates of the scheduler in the same process.
    pub scheduler_gates: SchedulerGates,
    pub browsers: cors::Options,
    pub observe: observability::Options,
    /// The etcd to store objects in.
    pub etcd: Option<store_etcd::Options>,
}

impl ServerConfig {
    /// Validates all options; the error lists every invalid one.
    pub fn read(args: &Apiserver, mode: DeploymentMode) -> Result<Self, InvalidConfig> {
        let mut errors = ConfigErrors::default();
        let names = args.dialect.read(&mut errors);
        let egress = args.egress.read(&names, &mut errors);
        let beside = &egress.control_plane;
        let etcd = args.etcd.read(args.limits.etcd_compaction_interval, &egress.etcd, &mut errors);
        if mode == DeploymentMode::Standalone && args.secure_port == 0 {
            errors.add("--secure-port", "must be between 1 and 65535: it cannot be turned off with 0");
        }
        let certificates = args.tls.read(&mut errors);
        let (mut identity, authorities) = args.authentication.read(mode, beside, &mut errors);
        let permission = args.authorization.read(&names, beside, &mut errors);
        let admission = args.admission.read(mode, &names, &mut errors);
        let feature_gates = args.features.read(&mut errors);
        let gates = feature_gates.server_gates();
        let sealing = args.store.sealing(&names, gates.kms_v2, &mut errors);
        args.logs.check(&feature_gates, &mut errors);
        identity.service_accounts.tracks_use = gates.legacy_token_tracking;
        let (opened, closed) = feature_gates.kind_gates();
        let audit = args.audit.read(&names, beside, &mut errors);
        let limits = args.limits.read(&mut errors);
        let fairness = args.limits.flow_control(gates.priority_and_fairness, &mut errors);
        let browsers = args.cors.read(&mut errors);
        let observe = observability::Options {
            metrics: Arc::new(Registry::new(args.observability.metrics.read(&mut errors))),
            tracing: args.observability.tracing(gates.tracing, &names, &mut errors),
            verbosity: None,
            profiling: args.observability.metrics.profiling,
            command: crate::host::command_line(),
        };
        let serving = Serving::parse(args.runtime_config.iter().map(String::as_str), &names);
        let serving = errors.take("--runtime-config", serving).unwrap_or_default();
        if args.runtime_config.iter().any(|pair| pair.trim_start().starts_with("api/legacy")) {
            tracing::warn!("--runtime-config: api/legacy is deprecated and has no effect");
        }
        let services = services(args, &mut errors);
        let found = found(args, &mut errors);
        let aggregation = args.aggregation.read(&mut errors);
        let stream_bytes_per_second = args.limits.max_connection_bytes_per_sec;
        let node_proxy = node_proxy::Options { stream_bytes_per_second, ..args.kubelet.read(&mut errors) };
        errors.check()?;
        if identity.anonymous && permission.modes.contains(&auth::Mode::AlwaysAllow) {
            tracing::warn!(
                "anonymous requests are disabled: --authorization-mode AlwaysAllow would allow all of them"
            );
            identity.anonymous = false;
        }
        Ok(ServerConfig {
            sealing,
            address: SocketAddr::new(args.bind_address, args.secure_port),
            share_port: args.tls.permit_port_sharing,
            certificates,
            identity,
            authorities,
            permission,
            admission,
            audit,
            limits,
            fairness,
            connections: args.limits.connection_limits(process_start::raise_open_files()),
            serving: serving
                .with_gates(opened)
                .without_gates(closed)
                .at(args.emulated_version.unwrap_or(kinds::RELEASE)),
            kinds: kinds::Options {
                allow_privileged: args.allow_privileged,
                services,
                uncollected: !args.store.enable_garbage_collector,
            },
            event_ttl: args.event_ttl,
            delete_workers: args.delete_collection_workers.into(),
            reached_at: args.advertise_address.or_else(|| own_address(args.bind_address)),
            found,
            egress,
            aggregation,
            node_proxy,
            gates,
            loop_gates: feature_gates.controller_gates(),
            scheduler_gates: SchedulerGates::new(&feature_gates),
            browsers,
            observe,
            etcd,
            names,
        })
    }
}

impl ServerConfig {
    /// Whether the server must make certificates or keys that the operator did not provide.
    pub fn needs_own_pki(&self, mode: DeploymentMode) -> bool {
        mode != DeploymentMode::Standalone
            || self.certificates.default_pair.is_none()
            || self.authorities.clients.is_none()
            || self.identity.service_accounts.signer.is_none()
    }

    /// Whether clients with certificates of the cluster's own authority are accepted.
    pub fn trusts_own_clients(&self, mode: DeploymentMode) -> bool {
        mode != DeploymentMode::Standalone || self.authorities.clients.is_none()
    }
}

/// The ranges of service addresses and node ports.
fn services(args: &Apiserver, errors: &mut ConfigErrors) -> kinds::ServiceOptions {
    const OPTION: &str = "--service-cluster-ip-range";
    let ranges = &args.service_cluster_ip_range;
    if !(1..=2).contains(&ranges.len()) {
        errors.add(OPTION, "must be one range, or one of each address family");
    }
    for why in ranges.iter().filter_map(|range| range.unusable()) {
        errors.add(OPTION, why);
    }
    let second_network = ranges.get(1).copied();
    if second_network.is_some_and(|second| second.family() == ranges[0].family()) {
        errors.add(OPTION, "two ranges must be of different address families");
    }
    let usual = kinds::ServiceOptions::default();
    kinds::ServiceOptions {
        network: ranges.first().copied().unwrap_or(usual.network),
        second_network,
        node_ports: args.service_node_port_range,
    }
}

/// The name, node port and endpoints under which the server is found.
fn found(args: &Apiserver, errors: &mut ConfigErrors) -> AdvertiseOptions {
    let (port, range) = (args.kubernetes_service_node_port, args.service_node_port_range);
    if port > 0 && !(range.first..=range.last).contains(&port) {
        let why = format!("{port} is not in the range {range} of --service-node-port-range");
        errors.add("--kubernetes-service-node-port", why);
    }
    let name = args.external_hostname.clone().filter(|name| !name.is_empty());
    if let Some(bad) = name.as_deref().filter(|it| it.contains(['/', ' ', '@', '?', '#'])) {
        errors.add("--external-hostname", format!("{bad:?} is not a host name"));
    }
    let reconcile_endpoints = args.endpoint_reconciler_type != "none";
    let machine = Some(crate::host::host_name().unwrap_or_else(|| "localhost".to_owned()));
    AdvertiseOptions { name, node_port: port, reconcile_endpoints, hostname: machine }
}

/// The address of this machine for others: the listening address, or the address of the default route.
fn own_address(bind: IpAddr) -> Option<IpAddr> {
    if !bind.is_unspecified() && !bind.is_loopback() {
        return Some(bind);
    }
    // no packet is sent: connecting to a documentation address only selects the route
    let (from, to): (SocketAddr, SocketAddr) = match bind {
        IpAddr::V4(_) => (([0; 4], 0).into(), ([192, 0, 2, 1], 9).into()),
        IpAddr::V6(_) => (([0u16; 8], 0).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into()),
    };
    let socket = std::net::UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified() && !own.is_loopback()).then_some(own)
}
