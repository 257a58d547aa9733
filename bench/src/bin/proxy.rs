//! Measures the service proxy with a kernel: the first rules of many services, and single changes of endpoints.
//!
//!     cargo build --release -p bench --bin proxy && unshare --net target/release/proxy
//!
//! Run it as root in a network namespace of its own: it writes and deletes the tables of the proxy. CPU time is that of
//! the process, the kernel's work on its behalf included. Left out: the API server and the informers.

use api::core::v1::{Service, ServicePort};
use api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use bench::timer::Timer;
use clap::Parser;
use names::Names;
use network::netfilter::{Connection, Family};
use network::proxy::proxy_writer::ProxyWriter;
use network::proxy::rules::RuleOptions;
use network::proxy::state::{ProxyState, ServiceKey};
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Cli {
    #[arg(long, default_value_t = 5000)]
    services: usize,
    /// The endpoints of each service.
    #[arg(long, default_value_t = 10)]
    endpoints: usize,
    /// Single changes.
    #[arg(long, default_value_t = 200)]
    changes: usize,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let names = Names::kubernetes();
    let mut state = ProxyState::new(names.clone(), "node-1", vec![RuleOptions::new(Family::Ipv4)]);
    let mut writer = ProxyWriter::open()?;
    anyhow::ensure!(
        Connection::open()?.tables()?.is_empty(),
        "there are packet filter rules: run this in a network namespace of its own (unshare --net)"
    );

    let objects: Vec<_> = (0..cli.services)
        .map(|number| (key(number), service(number), slice(number, cli.endpoints, &names)))
        .collect();
    let start = Timer::start()?;
    for (key, service, slice) in &objects {
        state.set_service(key, Some(service));
        state.set_slice(slice, false);
    }
    let changes = state.sync();
    start.report("objects to rules")?;
    let start = Timer::start()?;
    writer.write(&state, &changes)?;
    start.report("first programming")?;

    // one endpoint more, then one fewer, of one service after the other
    let mut worst = Duration::ZERO;
    let start = Timer::start()?;
    for change in 0..cli.changes {
        let number = change / 2 * 7 % cli.services;
        let count = cli.endpoints + 1 - change % 2;
        let slice = slice(number, count, &names);
        let began = Instant::now();
        state.set_slice(&slice, false);
        let changes = state.sync();
        writer.write(&state, &changes)?;
        worst = worst.max(began.elapsed());
    }
    start.report_each("a change of one endpoint", cli.changes as u32, Some(worst))?;

    let start = Timer::start()?;
    let mut fresh = ProxyWriter::open()?;
    fresh.write(&state, &Default::default())?;
    start.report("comparison after a restart")?;
    writer.remove_tables()?;
    Ok(())
}

fn key(number: usize) -> ServiceKey {
    format!("default/service-{number}").into()
}

fn service(number: usize) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "default".to_owned();
    service.metadata.name = format!("service-{number}");
    service.spec.type_ = "ClusterIP".to_owned();
    service.spec.cluster_ip = format!("10.96.{}.{}", number / 250, number % 250 + 1);
    service.spec.cluster_ips = vec![service.spec.cluster_ip.clone()];
    service.spec.ports = vec![ServicePort { port: 80, protocol: "TCP".to_owned(), ..ServicePort::default() }];
    service
}

fn slice(number: usize, endpoints: usize, names: &Names) -> EndpointSlice {
    let mut slice = EndpointSlice::default();
    slice.metadata.namespace = "default".to_owned();
    slice.metadata.name = format!("service-{number}-1");
    slice.metadata.labels.insert(names.well_known("service-name"), format!("service-{number}"));
    slice.address_type = "IPv4".to_owned();
    slice.ports = vec![EndpointPort {
        name: Some(String::new()),
        protocol: Some("TCP".to_owned()),
        port: Some(8080),
        ..EndpointPort::default()
    }];
    let address = |at: usize| {
        let host = number * 16 + at;
        format!("10.{}.{}.{}", 1 + host / 62500, host / 250 % 250, host % 250 + 1)
    };
    slice.endpoints =
        (0..endpoints).map(|at| Endpoint { addresses: vec![address(at)], ..Endpoint::default() }).collect();
    slice
}
