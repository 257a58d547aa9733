//! The worker of one pod: observes, reports, plans, acts, until the pod has ended.
//!
//! A worker is one task. It wakes by messages (a new spec, an event of the runtime, a probe's result) and by the next
//! point in time that matters (a delay's end, a deadline), never by polling. A request to end the pod interrupts the
//! waits of a step, not its calls. Steps and the end of a pod are boxed: a worker that waits, as most do, holds no space
//! for them.

use super::backoff::BackoffTable;
use super::dead_containers::DeadContainerPolicy;
use super::events::PodEvents;
use super::observation::PodObservation;
use super::plan::{Plan, PlanInput, RestartKey, plan};
use super::probing::Probing;
use super::setup::{PodSetup, Refusal};
use super::spec::is_terminal_phase;
use super::step_error::StepError;
use crate::images::Images;
use crate::probes::verdicts::ProbeVerdicts;
use crate::probes::worker::{ProbeResult, Prober};
use crate::runtime::{ContainerState, RuntimeError, SharedRuntime};
use crate::stats::AgentMetrics;
use crate::status::conditions::{READY, foreign};
use crate::status::containers::{StatusSource, WaitingReasons, terminate};
use crate::status::generate::{Eviction, block, generate, settle_times};
use api::Time;
use api::core::v1::{Pod, PodStatus};
use client::{Backoff, EventType};
use env::World;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// The delay before a step is repeated that the runtime failed.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// Waits between attempts to clean up after a pod.
const CLEANUP_RETRIES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Takes statuses of pods.
pub trait StatusSink: Send + Sync + 'static {
    /// Keeps a status. A pod that `is_finished` has no processes and no volumes left.
    fn set(&self, pod: &Arc<Pod>, status: &PodStatus, is_finished: bool);

    /// Keeps a status that was written before, and that another writer has replaced in part: it is written again.
    fn restore(&self, pod: &Arc<Pod>, status: &PodStatus) {
        self.set(pod, status, false);
    }
}

/// What the workers of a node share.
pub struct WorkerContext {
    pub runtime: SharedRuntime,
    /// The name of the runtime, which prefixes container ids.
    pub runtime_name: String,
    pub world: World,
    pub setup: Arc<dyn PodSetup>,
    pub events: Arc<dyn PodEvents>,
    pub images: Images,
    pub statuses: Arc<dyn StatusSink>,
    pub prober: Prober,
    pub metrics: AgentMetrics,
    pub dead_containers: DeadContainerPolicy,
    /// Takes the uids of pods that have ended.
    pub finished: mpsc::UnboundedSender<String>,
    /// Addresses of the node.
    pub host_ips: watch::Receiver<Vec<String>>,
}

/// A request to end a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KillRequest {
    /// Seconds instead of the pod's grace period.
    pub grace: Option<i64>,
    pub eviction: Option<Eviction>,
}

pub enum Message {
    /// Another version of the pod.
    Update(Arc<Pod>),
    /// The runtime announced the end of a container.
    Exit(String),
    /// Sandboxes or containers have changed.
    Relist,
    /// A list shows the state of a sandbox or container, or that it is gone.
    Listed { id: String, state: Option<ContainerState> },
    /// Objects that the pod refers to have changed.
    Refresh,
}

/// See the module.
pub struct Worker {
    pub(super) context: Arc<WorkerContext>,
    pub(super) pod: Arc<Pod>,
    pub(super) observed: PodObservation,
    pub(super) backoff: BackoffTable<RestartKey>,
    pub(super) waiting: WaitingReasons,
    pub(super) verdicts: ProbeVerdicts,
    pub(super) kill: watch::Receiver<Option<KillRequest>>,
    pub(super) probing: Probing,
    status: PodStatus,
    /// Whether another writer has replaced a part of the status that is the agent's.
    is_overwritten: bool,
    /// The phase that was handed on last; the pod may be a version from before it.
    shown_phase: String,
    /// Why the agent ends the pod.
    eviction: Option<Eviction>,
    /// Why the node cannot run the pod.
    refusal: Option<Refusal>,
    /// Sandboxes and containers whose end was announced.
    pub(super) exits: BTreeSet<String>,
    /// Sandboxes and containers that a call may have changed.
    pub(super) touched: BTreeSet<String>,
    /// Whether the lists of sandboxes and containers must be read again.
    pub(super) is_stale: bool,
}

/// What follows a step.
enum StepOutcome {
    /// Wait for messages, at most until this point of the monotonic clock.
    Wait(Option<Duration>),
    Repeat,
    /// End the pod: it has ended by itself, or is past its deadline.
    End(Option<Eviction>),
}

impl Worker {
    /// Starts a worker with what the runtime has of the pod.
    pub fn spawn(
        context: Arc<WorkerContext>,
        pod: Arc<Pod>,
        observed: PodObservation,
        kill: watch::Receiver<Option<KillRequest>>,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> tokio::task::JoinHandle<()> {
        let (probing, results) = Probing::new(context.prober.clone());
        let status = pod.status.clone();
        let worker = Worker {
            context,
            pod,
            observed,
            backoff: BackoffTable::default(),
            waiting: WaitingReasons::new(),
            verdicts: ProbeVerdicts::default(),
            kill,
            probing,
            status,
            is_overwritten: false,
            shown_phase: String::new(),
            eviction: None,
            refusal: None,
            exits: BTreeSet::new(),
            touched: BTreeSet::new(),
            is_stale: false,
        };
        let seen = worker.context.world.elapsed();
        tokio::spawn(async move {
            let context = &worker.context;
            context.metrics.worker_begun(context.world.elapsed().saturating_sub(seen));
            worker.run(inbox, results).await;
        })
    }

    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Message>,
        mut results: mpsc::UnboundedReceiver<ProbeResult>,
    ) {
        let (world, metrics) = (self.context.world.clone(), self.context.metrics.clone());
        let (begun, mut is_starting) = (world.elapsed(), matches!(&*self.status.phase, "" | "Pending"));
        if is_starting {
            metrics.worker_started(self.pod.spec.containers.len());
        }
        loop {
            if self.kill.has_changed().is_err() {
                // the agent stops
                return;
            }
            self.receive(&mut inbox, &mut results);
            let request = self.kill.borrow_and_update().clone();
            let deleted = self.pod.metadata.deletion_timestamp.map(|_| KillRequest::default());
            if let Some(request) = request.or(deleted) {
                Box::pin(self.end(request, &mut inbox, &mut results)).await;
                break;
            }
            let step_begun = world.elapsed();
            let stepped = Box::pin(self.step()).await;
            let operation = if is_starting { "create" } else { "sync" };
            metrics.worker_stepped(operation, world.elapsed().saturating_sub(step_begun));
            if is_starting && &*self.status.phase == "Running" {
                is_starting = false;
                metrics.pod_started(world.elapsed().saturating_sub(begun), self.age());
            }
            let next = match stepped {
                Ok(next) => next,
                Err(why) => {
                    tracing::warn!(pod = %crate::pod_facts::description(&self.pod), %why, "the runtime failed");
                    self.is_stale = true;
                    StepOutcome::Wait(Some(self.context.world.elapsed() + RUNTIME_RETRY))
                }
            };
            let until = match next {
                StepOutcome::Repeat => continue,
                StepOutcome::End(eviction) => {
                    let request = KillRequest { eviction, ..KillRequest::default() };
                    Box::pin(self.end(request, &mut inbox, &mut results)).await;
                    break;
                }
                StepOutcome::Wait(until) => until,
            };
            let wake = async {
                match until {
                    Some(until) => env::sleep_until(&world, until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(wake);
            loop {
                tokio::select! {
                    biased;
                    changed = self.kill.changed() => if changed.is_err() { return },
                    message = inbox.recv() => match message {
                        Some(message) if self.is_observed(&message) => continue,
                        Some(message) if self.is_echo(&message) => {
                            let is_own_write = self.is_own_write(&message);
                            self.take(message);
                            if !is_own_write {
                                self.report(false);
                            }
                            continue;
                        }
                        Some(message) => self.take(message),
                        None => return,
                    },
                    Some(result) = results.recv() => self.take_result(result),
                    () = &mut wake => {}
                }
                break;
            }
        }
        Box::pin(self.rest(inbox)).await;
    }

    /// The time since the pod was created.
    fn age(&self) -> Duration {
        let created = self.pod.metadata.creation_timestamp.as_ref().map_or(0, |it| it.0);
        let age = env::unix_seconds(&self.context.world).saturating_sub(created);
        Duration::from_secs(u64::try_from(age).unwrap_or(0))
    }

    /// Takes all messages that are there.
    fn receive(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
        results: &mut mpsc::UnboundedReceiver<ProbeResult>,
    ) {
        while let Ok(message) = inbox.try_recv() {
            self.take(message);
        }
        while let Ok(result) = results.try_recv() {
            self.take_result(result);
        }
    }

    /// Whether a message is a state that this worker has seen: most changes are its own.
    fn is_observed(&self, message: &Message) -> bool {
        matches!(message, Message::Listed { id, state } if self.observed.state(id) == *state)
    }

    /// Whether a message is a version of the pod that differs in its status alone.
    fn is_echo(&self, message: &Message) -> bool {
        let Message::Update(pod) = message else { return false };
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        pod.spec == self.pod.spec
            && new.annotations == old.annotations
            && new.labels == old.labels
            && new.deletion_timestamp == old.deletion_timestamp
            && is_terminal_phase(&pod.status.phase) == is_terminal_phase(&self.pod.status.phase)
    }

    /// Whether a version of the pod has nothing new that its status is made from: most versions are the agent's own
    /// writes.
    fn is_own_write(&self, message: &Message) -> bool {
        let Message::Update(pod) = message else { return false };
        let (old, new) = (&self.pod.status, &pod.status);
        !self.is_overwritten_by(pod)
            && new.start_time == self.status.start_time
            && new.nominated_node_name == old.nominated_node_name
            && foreign(&new.conditions).eq(foreign(&old.conditions))
    }

    /// Whether another writer has changed the readiness of the pod, as the node lifecycle controller does while the node
    /// seems to be lost. A version from before the agent's last write has an older condition.
    fn is_overwritten_by(&self, pod: &Pod) -> bool {
        let ready = |status: &PodStatus| status.conditions.iter().find(|it| it.type_ == READY).cloned();
        let (Some(own), Some(new)) = (ready(&self.status), ready(&pod.status)) else { return false };
        let was_written = ready(&self.pod.status).is_some_and(|it| it.status == own.status);
        new.status != own.status && (was_written || new.last_transition_time > own.last_transition_time)
    }

    pub(super) fn take(&mut self, message: Message) {
        let is_observed = self.is_observed(&message);
        match message {
            Message::Update(pod) => {
                self.is_overwritten |= self.is_overwritten_by(&pod);
                self.pod = pod;
            }
            Message::Exit(id) => drop(self.exits.insert(id)),
            Message::Relist => self.is_stale = true,
            Message::Listed { .. } => self.is_stale |= !is_observed,
            Message::Refresh => {}
        }
    }

    fn take_result(&mut self, result: ProbeResult) {
        self.verdicts.set(&result.container_id, result.kind, result.is_success);
    }

    /// Observes, reports, plans and acts once.
    async fn step(&mut self) -> Result<StepOutcome, RuntimeError> {
        self.refresh().await?;
        let eviction = self.deadline_eviction();
        self.eviction = eviction.clone();
        let is_pending = matches!(&*self.status.phase, "" | "Pending");
        self.refusal = self.context.setup.refusal(&self.pod).filter(|_| is_pending);
        self.report(false);
        if let Some(eviction) = eviction {
            let Eviction { reason, message, .. } = &eviction;
            self.record(EventType::Normal, reason, message);
            return Ok(StepOutcome::End(Some(eviction)));
        }
        if is_terminal_phase(&self.status.phase) {
            return Ok(StepOutcome::End(None));
        }
        if self.refusal.is_some() {
            return Ok(StepOutcome::Wait(self.deadline_at()));
        }
        if let Err(failure) = self.context.setup.prepare(&self.pod).await {
            for note in &failure.notes {
                self.record(note.event_type, note.reason, &note.message);
            }
            return Ok(StepOutcome::Wait(Some(self.context.world.elapsed() + failure.retry_after)));
        }
        let plan = self.plan();
        let has_acted = self.carry_out(&plan).await;
        let mut wake = self.deadline_at();
        let refresh = self.context.setup.next_refresh(&self.pod);
        let mut earlier = |at: Duration| wake = Some(wake.map_or(at, |it| it.min(at)));
        refresh.into_iter().for_each(&mut earlier);
        let has_failed = match has_acted {
            Ok(waits) => {
                let has_failed = !waits.is_empty();
                plan.start.iter().filter_map(|it| it.wait).for_each(|(_, end)| earlier(end));
                waits.into_iter().for_each(&mut earlier);
                has_failed
            }
            Err(StepError::Interrupted) => return Ok(StepOutcome::Repeat),
            Err(StepError::Runtime(why)) => return Err(why),
        };
        self.refresh().await?;
        self.report(false);
        let has_more =
            plan.kill_pod || !plan.kill.is_empty() || plan.start.iter().any(|it| it.wait.is_none());
        // a pod that has ended is ended by the next step; most pods need none once all containers have started
        let is_settled = || !is_terminal_phase(&self.status.phase) && self.plan().is_empty();
        Ok(if has_more && !has_failed && !is_settled() {
            StepOutcome::Repeat
        } else {
            StepOutcome::Wait(wake)
        })
    }

    fn plan(&self) -> Plan {
        plan(&PlanInput {
            pod: &self.pod,
            observed: &self.observed,
            failed_liveness: self.verdicts.failed_liveness(),
            failed_startup: self.verdicts.failed_startup(),
            backoff: &self.backoff,
            now: self.context.world.elapsed(),
            unix_now: self.unix_nanos(),
        })
    }

    fn deadline_at(&self) -> Option<Duration> {
        let limit = u64::try_from(self.pod.spec.active_deadline_seconds?).ok()?;
        let start = u64::try_from(self.status.start_time?.0).ok()?;
        let end = Duration::from_secs(start.checked_add(limit)?);
        let now = self.context.world.now().duration_since(UNIX_EPOCH).ok()?;
        Some(self.context.world.elapsed() + end.saturating_sub(now))
    }

    fn deadline_eviction(&self) -> Option<Eviction> {
        let end = self.deadline_at().filter(|_| !is_terminal_phase(&self.status.phase))?;
        (end <= self.context.world.elapsed()).then(|| Eviction {
            reason: "DeadlineExceeded".into(),
            message: DEADLINE_MESSAGE.into(),
            is_disruption: false,
        })
    }

    pub(super) fn unix_nanos(&self) -> i64 {
        let now = self.context.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
    }

    pub(super) fn record(&self, event_type: EventType, reason: &str, message: &str) {
        self.context.events.record(&self.pod, None, event_type, reason, message);
    }

    /// Generates the status and hands it on if it has changed.
    fn report(&mut self, is_ending: bool) {
        let eviction = self.eviction.clone();
        let none = WaitingReasons::new();
        let source = StatusSource {
            pod: &self.pod,
            observed: &self.observed,
            previous: &self.status,
            waiting: if is_ending || eviction.is_some() { &none } else { &self.waiting },
            verdicts: &self.verdicts,
            runtime: &self.context.runtime_name,
        };
        let mut status = generate(&source, &self.context.host_ips.borrow(), eviction.as_ref());
        if let Some(Refusal { reason, message }) = &self.refusal {
            block(&mut status, reason, message);
        }
        settle_times(&mut status, &self.status, Time::from(self.context.world.now()));
        let shown = self.shown(&status);
        let before = self.shown(&self.status);
        self.status = status;
        if std::mem::take(&mut self.is_overwritten) {
            self.context.statuses.restore(&self.pod, &shown);
        } else if shown != before || self.status.start_time != self.pod.status.start_time {
            self.context.statuses.set(&self.pod, &shown, false);
        } else {
            return;
        }
        self.shown_phase = shown.phase;
    }

    /// The status in the API: a pod is not terminal while it may have processes.
    fn shown(&self, status: &PodStatus) -> PodStatus {
        let mut shown = status.clone();
        let before = &self.pod.status;
        let last = if self.shown_phase.is_empty() { &before.phase } else { &self.shown_phase };
        let was_terminal = is_terminal_phase(&before.phase) || is_terminal_phase(last);
        if is_terminal_phase(&shown.phase) && !was_terminal && self.observed.is_active() {
            let was = if last.is_empty() { "Pending" } else { last };
            shown.phase =
                if self.observed.has_running_container() { "Running".into() } else { was.to_owned() };
            (shown.reason, shown.message) = (before.reason.clone(), before.message.clone());
        }
        shown
    }

    /// Ends the pod: its containers, its sandboxes, its surroundings.
    async fn end(
        &mut self,
        mut request: KillRequest,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
        results: &mut mpsc::UnboundedReceiver<ProbeResult>,
    ) {
        self.probing.end_checks();
        loop {
            self.eviction = request.eviction.clone().or(self.eviction.take());
            self.is_stale = true;
            let refreshed = self.refresh().await;
            self.report(true);
            let outcome = match refreshed {
                Ok(()) => self.stop_all(&request, inbox, results).await,
                Err(why) => Err(StepError::Runtime(why)),
            };
            match outcome {
                Ok(()) => break,
                Err(StepError::Interrupted) => {
                    // a shorter grace period, or another reason
                    let newer = self.kill.borrow_and_update().clone().unwrap_or_default();
                    request = newer;
                }
                Err(StepError::Runtime(why)) => {
                    tracing::warn!(pod = %crate::pod_facts::description(&self.pod), %why, "the pod could not be stopped");
                    env::sleep(&self.context.world, RUNTIME_RETRY).await;
                }
            }
        }
        self.probing.end();
        self.report(true);
        let mut backoff = CLEANUP_RETRIES;
        while let Err(why) = self.context.setup.clean(&self.pod).await {
            tracing::warn!(pod = %crate::pod_facts::description(&self.pod), %why, "the pod's surroundings are left");
            env::sleep(&self.context.world, backoff.pause()).await;
        }
        terminate(&self.pod, &mut self.status);
        self.context.statuses.set(&self.pod, &self.status, true);
        let _ = self.context.finished.send(self.pod.metadata.uid.clone());
    }

    /// Refreshes and reports while the pod ends.
    pub(super) async fn follow_end(&mut self) {
        if self.refresh().await.is_ok() {
            self.report(true);
        }
    }

    /// Keeps the final status until the pod is removed.
    async fn rest(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = inbox.recv().await {
            if let Message::Update(pod) = message {
                self.pod = pod;
                self.context.statuses.set(&self.pod, &self.status, true);
            }
        }
    }
}
