//! Probes and hooks of containers, as one trait: those over a network need pods that have one.

use super::hooks::{self, HookOutcome};
use crate::probes::action::{self, Outcome, ProbeTarget};
use crate::probes::verdicts::ProbeKind;
use api::core::v1::{LifecycleHandler, Probe};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::time::Duration;

/// Runs probes and hooks once.
pub trait ContainerActions: Send + Sync + 'static {
    /// An error is a probe that could not be run.
    fn probe<'a>(
        &'a self,
        kind: ProbeKind,
        probe: &'a Probe,
        target: &'a ProbeTarget<'a>,
    ) -> BoxFuture<'a, Result<Outcome, String>>;

    /// The error says why the hook failed.
    fn hook<'a>(
        &'a self,
        handler: &'a LifecycleHandler,
        target: &'a ProbeTarget<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<HookOutcome, String>>;
}

/// Commands by the runtime, requests over the network of the machine.
pub struct MachineActions;

impl ContainerActions for MachineActions {
    fn probe<'a>(
        &'a self,
        _: ProbeKind,
        probe: &'a Probe,
        target: &'a ProbeTarget<'a>,
    ) -> BoxFuture<'a, Result<Outcome, String>> {
        action::run(probe, target).boxed()
    }

    fn hook<'a>(
        &'a self,
        handler: &'a LifecycleHandler,
        target: &'a ProbeTarget<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<HookOutcome, String>> {
        hooks::run(handler, target, timeout).boxed()
    }
}
