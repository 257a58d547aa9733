//! The registry of loops: their names, accounts and defaults, the selection by options, and the manager that runs them.
//!
//! Invariants: only this file knows loops; the shared parts below them know none.

use crate::context::CloseAtEnd;
use crate::gates::Gates;
use crate::{
    Context, attachdetach, bootstrap_signer, clusterrole_aggregation, cronjob, csrapproving, csrcleaner,
    csrsigning, daemonset, deployment, disruption, endpoint, endpointslice, endpointslicemirroring,
    ephemeral_volume, garbagecollector, horizontalpodautoscaling, job, local_volume_provisioner, namespace,
    nodeipam, nodelifecycle, persistentvolume_binder, persistentvolume_expander, podgc, pv_protection,
    pvc_protection, replicas, resourcequota, root_ca_publisher, service, serviceaccount,
    serviceaccount_token, slices, statefulset, storage_version_gc, token_cleaner, ttl, ttlafterfinished,
};
use api::apps::v1::ReplicaSet;
use api::core::v1::ReplicationController;
use client::run;
use client::run::Running;
use metrics::{Descriptor, Gauge};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// A loop.
pub struct Controller {
    pub name: &'static str,
    /// Whether it runs by default.
    on: fn(&Gates) -> bool,
    /// The service account of the loop; empty if it calls as the manager.
    pub account: &'static str,
    start: fn(Context, &Options) -> Running,
}

/// Options of the manager and of all loops.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names, `*` for all that run by default, and names with a minus that do not.
    pub controllers: Vec<String>,
    /// The wait between the starts of two loops.
    pub start_interval: Duration,
    /// Feature gates.
    pub gates: Gates,
    pub attach_detach: attachdetach::Options,
    pub csr_signing: csrsigning::Options,
    pub deployment_workers: usize,
    pub endpoint_slice_mirroring: slices::Options,
    pub endpoint_slices: slices::Options,
    pub endpoints: endpoint::Options,
    pub ephemeral_volume_workers: usize,
    pub garbage_collector: garbagecollector::Options,
    pub horizontal_pod_autoscaling: horizontalpodautoscaling::Options,
    pub namespaces: namespace::Options,
    pub node_ipam: nodeipam::Options,
    pub node_lifecycle: nodelifecycle::Options,
    pub persistent_volumes: persistentvolume_binder::Options,
    pub pod_gc: podgc::Options,
    pub replica_set_workers: usize,
    pub replication_controller_workers: usize,
    pub resource_quotas: resourcequota::Options,
    pub root_ca_publisher: root_ca_publisher::Options,
    pub service_account_tokens: serviceaccount_token::Options,
    pub service_accounts: serviceaccount::Options,
    pub stateful_set_workers: usize,
    pub ttl_after_finished_workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            controllers: vec!["*".to_owned()],
            start_interval: Duration::ZERO,
            gates: Gates::default(),
            attach_detach: attachdetach::Options::default(),
            csr_signing: Default::default(),
            deployment_workers: run::WORKERS,
            endpoint_slice_mirroring: slices::Options::with(endpointslicemirroring::MOST),
            endpoint_slices: slices::Options::with(endpointslice::MOST),
            endpoints: endpoint::Options::default(),
            ephemeral_volume_workers: run::WORKERS,
            garbage_collector: garbagecollector::Options::default(),
            horizontal_pod_autoscaling: horizontalpodautoscaling::Options::default(),
            namespaces: namespace::Options::default(),
            node_ipam: Default::default(),
            node_lifecycle: nodelifecycle::Options::default(),
            persistent_volumes: persistentvolume_binder::Options::default(),
            pod_gc: podgc::Options::default(),
            replica_set_workers: run::WORKERS,
            replication_controller_workers: run::WORKERS,
            resource_quotas: resourcequota::Options::default(),
            root_ca_publisher: Default::default(),
            service_account_tokens: Default::default(),
            service_accounts: Default::default(),
            stateful_set_workers: run::WORKERS,
            ttl_after_finished_workers: run::WORKERS,
        }
    }
}

/// Every loop, in the order of names.
pub const CONTROLLERS: &[Controller] = &[
    Controller {
        name: "attachdetach",
        on: |_| true,
        account: "attachdetach-controller",
        start: |context, options| Box::pin(attachdetach::run(context, options.attach_detach.clone())),
    },
    Controller {
        name: "bootstrapsigner",
        on: |_| false,
        account: "bootstrap-signer",
        start: |context, _| Box::pin(bootstrap_signer::run(context)),
    },
    Controller {
        name: "clusterrole-aggregation",
        on: |_| true,
        account: "clusterrole-aggregation-controller",
        start: |context, _| Box::pin(clusterrole_aggregation::run(context)),
    },
    Controller {
        name: "cronjob",
        on: |_| true,
        account: "cronjob-controller",
        start: |context, _| Box::pin(cronjob::run(context)),
    },
    Controller {
        name: "csrapproving",
        on: |_| true,
        account: "certificate-controller",
        start: |context, _| Box::pin(csrapproving::run(context)),
    },
    Controller {
        name: "csrcleaner",
        on: |_| true,
        account: "certificate-controller",
        start: |context, _| Box::pin(csrcleaner::run(context)),
    },
    Controller {
        name: "csrsigning",
        on: |_| true,
        account: "certificate-controller",
        start: |context, options| Box::pin(csrsigning::run(context, options.csr_signing.clone())),
    },
    Controller {
        name: "daemonset",
        on: |_| true,
        account: "daemon-set-controller",
        start: |context, _| Box::pin(daemonset::run(context)),
    },
    Controller {
        name: "deployment",
        on: |_| true,
        account: "deployment-controller",
        start: |context, options| Box::pin(deployment::run(context, options.deployment_workers)),
    },
    Controller {
        name: "disruption",
        on: |_| true,
        account: "disruption-controller",
        start: |context, _| Box::pin(disruption::run(context)),
    },
    Controller {
        name: "endpoint",
        on: |_| true,
        account: "endpoint-controller",
        start: |context, options| Box::pin(endpoint::run(context, options.endpoints.clone())),
    },
    Controller {
        name: "endpointslice",
        on: |_| true,
        account: "endpointslice-controller",
        start: |context, options| Box::pin(endpointslice::run(context, options.endpoint_slices.clone())),
    },
    Controller {
        name: "endpointslicemirroring",
        on: |_| true,
        account: "endpointslicemirroring-controller",
        start: |context, options| {
            Box::pin(endpointslicemirroring::run(context, options.endpoint_slice_mirroring.clone()))
        },
    },
    Controller {
        name: "ephemeral-volume",
        on: |_| true,
        account: "ephemeral-volume-controller",
        start: |context, options| Box::pin(ephemeral_volume::run(context, options.ephemeral_volume_workers)),
    },
    Controller {
        name: "garbagecollector",
        on: |_| true,
        account: "generic-garbage-collector",
        start: |context, options| Box::pin(garbagecollector::run(context, options.garbage_collector.clone())),
    },
    Controller {
        name: "horizontalpodautoscaling",
        on: |_| true,
        account: "horizontal-pod-autoscaler",
        start: |context, options| {
            Box::pin(horizontalpodautoscaling::run(context, options.horizontal_pod_autoscaling.clone()))
        },
    },
    Controller {
        name: "job",
        on: |_| true,
        account: "job-controller",
        start: |context, _| Box::pin(job::run(context)),
    },
    Controller {
        name: "local-volume-provisioner",
        on: |_| true,
        account: "local-volume-provisioner",
        start: |context, _| Box::pin(local_volume_provisioner::run(context)),
    },
    Controller {
        name: "namespace",
        on: |_| true,
        account: "namespace-controller",
        start: |context, options| Box::pin(namespace::run(context, options.namespaces.clone())),
    },
    Controller {
        name: "nodeipam",
        on: |_| true,
        account: "node-controller",
        start: |context, options| Box::pin(nodeipam::run(context, options.node_ipam.clone())),
    },
    Controller {
        name: "nodelifecycle",
        on: |_| true,
        account: "node-controller",
        start: |context, options| Box::pin(nodelifecycle::run(context, options.node_lifecycle.clone())),
    },
    Controller {
        name: "persistentvolume-binder",
        on: |_| true,
        account: "persistent-volume-binder",
        start: |context, options| {
            Box::pin(persistentvolume_binder::run(context, options.persistent_volumes.clone()))
        },
    },
    Controller {
        name: "persistentvolume-expander",
        on: |_| true,
        account: "expand-controller",
        start: |context, options| {
            let flex_directory = options.attach_detach.flex_directory.clone();
            Box::pin(persistentvolume_expander::run(context, flex_directory))
        },
    },
    Controller {
        name: "podgc",
        on: |_| true,
        account: "pod-garbage-collector",
        start: |context, options| Box::pin(podgc::run(context, options.pod_gc.clone())),
    },
    Controller {
        name: "pv-protection",
        on: |_| true,
        account: "pv-protection-controller",
        start: |context, _| Box::pin(pv_protection::run(context)),
    },
    Controller {
        name: "pvc-protection",
        on: |_| true,
        account: "pvc-protection-controller",
        start: |context, _| Box::pin(pvc_protection::run(context)),
    },
    Controller {
        name: "replicaset",
        on: |_| true,
        account: "replicaset-controller",
        start: |context, options| Box::pin(replicas::run::<ReplicaSet>(context, options.replica_set_workers)),
    },
    Controller {
        name: "replicationcontroller",
        on: |_| true,
        account: "replication-controller",
        start: |context, options| {
            let workers = options.replication_controller_workers;
            Box::pin(replicas::run::<ReplicationController>(context, workers))
        },
    },
    Controller {
        name: "resourcequota",
        on: |_| true,
        account: "resourcequota-controller",
        start: |context, options| Box::pin(resourcequota::run(context, options.resource_quotas.clone())),
    },
    Controller {
        name: "root-ca-cert-publisher",
        on: |_| true,
        account: "root-ca-cert-publisher",
        start: |context, options| {
            Box::pin(root_ca_publisher::run(context, options.root_ca_publisher.clone()))
        },
    },
    Controller {
        name: "service",
        on: |_| true,
        account: "service-controller",
        start: |context, _| Box::pin(service::run(context)),
    },
    Controller {
        name: "serviceaccount",
        on: |_| true,
        account: "service-account-controller",
        start: |context, options| Box::pin(serviceaccount::run(context, options.service_accounts.clone())),
    },
    Controller {
        name: "serviceaccount-token",
        on: |_| true,
        account: "",
        start: |context, options| {
            Box::pin(serviceaccount_token::run(context, options.service_account_tokens.clone()))
        },
    },
    Controller {
        name: "statefulset",
        on: |_| true,
        account: "statefulset-controller",
        start: |context, options| Box::pin(statefulset::run(context, options.stateful_set_workers)),
    },
    Controller {
        name: "storage-version-gc",
        on: |gates| gates.storage_versions,
        account: "storage-version-garbage-collector",
        start: |context, _| Box::pin(storage_version_gc::run(context)),
    },
    Controller {
        name: "tokencleaner",
        on: |_| false,
        account: "token-cleaner",
        start: |context, _| Box::pin(token_cleaner::run(context)),
    },
    Controller {
        name: "ttl",
        on: |_| true,
        account: "ttl-controller",
        start: |context, _| Box::pin(ttl::run(context)),
    },
    Controller {
        name: "ttl-after-finished",
        on: |_| true,
        account: "ttl-after-finished-controller",
        start: |context, options| {
            Box::pin(ttlafterfinished::run(context, options.ttl_after_finished_workers))
        },
    },
];

/// Names in the options that no controller has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {}", .0.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))]
pub struct UnknownControllers(pub Vec<String>);

/// The loops that a list of names selects: a name takes precedence over `*`, and the first of two names of the same loop
/// over the second.
pub fn chosen(names: &[String], gates: &Gates) -> Result<Vec<&'static Controller>, UnknownControllers> {
    let known: BTreeSet<&str> = CONTROLLERS.iter().map(|it| it.name).collect();
    let plain = |name: &str| name.strip_prefix('-').unwrap_or(name).to_owned();
    let unknown: Vec<String> = names
        .iter()
        .map(|name| plain(name))
        .filter(|name| name != "*" && !known.contains(name.as_str()))
        .collect();
    if !unknown.is_empty() {
        return Err(UnknownControllers(unknown));
    }
    let runs = |controller: &&Controller| match names.iter().find(|name| plain(name) == controller.name) {
        Some(name) => !name.starts_with('-'),
        None => (controller.on)(gates) && names.iter().any(|name| name == "*"),
    };
    Ok(CONTROLLERS.iter().filter(runs).collect())
}

/// The loops that run, by manager.
const RUNS: Descriptor =
    Descriptor::alpha("running_managed_controllers", "Loops that run.").by(&["manager", "name"]);

/// Runs the selected loops until all have ended, which none should, or the future is dropped.
pub async fn run(context: Context, options: &Options) -> Result<(), UnknownControllers> {
    let context = context.gated_by(options.gates);
    let _close = CloseAtEnd(context.clone());
    let mut running = JoinSet::new();
    let manager = format!("{}-controller-manager", context.names.prefix);
    let runs = context.metrics.registry().family::<Gauge>(RUNS);
    for (at, controller) in chosen(&options.controllers, &options.gates)?.into_iter().enumerate() {
        if at > 0 && !options.start_interval.is_zero() {
            env::sleep(&context.world, options.start_interval).await;
        }
        tracing::info!(controller = controller.name, "starts");
        let runs = runs.of(&[&manager, controller.name]);
        runs.set(1);
        let started = (controller.start)(context.of_account(controller.account), options);
        running.spawn(context.metrics.clone().scope(async move {
            started.await;
            runs.set(0);
            controller.name
        }));
    }
    if running.is_empty() {
        return std::future::pending().await;
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(name) => tracing::error!(controller = name, "ended"),
            Err(why) => tracing::error!(%why, "a controller panicked"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_loops() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&names, &Gates::default()).map(|all| all.iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert!(of(&["*"]).unwrap().contains(&"serviceaccount"));
        assert!(!of(&["*", "-serviceaccount"]).unwrap().contains(&"serviceaccount"));
        let gates = Gates { storage_versions: true, ..Gates::default() };
        let gated = chosen(&["*".to_owned()], &gates).unwrap();
        assert!(gated.iter().any(|it| it.name == "storage-version-gc"));
        assert!(!of(&["*"]).unwrap().contains(&"storage-version-gc"));
        assert_eq!(of(&["serviceaccount"]).unwrap(), ["serviceaccount"]);
        assert_eq!(of(&[]).unwrap(), [""; 0]);
        let why = of(&["*", "-nothing", "nor"]).unwrap_err().to_string();
        assert_eq!(why, "there is no controller \"nothing\", \"nor\"");
    }

    #[test]
    fn loops_are_sorted() {
        assert!(CONTROLLERS.is_sorted_by_key(|it| it.name));
    }
}
