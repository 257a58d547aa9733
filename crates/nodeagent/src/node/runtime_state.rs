//! The health of the container runtime, as the node's condition `Ready` reports it.

use crate::runtime::{RuntimeCondition, RuntimeStatus};
use std::time::Duration;

/// How often the runtime is checked.
pub const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// After how long without an answer the runtime is down.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// After how long without a list of containers the agent is not healthy.
const LIST_THRESHOLD: Duration = Duration::from_secs(180);

const RUNTIME_READY: &str = "RuntimeReady";
const NETWORK_READY: &str = "NetworkReady";

/// What is known of the runtime. Times are those of the monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeState {
    /// When the runtime last said that it is ready.
    last_ready: Option<Duration>,
    runtime_error: Option<String>,
    network_error: Option<String>,
    is_checked: bool,
    /// When the containers were last listed.
    pub last_listed: Option<Duration>,
}

impl RuntimeState {
    /// Notes an answer of the runtime.
    pub fn note_status(&mut self, status: &RuntimeStatus, now: Duration) {
        self.is_checked = true;
        let find = |kind: &str| status.conditions.iter().find(|it| it.kind == kind);
        let error = |condition: Option<&RuntimeCondition>, what: &str| match condition {
            Some(condition) if condition.is_true => None,
            condition => Some(format!("{what}: {}", describe(condition))),
        };
        self.network_error = error(find(NETWORK_READY), "container runtime network not ready");
        self.runtime_error = error(find(RUNTIME_READY), "container runtime not ready");
        if self.runtime_error.is_none() {
            self.last_ready = Some(now);
        }
    }

    /// Why the node is not ready.
    pub fn errors(&self, now: Duration) -> Vec<String> {
        let mut errors = Vec::new();
        let mut runtime = Vec::new();
        match self.last_ready {
            None => runtime.push("container runtime status check may not have completed yet".to_owned()),
            Some(at) if now.saturating_sub(at) > DOWN_AFTER => {
                runtime.push("container runtime is down".to_owned());
            }
            Some(_) => {}
        }
        if let Some(at) = self.last_listed {
            let ago = now.saturating_sub(at);
            if ago > LIST_THRESHOLD {
                let seconds = ago.as_secs();
                runtime.push(format!(
                    "PLEG is not healthy: pleg was last seen active {}m{}s ago; threshold is 3m0s",
                    seconds / 60,
                    seconds % 60
                ));
            }
        }
        runtime.extend(self.runtime_error.clone());
        match &*runtime {
            [] => {}
            [one] => errors.push(one.clone()),
            all => errors.push(format!("[{}]", all.join(", "))),
        }
        match self.is_checked {
            true => errors.extend(self.network_error.clone()),
            false => errors.push("network state unknown".to_owned()),
        }
        errors
    }
}

fn describe(condition: Option<&RuntimeCondition>) -> String {
    match condition {
        Some(it) => format!("{}={} reason:{} message:{}", it.kind, it.is_true, it.reason, it.message),
        None => "<nil>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(runtime: bool, network: bool) -> RuntimeStatus {
        let condition = |kind: &str, is_true: bool| RuntimeCondition {
            kind: kind.to_owned(),
            is_true,
            reason: if is_true { String::new() } else { "NetworkPluginNotReady".to_owned() },
            message: if is_true { String::new() } else { "cni plugin not initialized".to_owned() },
        };
        RuntimeStatus {
            conditions: vec![condition(RUNTIME_READY, runtime), condition(NETWORK_READY, network)],
        }
    }

    #[test]
    fn errors_have_upstreams_texts() {
        let seconds = Duration::from_secs;
        let mut state = RuntimeState::default();
        let initial = ["container runtime status check may not have completed yet", "network state unknown"];
        assert_eq!(state.errors(seconds(1)), initial);
        state.note_status(&status(true, true), seconds(1));
        assert!(state.errors(seconds(31)).is_empty());
        assert_eq!(state.errors(seconds(32)), ["container runtime is down"]);
        state.note_status(&status(true, false), seconds(32));
        let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized";
        assert_eq!(state.errors(seconds(32)), [network]);
        state.note_status(&status(false, true), seconds(33));
        let runtime = "container runtime not ready: RuntimeReady=false reason:NetworkPluginNotReady message:cni plugin not initialized";
        assert_eq!(state.errors(seconds(33)), [runtime]);
        state.note_status(&status(true, true), seconds(34));
        state.last_listed = Some(seconds(10));
        let errors = state.errors(seconds(60));
        assert!(errors.is_empty(), "{errors:?}");
        state.note_status(&status(true, true), seconds(200));
        let listed = "PLEG is not healthy: pleg was last seen active 3m10s ago; threshold is 3m0s";
        assert_eq!(state.errors(seconds(200)), [listed]);
    }
}
