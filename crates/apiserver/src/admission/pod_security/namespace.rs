//! Writes of namespaces: labels that can be read, and a word about the pods that are there already.

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

/// How much work the change of a label may make.
const MOST_PODS: usize = 3000;
const LONGEST: Duration = Duration::from_secs(1);
/// How many pods are looked at before others get their turn.
const AT_ONCE: usize = 64;

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
        // what was wrong before may stay so, or nobody could change anything else
        let is_news = before.as_ref().is_none_or(|(_, known)| *known != problems);
        if !problems.is_empty() && is_news {
            return Err(ApiError::invalid(write.resource.stored_subject(name), problems)).into();
        }
        let (now, before) = (policy.enforce, before.map(|(before, _)| before.enforce));
        let asks_more = |before: Standard| {
            now.level != Level::Privileged && (now.version != before.version || now.level > before.level)
        };
        if before.is_some_and(|before| !asks_more(before)) {
            return Ok(()).into();
        }
        if self.settings.namespaces.contains(name) {
            self.ignored(object, &policy).into_iter().for_each(|warning| write.user.notes.warn(warning));
            return Ok(()).into();
        }
        if before.is_none() {
            return Ok(()).into();
        }
        MaybeReady::later(async move {
            let warnings = self.existing(write, name, now).await;
            warnings.into_iter().for_each(|warning| write.user.notes.warn(warning));
            Ok(())
        })
    }

    /// What there is to say about a namespace that asks for something and is exempt.
    fn ignored(&self, namespace: &Value, policy: &Policy) -> Option<String> {
        let name = namespace.text(&["metadata", "name"]);
        let said = self.labels.said(label(namespace), policy);
        said.map(|said| {
            format!("namespace {name:?} is exempt from Pod Security, and the policy ({said}) will be ignored")
        })
    }

    /// Which of a namespace's pods would be refused today; as many as can be looked at in a short time.
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
        let mut survey = Survey { total: all.len(), ..Survey::default() };
        // of many, one of each workload comes first: its others are most often alike
        let mut workloads = HashSet::new();
        let mut left: VecDeque<(&Arc<Object>, bool)> = all.into_iter().map(|pod| (pod, true)).collect();
        for turn in 1.. {
            let late = world.elapsed().saturating_sub(began) > LONGEST || survey.checked == MOST_PODS;
            let Some((stored, first)) = left.pop_front().filter(|_| !late) else { break };
            if turn % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            let object = stored.value(&pods.collection.kind).unwrap_or_default();
            if first && survey.total > MOST_PODS && !controller(&object).is_none_or(|it| workloads.insert(it))
            {
                left.push_back((stored, false));
                continue;
            }
            let pod = Pod::of(&object, &self.marks).filter(|pod| !self.is_exempt_runtime(pod.spec));
            survey.add(&stored.name, pod.map(|pod| reasons(&evaluate(standard, &pod))).unwrap_or_default());
        }
        survey.told(namespace, standard)
    }
}

/// The uid of the workload that a pod belongs to.
fn controller(pod: &Value) -> Option<String> {
    let owners = pod.items(&["metadata", "ownerReferences"]).iter();
    let mut controllers = owners.filter(|owner| owner.at(&["controller"]) == Some(&Value::Bool(true)));
    controllers.next().map(|owner| owner.text(&["uid"]).to_owned())
}

/// What is wrong with the pods of a namespace.
#[derive(Default)]
struct Survey {
    total: usize,
    checked: usize,
    /// By what is wrong: the first pod by name, and how many there are.
    found: BTreeMap<String, (String, usize)>,
}

impl Survey {
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

    fn told(self, namespace: &str, standard: Standard) -> Vec<String> {
        let Survey { total, checked, found } = self;
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
        let mut told: Vec<_> = found.into_iter().map(one).collect();
        told.sort();
        warnings.extend(told);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_are_alike_are_told_together() {
        let mut survey = Survey { total: 9, ..Survey::default() };
        let wrong = [("c", "x"), ("b", "x"), ("a", ""), ("f", "y"), ("e", "x"), ("d", "z"), ("g", "y")];
        wrong.into_iter().for_each(|(name, wrong)| survey.add(name, wrong.to_owned()));
        let expected = [
            "new PodSecurity enforce level only checked against the first 7 of 9 existing pods",
            "existing pods in namespace \"s\" violate the new PodSecurity enforce level \"privileged:latest\"",
            "b (and 2 other pods): x",
            "d: z",
            "f (and 1 other pod): y",
        ];
        assert_eq!(survey.told("s", Standard::default()), expected);
        let fine = Survey { total: 1, checked: 1, ..Survey::default() };
        assert!(fine.told("s", Standard::default()).is_empty());
    }
}
