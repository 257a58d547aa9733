//! Contains panics of plugins: a pod that makes a plugin panic fails by itself, and the scheduler goes on.
//!
//! A cycle changes nothing but its indexes and the results that pods of a class share. After a panic those results are
//! forgotten, and the pod is tried once more without them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::cycle::{Cycle, Failure, Outcome};
use crate::evaluation::{CompiledProfile, Nominator};
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// Like [`Cycle::schedule`]; a panic becomes a failure of the pod.
pub fn schedule(
    cycle: &mut Cycle,
    profile: &CompiledProfile,
    snapshot: &mut Snapshot,
    nominator: &dyn Nominator,
    pod: &Arc<PodInfo>,
) -> Outcome {
    let mut run = |cycle: &mut Cycle| {
        let outcome = catch_unwind(AssertUnwindSafe(|| cycle.schedule(profile, snapshot, nominator, pod)));
        outcome.map_err(|panic| {
            let message = message(&*panic);
            cycle.forget_classes();
            tracing::error!(pod = pod.name(), namespace = pod.namespace(), message, "a plugin panicked");
            message
        })
    };
    run(cycle).or_else(|_| run(cycle)).unwrap_or_else(|message| {
        Outcome::Failed(Box::new(Failure::error(format!("a plugin panicked: {message}"))))
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
