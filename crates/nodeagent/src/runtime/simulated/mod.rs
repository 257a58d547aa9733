//! A runtime without processes: containers are timers of a world.
//!
//! A container runs for the time that its [`Behaviour`] says, by container name. An agent whose handle has a
//! [`CallLimit`] is killed at that call. A [`Fault`] is that of the whole runtime: calls hang or fail, containers go on.

mod call_limit;
mod calls;
mod streams;

pub use call_limit::CallLimit;

use super::error::{RuntimeCode, RuntimeError};
use super::status::{ContainerState, ContainerStatus, RuntimeEvent, SandboxStatus};
use env::World;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};

/// How the containers of a name behave.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// The time until the container ends by itself.
    pub runs_for: Option<Duration>,
    pub exit_code: i32,
    /// Whether the stop signal is ignored.
    pub ignores_stop: bool,
    /// Why the container cannot be started.
    pub start_error: Option<String>,
}

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

/// The timeout of calls to a runtime that hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Default)]
struct State {
    next: u64,
    sandboxes: BTreeMap<String, SandboxStatus>,
    containers: BTreeMap<String, (String, ContainerStatus)>,
    behaviours: BTreeMap<String, Behaviour>,
    absent_images: BTreeSet<String>,
    listeners: Vec<mpsc::Sender<RuntimeEvent>>,
    /// Calls that changed state, in words.
    log: Vec<String>,
}

impl State {
    fn announce(&mut self, event: &RuntimeEvent) {
        self.listeners.retain(|it| !it.is_closed());
        for listener in &self.listeners {
            let _ = listener.try_send(event.clone());
        }
    }
}

struct Shared {
    world: World,
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
        SimulatedRuntime {
            shared: Arc::new(Shared { world, state: Mutex::default(), fault: watch::Sender::default() }),
            limit: None,
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
        self.shared.state.lock().log.push(call);
        if self.limit.as_ref().is_some_and(|it| !it.count()) {
            std::future::pending::<()>().await;
        }
    }

    fn end_container(&self, id: &str, code: i32) {
        let now = self.now();
        let mut state = self.shared.state.lock();
        let Some((sandbox, status)) = state.containers.get_mut(id) else { return };
        if status.state != ContainerState::Running {
            return;
        }
        (status.state, status.exit_code, status.finished_at) = (ContainerState::Exited, code, now);
        status.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        let event =
            RuntimeEvent { container_id: id.to_owned(), sandbox_id: sandbox.clone(), pod_uid: String::new() };
        state.announce(&event);
    }

    /// Sends the event of a container that may not exist any more.
    pub fn announce_end(&self, id: &str) {
        self.shared
            .state
            .lock()
            .announce(&RuntimeEvent { container_id: id.to_owned(), ..Default::default() });
    }

    fn run_timer(&self, id: String, behaviour: &Behaviour) {
        let Some(time) = behaviour.runs_for else { return };
        let (runtime, code) = (self.clone(), behaviour.exit_code);
        tokio::spawn(async move {
            env::sleep(&runtime.shared.world, time).await;
            runtime.end_container(&id, code);
        });
    }
}
