//! A runtime without processes: containers are timers of a world.
//!
//! A container runs for the time that its [`Behaviour`] says: by container name in tests, or by pod for the
//! [`Simulation`] of a node. An agent whose handle has a [`CallLimit`] is killed at that call. A [`Fault`] is that of the
//! whole runtime: calls hang or fail, containers go on.

mod behaviour;
mod call_limit;
mod calls;
mod logs;
mod streams;

pub use behaviour::{Behaviour, Pull, SimulatedExec, SimulatedLog, SimulatedProbes, Simulation};
pub use call_limit::CallLimit;

use super::error::{RuntimeCode, RuntimeError};
use super::labels;
use super::status::{ContainerChange, ContainerState, ContainerStatus, RuntimeEvent, SandboxStatus};
use env::World;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// How the whole runtime fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Calls are not answered until their timeout, or until the fault is over.
    Hung,
    /// Calls are refused, and streams of events have ended.
    Stopped,
}

/// The exit code of a container that was killed for lack of memory.
const OUT_OF_MEMORY: i32 = 137;
/// The timeout of calls to a runtime that hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Default)]
struct State {
    next: u64,
    sandboxes: BTreeMap<String, SandboxStatus>,
    containers: BTreeMap<String, (String, ContainerStatus)>,
    /// By the names of containers, in tests.
    behaviours: BTreeMap<String, Behaviour>,
    /// By the ids of containers, from the simulation of a node; without those that are as usual.
    simulated: BTreeMap<String, Behaviour>,
    absent_images: BTreeSet<String>,
    listeners: Vec<mpsc::Sender<RuntimeEvent>>,
    /// Calls that changed state, in words, for tests.
    log: Vec<String>,
}

impl State {
    fn behaviour(&self, status: &ContainerStatus) -> Behaviour {
        let found = self.simulated.get(&status.id).or_else(|| self.behaviours.get(&status.name));
        found.cloned().unwrap_or_default()
    }

    fn announce(&mut self, event: &RuntimeEvent) {
        self.listeners.retain(|it| !it.is_closed());
        for listener in &self.listeners {
            let _ = listener.try_send(event.clone());
        }
    }
}

struct Shared {
    world: World,
    simulation: Option<Arc<dyn Simulation>>,
    state: Mutex<State>,
    fault: watch::Sender<Fault>,
}

/// See the module. Clones share their state.
#[derive(Clone)]
pub struct SimulatedRuntime {
    shared: Arc<Shared>,
    limit: Option<Arc<CallLimit>>,
}

impl SimulatedRuntime {
    pub fn new(world: World) -> Self {
        Self::with_simulation(world, None)
    }

    /// The runtime of a simulated node.
    pub fn of_node(world: World, simulation: Arc<dyn Simulation>) -> Self {
        Self::with_simulation(world, Some(simulation))
    }

    fn with_simulation(world: World, simulation: Option<Arc<dyn Simulation>>) -> Self {
        let fault = watch::Sender::default();
        let shared = Shared { world, simulation, state: Mutex::default(), fault };
        SimulatedRuntime { shared: Arc::new(shared), limit: None }
    }

    /// The uid of the pod of a running container, and the container's age.
    pub fn running(&self, id: &str) -> Option<(String, Duration)> {
        let state = self.shared.state.lock();
        let (_, status) = state.containers.get(id).filter(|(_, it)| it.state == ContainerState::Running)?;
        let age = u64::try_from(self.now().saturating_sub(status.started_at)).unwrap_or(0);
        Some((labels::pod_uid(&status.labels)?.to_owned(), Duration::from_nanos(age)))
    }

    /// Removes all that is left of a pod.
    pub fn remove_pod(&self, uid: &str) {
        self.remove_where(|it| it == Some(uid));
    }

    /// Removes all sandboxes and containers, as when the disk of a node is lost.
    pub fn remove_all(&self) {
        self.remove_where(|_| true);
    }

    /// Removes the sandboxes and containers of pods by their uid.
    fn remove_where(&self, is_removed: impl Fn(Option<&str>) -> bool) {
        let mut state = self.shared.state.lock();
        let State { sandboxes, containers, simulated, .. } = &mut *state;
        let mut released = Vec::new();
        sandboxes.retain(|_, it| {
            let is_kept = !is_removed(labels::pod_uid(&it.info.labels));
            if !is_kept && it.info.is_ready {
                released.append(&mut it.ips);
            }
            is_kept
        });
        containers.retain(|_, (_, it)| !is_removed(labels::pod_uid(&it.labels)));
        simulated.retain(|id, _| containers.contains_key(id));
        drop(state);
        if let Some(simulation) = &self.shared.simulation {
            simulation.release(&released);
        }
    }

    pub fn behave(&self, container: &str, behaviour: Behaviour) {
        self.shared.state.lock().behaviours.insert(container.to_owned(), behaviour);
    }

    /// Makes an image absent, and its pulls fail.
    pub fn remove_from_registry(&self, image: &str) {
        self.shared.state.lock().absent_images.insert(image.to_owned());
    }

    /// Begins or ends a fault.
    pub fn set_fault(&self, fault: Fault) {
        if fault == Fault::Stopped {
            self.shared.state.lock().listeners.clear();
        }
        self.shared.fault.send_replace(fault);
    }

    /// The handle of an agent that is killed at the last call of a limit.
    pub fn with_limit(&self, limit: Option<Arc<CallLimit>>) -> Self {
        SimulatedRuntime { shared: self.shared.clone(), limit }
    }

    /// Waits until calls are answered.
    async fn answer(&self) -> Result<(), RuntimeError> {
        if self.limit.as_ref().is_some_and(|it| it.is_reached()) {
            std::future::pending::<()>().await;
        }
        if *self.shared.fault.borrow() == Fault::None {
            return Ok(());
        }
        let mut fault = self.shared.fault.subscribe();
        let is_over = async { fault.wait_for(|it| *it != Fault::Hung).await.map(|it| *it) };
        match env::timeout(&self.shared.world, CALL_TIMEOUT, is_over).await {
            Err(_) => Err(RuntimeError::new(RuntimeCode::DeadlineExceeded, "context deadline exceeded")),
            Ok(Ok(Fault::Stopped)) => Err(RuntimeError::new(RuntimeCode::Unavailable, "connection refused")),
            Ok(_) => Ok(()),
        }
    }

    /// Calls that changed state, since the last time.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state.lock().log)
    }

    /// Containers that have run or run: name, attempt and state.
    pub fn container_states(&self) -> Vec<(String, u32, ContainerState)> {
        let state = self.shared.state.lock();
        state.containers.values().map(|(_, it)| (it.name.clone(), it.attempt, it.state)).collect()
    }

    pub fn sandbox_count(&self) -> (usize, usize) {
        let state = self.shared.state.lock();
        (state.sandboxes.values().filter(|it| it.info.is_ready).count(), state.sandboxes.len())
    }

    /// Ends the newest running container of a name.
    pub fn exit(&self, name: &str, code: i32) {
        let id = {
            let state = self.shared.state.lock();
            let running = state.containers.values().filter(|(_, it)| it.name == name);
            running
                .filter(|(_, it)| it.state == ContainerState::Running)
                .map(|(_, it)| it.id.clone())
                .next_back()
        };
        if let Some(id) = id {
            self.end_container(&id, code);
        }
    }

    fn now(&self) -> i64 {
        let now = self.shared.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Counts a call that has taken effect; the caller at the limit is never answered.
    async fn count(&self, call: String) {
        self.record(call);
        if self.limit.as_ref().is_some_and(|it| !it.count()) {
            std::future::pending::<()>().await;
        }
    }

    /// Records a call for tests; the record of a node's runtime would have no end.
    fn record(&self, call: String) {
        if self.shared.simulation.is_none() {
            self.shared.state.lock().log.push(call);
        }
    }

    fn end_container(&self, id: &str, code: i32) {
        self.end_container_for(id, code, if code == 0 { "Completed" } else { "Error" });
    }

    fn end_container_for(&self, id: &str, code: i32, reason: &str) {
        let now = self.now();
        let mut state = self.shared.state.lock();
        let Some((sandbox, status)) = state.containers.get_mut(id) else { return };
        if status.state != ContainerState::Running {
            return;
        }
        (status.state, status.exit_code, status.finished_at) = (ContainerState::Exited, code, now);
        status.reason = reason.to_owned();
        let uid = labels::pod_uid(&status.labels).unwrap_or_default().to_owned();
        let event = RuntimeEvent {
            container_id: id.to_owned(),
            sandbox_id: sandbox.clone(),
            pod_uid: String::new(),
            change: ContainerChange::Stopped,
        };
        state.announce(&event);
        drop(state);
        if let Some(simulation) = &self.shared.simulation {
            simulation.container_ended(&uid, id);
        }
    }

    /// Sends the event of a container that may not exist any more.
    pub fn announce(&self, id: &str, change: ContainerChange) {
        let event = RuntimeEvent {
            container_id: id.to_owned(),
            sandbox_id: String::new(),
            pod_uid: String::new(),
            change,
        };
        self.shared.state.lock().announce(&event);
    }

    fn run_timer(&self, id: String, behaviour: &Behaviour) {
        let Some(time) = behaviour.runs_for else { return };
        let (shared, behaviour) = (Arc::downgrade(&self.shared), behaviour.clone());
        let end = env::sleep(&self.shared.world, time);
        tokio::spawn(async move {
            end.await;
            let Some(shared) = shared.upgrade() else { return };
            let runtime = SimulatedRuntime { shared, limit: None };
            match behaviour.is_out_of_memory {
                true => runtime.end_container_for(&id, OUT_OF_MEMORY, "OOMKilled"),
                false => runtime.end_container(&id, behaviour.exit_code),
            }
        });
    }
}
