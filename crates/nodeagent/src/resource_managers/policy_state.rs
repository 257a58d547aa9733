//! A policy with its state, which a file keeps over restarts.

use super::checkpoint;
use std::path::{Path, PathBuf};

/// The state of a policy, as a file keeps it.
pub trait State: Clone + Default + PartialEq {
    /// The name of the file.
    const FILE: &'static str;
    /// The manager in messages.
    const MANAGER: &'static str;

    fn text(&self, policy: &str) -> String;

    /// Reads the text of a file that the same policy wrote.
    fn parse(text: &str, policy: &str) -> Result<Self, String>;
}

/// Reads the file of a directory. Without one, the state is empty.
pub fn load<S: State>(directory: &Path, policy: &str) -> Result<S, String> {
    let path = directory.join(S::FILE);
    let read = checkpoint::read(&path).and_then(|text| match text {
        Some(text) => S::parse(&text, policy),
        None => Ok(S::default()),
    });
    read.map_err(|why| {
        format!(
            "could not restore state from checkpoint: {why}, please drain this node and delete the {} checkpoint file \"{}\" before restarting Kubelet",
            S::MANAGER,
            path.display()
        )
    })
}

/// See the module. The policy is absent if nothing is assigned.
pub struct PolicyState<P, S> {
    pub policy: Option<P>,
    pub state: S,
    policy_name: &'static str,
    path: PathBuf,
}

impl<P, S: State> PolicyState<P, S> {
    /// Reads the file, lets the policy check it, and writes it.
    pub fn start(
        policy: Option<P>,
        policy_name: &'static str,
        directory: &Path,
        check: impl FnOnce(&P, &mut S) -> Result<(), String>,
    ) -> Result<Self, String> {
        let loaded = load(directory, policy_name).and_then(|mut state| {
            policy.as_ref().map_or(Ok(()), |policy| check(policy, &mut state))?;
            Ok(state)
        });
        let state = loaded.map_err(|why| format!("start {} error: {why}", S::MANAGER.to_lowercase()))?;
        let started = PolicyState { policy, state, policy_name, path: directory.join(S::FILE) };
        started.store();
        Ok(started)
    }

    /// Lets the policy change the state, and writes the state if it differs then.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut P, &mut S) -> T) -> Option<T> {
        let policy = self.policy.as_mut()?;
        let before = self.state.clone();
        let result = change(policy, &mut self.state);
        if self.state != before {
            self.store();
        }
        Some(result)
    }

    fn store(&self) {
        if let Err(why) = checkpoint::write(&self.path, &self.state.text(self.policy_name)) {
            tracing::warn!(%why, manager = S::MANAGER, "the state of a manager was not written");
        }
    }
}
