//! The replica sets of a deployment: the new one, which has its template, and the old ones.

use crate::hash::hash;
use crate::replicas::ReplicaKind;
use api::apps::v1::{Deployment, ReplicaSet};
use api::core::v1::PodTemplateSpec;
use api::{Resource, Value};
use std::sync::Arc;

/// The label that distinguishes the pods of one replica set from those of another.
pub const HASH_LABEL: &str = "pod-template-hash";

/// The replica sets of a deployment.
#[derive(Debug, Clone, Default)]
pub struct Sets {
    /// The one that has the deployment's template; the oldest, should there be several.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, the oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    pub fn sorted(deployment: &Deployment, mut all: Vec<Arc<ReplicaSet>>) -> Self {
        all.sort_by_cached_key(|set| (set.metadata.creation_timestamp, set.name().to_owned()));
        let new = all.iter().position(|set| is_same(&set.spec.template, &deployment.spec.template));
        let new = new.map(|at| all.remove(at));
        Sets { new, old: all }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Replaces a set by its state after a write.
    pub fn put(&mut self, set: ReplicaSet) {
        let place = self.old.iter_mut().chain(&mut self.new).find(|it| it.metadata.uid == set.metadata.uid);
        if let Some(place) = place {
            *place = Arc::new(set);
        }
    }
}

/// Whether two templates are the same, except for the label of the hash.
pub(super) fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone();
        metadata.labels.remove(HASH_LABEL);
        metadata
    };
    one.spec == other.spec && plain(one) == plain(other)
}

/// The hash of a deployment's template, for names and labels. It covers the template's JSON with sorted keys and
/// without nulls.
pub fn template_hash(deployment: &Deployment) -> String {
    // the codec reads what it writes
    let mut template = api::from_json(&api::to_json(&deployment.spec.template)).unwrap_or_default();
    remove_nulls(&mut template);
    hash(&template, deployment.status.collision_count)
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.retain(|_, value| !value.is_null());
            map.iter_mut().for_each(|(_, value)| remove_nulls(value));
        }
        Value::List(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The pods of a set, counting those that it will create and those that it has not deleted yet.
pub fn most(set: &ReplicaSet) -> i32 {
    set.replicas().max(set.status.replicas)
}

/// The available pods of a set that it will not delete.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.available_replicas.min(set.replicas())
}

/// Whether the status of a set is of its current generation.
pub fn is_observed(set: &ReplicaSet) -> bool {
    set.status.observed_generation >= set.metadata.generation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn deployment(image: &str, collisions: Option<i32>) -> Deployment {
        object(json!({
            "metadata": {"name": "d"},
            "spec": {"selector": {}, "template": template(json!({"app": "web"}), image)},
            "status": {"collisionCount": collisions}
        }))
    }

    fn template(labels: Value, image: &str) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn set(name: &str, made: &str, template: Value) -> Arc<ReplicaSet> {
        Arc::new(object(json!({
            "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"selector": {}, "template": template}
        })))
    }

    #[test]
    fn the_new_set_is_the_oldest_with_the_same_template() {
        let web = |hash: &str| json!({"app": "web", HASH_LABEL: hash});
        let all = vec![
            set("young", "2026-01-03T00:00:00Z", template(web("x"), "i:2")),
            set("twin", "2026-01-04T00:00:00Z", template(web("y"), "i:2")),
            set("old", "2026-01-02T00:00:00Z", template(web("z"), "i:1")),
            set("oldest", "2026-01-01T00:00:00Z", template(json!({"app": "other", HASH_LABEL: "w"}), "i:2")),
        ];
        let sets = Sets::sorted(&deployment("i:2", None), all);
        assert_eq!(sets.new.as_ref().unwrap().name(), "young");
        let old: Vec<_> = sets.old.iter().map(|it| it.name()).collect();
        assert_eq!(old, ["oldest", "old", "twin"]);
        assert!(Sets::sorted(&deployment("i:3", None), sets.old).new.is_none());
    }

    #[test]
    fn hashes_depend_on_template_and_collisions() {
        let of = |image: &str, collisions| template_hash(&deployment(image, collisions));
        assert_eq!(of("a", None), of("a", None));
        assert_ne!(of("a", None), of("b", None));
        assert_ne!(of("a", None), of("a", Some(1)));
        // the content is fixed: a new version keeps the names of replica sets
        let content = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"image": "a", "name": "c", "resources": {}}]}
        });
        assert_eq!(of("a", None), hash(&object::<super::Value>(content), None));
    }
}
