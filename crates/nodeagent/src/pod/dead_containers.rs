//! How many containers that have ended are kept, for their logs and exit codes.
//!
//! The newest of each name is always kept: the status of the pod shows it.

use crate::runtime::{ContainerInfo, ContainerState, labels};
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadContainerPolicy {
    /// The most of each name in a pod; `None` for all.
    pub per_container: Option<usize>,
    /// The most of the node; `None` for no limit.
    pub total: Option<usize>,
    /// Younger ones are kept.
    pub min_age: Duration,
}

impl Default for DeadContainerPolicy {
    fn default() -> Self {
        DeadContainerPolicy { per_container: Some(1), total: None, min_age: Duration::ZERO }
    }
}

impl DeadContainerPolicy {
    /// Whether an ended container may go: its place among those of its name, the newest first, and its creation.
    pub fn is_surplus(&self, place: usize, created_at: i64, unix_now: i64) -> bool {
        self.is_beyond(self.per_container.unwrap_or(usize::MAX), place, created_at, unix_now)
    }

    fn is_beyond(&self, kept: usize, place: usize, created_at: i64, unix_now: i64) -> bool {
        let min_age = i64::try_from(self.min_age.as_nanos()).unwrap_or(i64::MAX);
        place >= kept.max(1) && unix_now.saturating_sub(created_at) >= min_age
    }

    /// Ids of ended containers beyond the limit of the node, of which each name has an equal share.
    pub fn beyond_total(&self, containers: Vec<ContainerInfo>, unix_now: i64) -> Vec<String> {
        let Some(total) = self.total else { return Vec::new() };
        let mut names: BTreeMap<(String, String), Vec<ContainerInfo>> = BTreeMap::new();
        for ended in containers.into_iter().filter(|it| it.state == ContainerState::Exited) {
            let Some(uid) = labels::pod_uid(&ended.labels).map(str::to_owned) else { continue };
            names.entry((uid, ended.name.clone())).or_default().push(ended);
        }
        let count: usize = names.values().map(Vec::len).sum();
        if count <= total {
            return Vec::new();
        }
        let kept = total / names.len().max(1);
        let mut ids = Vec::new();
        for mut ended in names.into_values() {
            ended.sort_by_key(|it| std::cmp::Reverse(it.created_at));
            let beyond = ended.into_iter().enumerate();
            let beyond = beyond.filter(|(place, it)| self.is_beyond(kept, *place, it.created_at, unix_now));
            ids.extend(beyond.map(|(_, it)| it.id));
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_keeps_an_equal_share_of_each_name() {
        let container = |name: &str, created_at: i64| ContainerInfo {
            id: format!("{name}{created_at}"),
            name: name.to_owned(),
            state: ContainerState::Exited,
            created_at,
            labels: [(names::node::POD_UID.to_owned(), "u".to_owned())].into(),
            ..ContainerInfo::default()
        };
        let all = || vec![container("a", 1), container("a", 2), container("a", 3), container("b", 1)];
        let check = |total: Option<usize>, min_age: u64, expected: &[&str]| {
            let min_age = Duration::from_nanos(min_age);
            let policy = DeadContainerPolicy { total, min_age, ..DeadContainerPolicy::default() };
            assert_eq!(policy.beyond_total(all(), 10), expected, "{total:?} {min_age:?}");
        };
        check(None, 0, &[]);
        check(Some(4), 0, &[]);
        check(Some(3), 0, &["a2", "a1"]);
        check(Some(3), 9, &["a1"]);
        check(Some(0), 0, &["a2", "a1"]);
    }
}
