//! The manager: which loops there are, which of them run, and running them.

use crate::{Context, deployment, replicas, serviceaccount};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use std::collections::BTreeSet;
use std::pin::Pin;
use tokio::task::JoinSet;

/// A loop on its way. Ends only with the manager.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A loop that there is.
pub struct Controller {
    pub name: &'static str,
    /// Whether it runs unless told otherwise.
    pub on: bool,
    /// The service account that is its own, where each loop has one; without a name it calls as the manager.
    pub account: &'static str,
    start: fn(Context, &Options) -> Running,
}

/// What the operator decided about the loops.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names, `*` for all that run by default, and names with a minus that do not.
    pub controllers: Vec<String>,
    pub deployments: deployment::Options,
    pub replica_sets: replicas::Options,
    pub replication_controllers: replicas::Options,
    pub service_accounts: serviceaccount::Options,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            controllers: vec!["*".to_owned()],
            deployments: deployment::Options::default(),
            replica_sets: replicas::Options::default(),
            replication_controllers: replicas::Options::default(),
            service_accounts: serviceaccount::Options::default(),
        }
    }
}

/// Every loop, in the order of names.
pub const CONTROLLERS: &[Controller] = &[
    Controller {
        name: "deployment",
        on: true,
        account: "deployment-controller",
        start: |context, options| Box::pin(deployment::run(context, options.deployments.clone())),
    },
    Controller {
        name: "replicaset",
        on: true,
        account: "replicaset-controller",
        start: |context, options| {
            Box::pin(replicas::run::<ReplicaSet>(context, options.replica_sets.clone()))
        },
    },
    Controller {
        name: "replicationcontroller",
        on: true,
        account: "replication-controller",
        start: |context, options| {
            let options = options.replication_controllers.clone();
            Box::pin(replicas::run::<ReplicationController>(context, options))
        },
    },
    Controller {
        name: "serviceaccount",
        on: true,
        account: "service-account-controller",
        start: |context, options| Box::pin(serviceaccount::run(context, options.service_accounts.clone())),
    },
];

/// Names of loops that there are not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {}", .0.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))]
pub struct Unknown(pub Vec<String>);

/// The loops that the names choose: a name counts more than `*`, and the first of two about the same loop.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Controller>, Unknown> {
    let known: BTreeSet<&str> = CONTROLLERS.iter().map(|it| it.name).collect();
    let plain = |name: &str| name.strip_prefix('-').unwrap_or(name).to_owned();
    let unknown: Vec<String> = names
        .iter()
        .map(|name| plain(name))
        .filter(|name| name != "*" && !known.contains(name.as_str()))
        .collect();
    if !unknown.is_empty() {
        return Err(Unknown(unknown));
    }
    let runs = |controller: &&Controller| {
        let said = names.iter().find(|name| plain(name) == controller.name);
        match said {
            Some(name) => !name.starts_with('-'),
            None => controller.on && names.iter().any(|name| name == "*"),
        }
    };
    Ok(CONTROLLERS.iter().filter(runs).collect())
}

/// Runs the chosen loops until one of them ends, which none should, or this is dropped.
pub async fn run(context: Context, options: &Options) -> Result<(), Unknown> {
    let mut running = JoinSet::new();
    for controller in chosen(&options.controllers)? {
        tracing::info!(controller = controller.name, "starts");
        let started = (controller.start)(context.of_account(controller.account), options);
        running.spawn(async move {
            started.await;
            controller.name
        });
    }
    if running.is_empty() {
        return std::future::pending().await;
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(name) => tracing::error!(controller = name, "ended"),
            Err(why) => tracing::error!(%why, "a controller broke"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_loops() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&names).map(|all| all.iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert!(of(&["*"]).unwrap().contains(&"serviceaccount"));
        assert!(!of(&["*", "-serviceaccount"]).unwrap().contains(&"serviceaccount"));
        assert_eq!(of(&["serviceaccount"]).unwrap(), ["serviceaccount"]);
        assert_eq!(of(&[]).unwrap(), [""; 0]);
        let why = of(&["*", "-nothing", "nor"]).unwrap_err().to_string();
        assert_eq!(why, "there is no controller \"nothing\", \"nor\"");
    }

    #[test]
    fn loops_stand_in_order() {
        assert!(CONTROLLERS.is_sorted_by_key(|it| it.name));
    }
}
