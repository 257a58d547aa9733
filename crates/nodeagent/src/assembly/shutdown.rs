//! The graceful shutdown of the configuration.

use super::parts::Parts;
use crate::configuration::{Configuration, Gates};
use crate::dbus::SYSTEM_BUS;
use crate::node::reporter::NodeEvents;
use crate::pod::workers::PodWorkers;
use crate::shutdown::shutdown_times::ShutdownTimes;
use crate::shutdown::{GracefulShutdown, Logind, PriorityGrace, ShutdownOptions, by_critical, by_priority};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schema::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The directory of logind's configuration files.
const LOGIND_DIRECTORY: &str = "/etc/systemd/logind.conf.d";

/// The grace periods of the configuration; none if the node does not delay a shutdown.
fn periods(configuration: &Configuration, gates: &Gates) -> Vec<PriorityGrace> {
    if !gates.is_open("GracefulNodeShutdown") {
        return Vec::new();
    }
    let listed =
        configuration.at(&["shutdownGracePeriodByPodPriority"]).and_then(Value::as_list).unwrap_or(&[]);
    if gates.is_open("GracefulNodeShutdownBasedOnPodPriority") && !listed.is_empty() {
        let number = |item: &Value, field| item.at(&[field]).and_then(Value::as_int).unwrap_or(0);
        return by_priority(
            listed.iter().map(|it| (number(it, "priority"), number(it, "shutdownGracePeriodSeconds"))),
        );
    }
    by_critical(
        configuration.duration(&["shutdownGracePeriod"]),
        configuration.duration(&["shutdownGracePeriodCriticalPods"]),
    )
}

/// The task that delays the shutdown of the machine.
pub fn task(
    parts: &Parts,
    workers: Arc<PodWorkers>,
    events: NodeEvents,
    is_shutting_down: watch::Sender<bool>,
) -> BoxFuture<'static, ()> {
    let periods = periods(&parts.configuration, &parts.gates);
    let times = ShutdownTimes::new(Path::new(parts.flags.text("root-dir")), &parts.registry);
    if periods.is_empty() {
        return async move {
            // readers of the state outlive this function
            let _kept = is_shutting_down;
            std::future::pending().await
        }
        .boxed();
    }
    let options = ShutdownOptions {
        logind: Logind { socket: PathBuf::from(SYSTEM_BUS), directory: PathBuf::from(LOGIND_DIRECTORY) },
        world: parts.world.clone(),
        periods,
        workers,
        events,
        is_shutting_down,
        times,
        marks_disruptions: parts.gates.is_open("PodDisruptionConditions"),
    };
    GracefulShutdown::new(options).run().boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Gate;
    use std::time::Duration;

    #[test]
    fn periods_follow_the_configuration_and_its_gates() {
        let gates = |is_open: bool| {
            let gate = |name| Gate { name, is_open, stage: "beta", is_locked: false };
            let known = [gate("GracefulNodeShutdown"), gate("GracefulNodeShutdownBasedOnPodPriority")];
            Gates::new(&known, &[]).unwrap()
        };
        let mut tree = Value::map();
        assert_eq!(periods(&Configuration::with_defaults(tree.clone()), &gates(true)), []);
        tree.set(&["shutdownGracePeriod"], "30s");
        tree.set(&["shutdownGracePeriodCriticalPods"], "10s");
        let configuration = Configuration::with_defaults(tree);
        assert_eq!(periods(&configuration, &gates(false)), []);
        let seconds = |it: Vec<PriorityGrace>| it.iter().map(|it| it.period.as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds(periods(&configuration, &gates(true))), [20, 10]);
        let mut tree = Value::map();
        let mut item = Value::map();
        item.set(&["priority"], 1000);
        item.set(&["shutdownGracePeriodSeconds"], 7);
        tree.set(&["shutdownGracePeriodByPodPriority"], Value::List(vec![item]));
        let listed = periods(&Configuration::with_defaults(tree), &gates(true));
        assert_eq!(listed, [PriorityGrace { priority: 1000, period: Duration::from_secs(7) }]);
    }
}
