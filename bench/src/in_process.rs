//! An API server in the process of a benchmark, called without a connection.

use apiserver::serve::{Limits, ListenConfig, TlsMaterial};
use apiserver::{Config, StoreChoice, admission, audit};
use env::World;
use names::Names;
use std::time::Duration;

/// The configuration of a server with role-based authorization that listens on a free local port.
pub fn config(
    store: StoreChoice,
    audit: audit::Options,
    admission: admission::Options,
    world: World,
) -> anyhow::Result<Config> {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let tls = TlsMaterial {
        certificate_chain: generated.cert.pem().into_bytes(),
        private_key: generated.signing_key.serialize_pem().into_bytes(),
        ..TlsMaterial::default()
    };
    let address = ([127, 0, 0, 1], 0).into();
    Ok(Config {
        store,
        encryption: None,
        listen: ListenConfig {
            address,
            tls,
            limits: Limits::default(),
            share_port: false,
            world: world.clone(),
        },
        world,
        names: Names::kubernetes(),
        event_ttl: Duration::from_secs(3600),
        delete_workers: 1,
        authentication: Default::default(),
        authorization: apiserver::authorization::Options {
            modes: vec![auth::Mode::Rbac],
            ..Default::default()
        },
        admission,
        audit,
        serving: Default::default(),
        cache: Default::default(),
        kinds: Default::default(),
        advertise_address: None,
        advertise: Default::default(),
        aggregation: Default::default(),
        node_proxy: Default::default(),
        egress: Default::default(),
        gates: Default::default(),
        cors: Default::default(),
        fairness: Default::default(),
        limits: Default::default(),
        observability: Default::default(),
        deployment: Default::default(),
    })
}
