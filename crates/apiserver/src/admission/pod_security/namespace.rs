//! Writes of namespaces: validates the labels, and warns of existing pods that violate a new level.

use super::PodSecurity;
use super::evaluate::{evaluate, reasons};
use super::pod::Pod;
use super::policy::{Level, Policy, Standard};
use env::MaybeReady;
use rest::{AdmissionAttributes, ApiError, Object};
use schema::Value;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Bounds of the work for a changed label.
const MAX_PODS: usize = 3000;
const MAX_TIME: Duration = Duration::from_secs(1);
/// Pods evaluated before yielding.
const YIELD_EVERY: usize = 64;

fn label<'v>(namespace: &'v Value) -> impl Fn(&str) -> Option<&'v str> {
    let labels = namespace.at(&["metadata", "labels"]);
    move |key| labels?.at(&[key])?.as_str()
}

impl PodSecurity {
    pub(super) fn namespace<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let name = object.text(&["metadata", "name"]);
        let read = |namespace| self.labels.policy(label(namespace), self.settings.defaults);
        let (policy, problems) = read(object);
        let before = old.map(read);
        // unchanged invalid labels are accepted, so that other fields can be changed
        let is_new = before.as_ref().is_none_or(|(_, previous)| *previous != problems);
        if !problems.is_empty() && is_new {
            return Err(ApiError::invalid(write.resource.stored_subject(name), problems)).into();
        }
        let (now, before) = (policy.enforce, before.map(|(before, _)| before.enforce));
        let is_stricter = |before: Standard| {
            now.level != Level::Privileged && (now.version != before.version || now.level > before.level)
        };
        if before.is_some_and(|before| !is_stricter(before)) {
            return Ok(()).into();
        }
        if self.settings.namespaces.contains(name) {
            self.ignored(object, &policy).into_iter().for_each(|warning| write.user.record.warn(warning));
            return Ok(()).into();
        }
        if before.is_none() {
            return Ok(()).into();
        }
        MaybeReady::later(async move {
            let warnings = self.existing(write, name, now).await;
            warnings.into_iter().for_each(|warning| write.user.record.warn(warning));
            Ok(())
        })
    }

    /// The warning for an exempt namespace with a policy.
    fn ignored(&self, namespace: &Value, policy: &Policy) -> Option<String> {
        let name = namespace.text(&["metadata", "name"]);
        let policy_text = self.labels.explicit(label(namespace), policy);
        policy_text.map(|policy_text| {
            format!("namespace {name:?} is exempt from Pod Security, and the policy ({policy_text}) will be ignored")
        })
    }

    /// Warnings of existing pods that violate a standard; as many as can be evaluated in a short time.
    async fn existing(
        &self,
        write: &AdmissionAttributes<'_>,
        namespace: &str,
        standard: Standard,
    ) -> Vec<String> {
        let resources = write.api.resources();
        let Some(pods) = resources.get("v1", "pods") else { return Vec::new() };
        let (world, began) = (&write.api.world, write.api.world.elapsed());
        let snapshot = pods.collection.cache.snapshot();
        let all: Vec<&Arc<Object>> = snapshot.range(Some(namespace), None).map(|(_, pod)| pod).collect();
        let mut survey = NamespaceViolations { total: all.len(), ..NamespaceViolations::default() };
        // with many pods, one of each workload comes first: the others are probably alike
        let mut workloads = HashSet::new();
        let mut left: VecDeque<(&Arc<Object>, bool)> = all.into_iter().map(|pod| (pod, true)).collect();
        for turn in 1.. {
            let late = world.elapsed().saturating_sub(began) > MAX_TIME || survey.checked == MAX_PODS;
            let Some((stored, first)) = left.pop_front().filter(|_| !late) else { break };
            if turn % YIELD_EVERY == 0 {
                tokio::task::yield_now().await;
            }
            let object = stored.value(&pods.collection.kind).unwrap_or_default();
            if first && survey.total > MAX_PODS && !controller(&object).is_none_or(|it| workloads.insert(it))
            {
                left.push_back((stored, false));
                continue;
            }
            let pod = Pod::of(&object, &self.annotation_keys).filter(|pod| !self.is_exempt_runtime(pod.spec));
            survey.add(&stored.name, pod.map(|pod| reasons(&evaluate(standard, &pod))).unwrap_or_default());
        }
        survey.warnings_for(namespace, standard)
    }
}

/// The uid of a pod's controller.
fn controller(pod: &Value) -> Option<String> {
    let owners = pod.items(&["metadata", "ownerReferences"]).iter();
    let mut controllers = owners.filter(|owner| owner.at(&["controller"]) == Some(&Value::Bool(true)));
    controllers.next().map(|owner| owner.text(&["uid"]).to_owned())
}

/// The violations of the pods of a namespace.
#[derive(Default)]
struct NamespaceViolations {
    total: usize,
    checked: usize,
    /// By violation: the first pod by name, and the number of pods.
    found: BTreeMap<String, (String, usize)>,
}

impl NamespaceViolations {
    fn add(&mut self, name: &str, wrong: String) {
        self.checked += 1;
        if wrong.is_empty() {
            return;
        }
        let (first, count) = self.found.entry(wrong).or_insert_with(|| (name.to_owned(), 0));
        *count += 1;
        if name < first.as_str() {
            name.clone_into(first);
        }
    }

    fn warnings_for(self, namespace: &str, standard: Standard) -> Vec<String> {
        let NamespaceViolations { total, checked, found } = self;
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{standard}\""
            ));
        }
        let one = |(wrong, (first, count)): (String, (String, usize))| match count {
            1 => format!("{first}: {wrong}"),
            2 => format!("{first} (and 1 other pod): {wrong}"),
            _ => format!("{first} (and {} other pods): {wrong}", count - 1),
        };
        let mut lines: Vec<_> = found.into_iter().map(one).collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_with_the_same_violation_share_a_warning() {
        let mut survey = NamespaceViolations { total: 9, ..NamespaceViolations::default() };
        let wrong = [("c", "x"), ("b", "x"), ("a", ""), ("f", "y"), ("e", "x"), ("d", "z"), ("g", "y")];
        wrong.into_iter().for_each(|(name, wrong)| survey.add(name, wrong.to_owned()));
        let expected = [
            "new PodSecurity enforce level only checked against the first 7 of 9 existing pods",
            "existing pods in namespace \"s\" violate the new PodSecurity enforce level \"privileged:latest\"",
            "b (and 2 other pods): x",
            "d: z",
            "f (and 1 other pod): y",
        ];
        assert_eq!(survey.warnings_for("s", Standard::default()), expected);
        let fine = NamespaceViolations { total: 1, checked: 1, ..NamespaceViolations::default() };
        assert!(fine.warnings_for("s", Standard::default()).is_empty());
    }
}
