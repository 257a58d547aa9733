//! Measures network policies with a kernel: the first rules of many policies, and single changes of pods and policies.
//!
//!     cargo build --release -p bench --bin policy && unshare --net target/release/policy
//!
//! Run it as root in a network namespace of its own: it writes and deletes the tables of policies. CPU time is that of the
//! process, the kernel's work on its behalf included. Left out: the API server and the informers.

use api::core::v1::Pod;
use api::networking::v1::NetworkPolicy;
use bench::print_line;
use bench::timer::Timer;
use clap::Parser;
use client::Key;
use network::netfilter::{Connection, Family, TableWriter};
use network::policy::objects::{PodInfo, PolicyInfo};
use network::policy::rules::table_id;
use network::policy::state::PolicyState;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODE: &str = "node-0";
/// The pods of a node.
const PODS_PER_NODE: usize = 100;

#[derive(Parser)]
struct Cli {
    #[arg(long, default_value_t = 1000)]
    policies: usize,
    #[arg(long, default_value_t = 5000)]
    pods: usize,
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Single changes of each kind.
    #[arg(long, default_value_t = 200)]
    changes: usize,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let families = [Family::Ipv4];
    let mut state = PolicyState::new(NODE, &families);
    let mut writer = TableWriter::open(families.map(table_id).into())?;
    anyhow::ensure!(
        Connection::open()?.tables()?.is_empty(),
        "there are packet filter rules: run this in a network namespace of its own (unshare --net)"
    );
    let pods = (0..cli.pods).map(|at| pod(at, 0, &cli)).collect::<anyhow::Result<Vec<_>>>()?;
    let policies = (0..cli.policies).map(|at| policy(at, 80, &cli)).collect::<anyhow::Result<Vec<_>>>()?;

    let start = Timer::start()?;
    for at in 0..cli.namespaces {
        let labels = [("name".to_owned(), namespace(at)), ("team".to_owned(), format!("team-{}", at % 10))];
        state.set_namespace(&namespace(at), Some(labels.into()));
    }
    for pod in &pods {
        state.set_pod(&Arc::new(Key::of(pod)), PodInfo::read(pod));
    }
    for policy in &policies {
        state.set_policy(&Key::of(policy), PolicyInfo::read(policy));
    }
    let batch = state.sync();
    start.report("objects to rules")?;
    let start = Timer::start()?;
    writer.write(&batch, || state.ruleset())?;
    start.report("first programming")?;
    let ruleset = state.ruleset();
    let sets = ruleset.values().flat_map(|table| table.sets.values());
    let elements: usize = sets.map(|set| set.elements.len()).sum();
    let chains: usize = ruleset.values().map(|table| table.chains.len()).sum();
    print_line!("{:<34} {chains} chains, {elements} elements", "in the kernel");

    let mut measure = |label: &str, change: &dyn Fn(&mut PolicyState, usize) -> anyhow::Result<()>| {
        let (mut worst, mut steps) = (Duration::ZERO, 0);
        let start = Timer::start()?;
        for at in 0..cli.changes {
            let (began, before) = (Instant::now(), state.steps());
            change(&mut state, at)?;
            let batch = state.sync();
            writer.write(&batch, || state.ruleset())?;
            worst = worst.max(began.elapsed());
            steps = steps.max(state.steps() - before);
        }
        start.report_each(label, cli.changes as u32, Some(worst))?;
        print_line!("{:<34} {steps} at most", "  steps");
        anyhow::Ok(())
    };
    measure("a pod elsewhere gets an address", &|state, at| {
        let pod = pod(PODS_PER_NODE + at * 7 % (cli.pods - PODS_PER_NODE), 1 + at % 2, &cli)?;
        state.set_pod(&Arc::new(Key::of(&pod)), PodInfo::read(&pod));
        Ok(())
    })?;
    measure("a pod of the node comes or goes", &|state, at| {
        let pod = pod(at / 2 % PODS_PER_NODE, 0, &cli)?;
        let info = if at % 2 == 0 { None } else { PodInfo::read(&pod) };
        state.set_pod(&Arc::new(Key::of(&pod)), info);
        Ok(())
    })?;
    measure("a policy changes", &|state, at| {
        let policy = policy(at * 7 % cli.policies, 8000 + at as u16, &cli)?;
        state.set_policy(&Key::of(&policy), PolicyInfo::read(&policy));
        Ok(())
    })?;
    writer.remove_tables()?;
    Ok(())
}

fn namespace(at: usize) -> String {
    format!("ns-{at}")
}

/// A pod of one of ten applications of its namespace. The first ones are on the node.
fn pod(at: usize, generation: usize, cli: &Cli) -> anyhow::Result<Pod> {
    let host = at + generation * cli.pods;
    let text = serde_json::json!({
        "metadata": {
            "namespace": namespace(at % cli.namespaces), "name": format!("pod-{at}"),
            "labels": {"app": format!("app-{}", at / cli.namespaces % 10), "tier": format!("tier-{}", at % 3)},
        },
        "spec": {
            "nodeName": format!("node-{}", at / PODS_PER_NODE),
            "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}],
        },
        "status": {"phase": "Running", "podIP": format!("10.{}.{}.{}", 1 + host / 62500, host / 250 % 250, host % 250 + 1)},
    });
    Ok(api::from_json(text.to_string().as_bytes())?)
}

/// A policy for an application: from another one of its namespace, from namespaces of a team, and to a network.
fn policy(at: usize, port: u16, cli: &Cli) -> anyhow::Result<NetworkPolicy> {
    let text = serde_json::json!({
        "metadata": {"namespace": namespace(at % cli.namespaces), "name": format!("policy-{at}")},
        "spec": {
            "podSelector": {"matchLabels": {"app": format!("app-{}", at / cli.namespaces % 10)}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {"app": format!("app-{}", at % 10)}}}],
                    "ports": [{"port": "web"}, {"port": port}]},
                {"from": [{"namespaceSelector": {"matchLabels": {"team": format!("team-{}", at % 10)}},
                    "podSelector": {"matchLabels": {"tier": "tier-1"}}}]},
            ],
            "egress": [{"to": [{"ipBlock": {"cidr": format!("192.168.{}.0/24", at % 250)}}]}],
        },
    });
    Ok(api::from_json(text.to_string().as_bytes())?)
}
