//! The annotations of replica sets: the present and former revisions of the deployment, its size when the set was last
//! scaled, and copies of the deployment's annotations. Clients roll back to a revision by these annotations.

use super::limits::Limits;
use api::apps::v1::{Deployment, ReplicaSet};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest list of former revisions, in bytes; the oldest are dropped first.
const HISTORY: usize = 2000;

type Annotations = BTreeMap<String, String>;

/// The keys of the annotations.
#[derive(Debug, Clone)]
pub struct RevisionAnnotations {
    pub revision: String,
    history: String,
    desired: String,
    max: String,
    last_applied: String,
}

impl RevisionAnnotations {
    pub fn new(names: &Names) -> Self {
        let of = |name| names.well_known_under("deployment", name);
        RevisionAnnotations {
            revision: of("revision"),
            history: of("revision-history"),
            desired: of("desired-replicas"),
            max: of("max-replicas"),
            last_applied: names.well_known_under("kubectl", "last-applied-configuration"),
        }
    }

    /// The revision of a set; zero if it is absent or invalid.
    pub fn revision_of(&self, set: &ReplicaSet) -> i64 {
        set.metadata.annotations.get(&self.revision).and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    /// The revision after those of the old sets.
    pub fn next(&self, old: &[Arc<ReplicaSet>]) -> i64 {
        old.iter().map(|set| self.revision_of(set)).max().unwrap_or(0).max(0).saturating_add(1)
    }

    /// The size of the deployment when a set was last scaled.
    pub fn desired(&self, set: &ReplicaSet) -> Option<i32> {
        set.metadata.annotations.get(&self.desired)?.parse().ok()
    }

    /// The maximum number of its pods at that time.
    pub fn max(&self, set: &ReplicaSet) -> Option<i32> {
        set.metadata.annotations.get(&self.max)?.parse().ok()
    }

    /// Sets the annotations of the deployment's size. Returns whether they changed.
    pub fn size(&self, annotations: &mut Annotations, limits: &Limits) -> bool {
        let sizes = [(&self.desired, limits.replicas), (&self.max, limits.most())];
        let mut changed = false;
        for (key, size) in sizes {
            changed |= put(annotations, key, size.to_string());
        }
        changed
    }

    /// Sets the revision and the deployment's annotations on the set that has its template. Returns whether they
    /// changed. A revision only grows; the previous one is appended to the history, after a rollback to this set.
    pub fn revise(&self, annotations: &mut Annotations, deployment: &Deployment, revision: i64) -> bool {
        let mut changed = false;
        for (key, value) in deployment.metadata.annotations.iter().filter(|(key, _)| !self.is_own(key)) {
            changed |= put(annotations, key, value.clone());
        }
        let before = annotations.get(&self.revision).cloned();
        let number = match before.as_deref() {
            None | Some("") => 0,
            Some(text) => match text.parse::<i64>() {
                Ok(number) => number,
                // written by another program: unchanged
                Err(_) => return changed,
            },
        };
        if number >= revision {
            return changed;
        }
        annotations.insert(self.revision.clone(), revision.to_string());
        if let Some(before) = before {
            let history = annotations.entry(self.history.clone()).or_default();
            *history = remembered(history, &before);
        }
        true
    }

    fn is_own(&self, key: &str) -> bool {
        key == "deprecated.deployment.rollback.to"
            || [&self.revision, &self.history, &self.desired, &self.max, &self.last_applied]
                .iter()
                .any(|own| *own == key)
    }
}

fn put(annotations: &mut Annotations, key: &str, value: String) -> bool {
    if annotations.get(key) == Some(&value) {
        return false;
    }
    annotations.insert(key.to_owned(), value);
    true
}

fn remembered(history: &str, before: &str) -> String {
    let mut all: Vec<&str> = history.split(',').filter(|it| !it.is_empty()).chain([before]).collect();
    while all.len() > 1 && all.iter().map(|it| it.len() + 1).sum::<usize>() > HISTORY + 1 {
        all.remove(0);
    }
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn names() -> RevisionAnnotations {
        RevisionAnnotations::new(&Names::kubernetes())
    }

    fn deployment(annotations: &[(&str, &str)]) -> Deployment {
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        object(json!({"metadata": {"name": "d", "annotations": annotations}}))
    }

    fn revised(before: &[(&str, &str)], revision: i64) -> (bool, String) {
        let mut annotations: Annotations = before
            .iter()
            .map(|(key, value)| (format!("deployment.kubernetes.io/{key}"), (*value).to_owned()))
            .collect();
        let changed = names().revise(&mut annotations, &deployment(&[]), revision);
        let all: Vec<_> = annotations
            .iter()
            .map(|(key, value)| format!("{}={value}", key.trim_start_matches("deployment.kubernetes.io/")))
            .collect();
        (changed, all.join(" "))
    }

    #[test]
    fn revisions_grow_and_former_ones_are_remembered() {
        let check = |before: &[(&str, &str)], revision, changed, expected: &str| {
            assert_eq!(revised(before, revision), (changed, expected.to_owned()));
        };
        check(&[], 1, true, "revision=1");
        check(&[("revision", "1")], 1, false, "revision=1");
        check(&[("revision", "5")], 3, false, "revision=5");
        check(&[("revision", "1")], 3, true, "revision=3 revision-history=1");
        check(&[("revision", "3"), ("revision-history", "1")], 5, true, "revision=5 revision-history=1,3");
        check(&[("revision", "mine")], 5, false, "revision=mine");
    }

    #[test]
    fn a_long_history_loses_its_beginning() {
        let long = (1000..1500).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
        let next = remembered(&long, "1500");
        assert!(next.len() <= HISTORY && next.ends_with(",1500"), "{}", next.len());
        assert!(!next.starts_with("1000") && next.len() > HISTORY - 10);
        assert_eq!(remembered("", "7"), "7");
    }

    #[test]
    fn annotations_of_the_deployment_are_passed_on() {
        let from = deployment(&[
            ("team", "a"),
            ("deployment.kubernetes.io/revision", "9"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            ("deployment.kubernetes.io/desired-replicas", "9"),
        ]);
        let mut annotations: Annotations = [("own".to_owned(), "b".to_owned())].into();
        assert!(names().revise(&mut annotations, &from, 1));
        let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["deployment.kubernetes.io/revision", "own", "team"]);
        assert!(!names().revise(&mut annotations, &from, 1));
    }

    #[test]
    fn sizes_are_annotated() {
        let mut annotations = Annotations::new();
        let limits = Limits { replicas: 10, surge: 3, unavailable: 2 };
        assert!(names().size(&mut annotations, &limits));
        assert!(!names().size(&mut annotations, &limits));
        let set: ReplicaSet = object(json!({"metadata": {"annotations": annotations}}));
        assert_eq!((names().desired(&set), names().max(&set)), (Some(10), Some(13)));
    }
}
