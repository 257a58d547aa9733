//! Writes of namespaces: labels that can be read, and a word about the pods that are there already.

use super::PodSecurity;
use super::evaluate::{Pod, evaluate, reasons};
use super::policy::{Level, Policy, Standard};
use ambient::Soon;
use rest::{Admitted, ApiError};
use schema::Value;
use std::collections::BTreeMap;
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
        write: &'a Admitted<'a>,
        object: &'a Value,
        old: Option<&Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
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
        Soon::later(async move {
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
    async fn existing(&self, write: &Admitted<'_>, namespace: &str, standard: Standard) -> Vec<String> {
        let resources = write.api.resources();
        let Some(pods) = resources.get("v1", "pods") else { return Vec::new() };
        let (world, began) = (&write.api.world, write.api.world.elapsed());
        let snapshot = pods.collection.cache.snapshot();
        let total = snapshot.range(Some(namespace), None).count();
        let mut checked = 0;
        // by what is wrong: the first pod, and how many there are
        let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (_, stored) in snapshot.range(Some(namespace), None).take(MOST_PODS) {
            if checked % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            checked += 1;
            let object = stored.value(&pods.collection.kind).unwrap_or_default();
            let pod = Pod::of(&object, &self.marks).filter(|pod| !self.is_exempt_runtime(pod.spec));
            let wrong = pod.map(|pod| reasons(&evaluate(standard, &pod))).unwrap_or_default();
            if !wrong.is_empty() {
                found.entry(wrong).or_insert_with(|| (stored.name.to_string(), 0)).1 += 1;
            }
            if world.elapsed().saturating_sub(began) > LONGEST {
                break;
            }
        }
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
        let mut told: Vec<_> = found
            .into_iter()
            .map(|(wrong, (first, count))| match count {
                1 => format!("{first}: {wrong}"),
                2 => format!("{first} (and 1 other pod): {wrong}"),
                _ => format!("{first} (and {} other pods): {wrong}", count - 1),
            })
            .collect();
        told.sort();
        warnings.extend(told);
        warnings
    }
}
