//! The replica sets of a deployment: which one has its template, and what the others are.

use crate::hash::hash;
use crate::replicas::Replicated;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;
use std::sync::Arc;

/// By this label the pods of one replica set are told from those of another.
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
        all.sort_by_cached_key(|set| (set.creation_timestamp(), set.name_any()));
        let wanted = deployment.spec.as_ref().map(|it| &it.template);
        let new = all.iter().position(|set| match (set.template(), wanted) {
            (Some(template), Some(wanted)) => is_same(template, wanted),
            _ => false,
        });
        let new = new.map(|at| all.remove(at));
        Sets { new, old: all }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// A set was written.
    pub fn put(&mut self, set: ReplicaSet) {
        let place = self.old.iter_mut().chain(&mut self.new).find(|it| it.metadata.uid == set.metadata.uid);
        if let Some(place) = place {
            *place = Arc::new(set);
        }
    }
}

/// Whether pods of two templates are the same but for the label that tells them apart.
fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut metadata = template.metadata.clone().unwrap_or_default();
        if let Some(labels) = &mut metadata.labels {
            labels.remove(HASH_LABEL);
        }
        metadata.labels = metadata.labels.filter(|it| !it.is_empty());
        metadata.annotations = metadata.annotations.filter(|it| !it.is_empty());
        metadata
    };
    one.spec == other.spec && plain(one) == plain(other)
}

/// What stands for a deployment's template in names and labels.
pub fn template_hash(deployment: &Deployment) -> String {
    let collisions = deployment.status.as_ref().and_then(|it| it.collision_count);
    hash(&deployment.spec.as_ref().map(|it| &it.template), collisions)
}

/// Pods that there are or will be: those to come count, and those that have not gone yet.
pub fn most(set: &ReplicaSet) -> i32 {
    set.replicas().max(set.status().replicas)
}

/// Pods that are available and will stay.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status().available.min(set.replicas())
}

/// Whether it has answered to the last change of what it should do.
pub fn is_observed(set: &ReplicaSet) -> bool {
    set.status().observed_generation >= set.metadata.generation.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(image: &str, collisions: Option<i32>) -> Deployment {
        let json = json!({
            "metadata": {"name": "d"},
            "spec": {"selector": {}, "template": template(json!({"app": "web"}), image)},
            "status": {"collisionCount": collisions}
        });
        serde_json::from_value(json).unwrap()
    }

    fn template(labels: Value, image: &str) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn set(name: &str, made: &str, template: Value) -> Arc<ReplicaSet> {
        let json = json!({
            "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"selector": {}, "template": template}
        });
        Arc::new(serde_json::from_value(json).unwrap())
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
        assert_eq!(sets.new.as_ref().unwrap().name_any(), "young");
        let old: Vec<_> = sets.old.iter().map(|it| it.name_any()).collect();
        assert_eq!(old, ["oldest", "old", "twin"]);
        assert!(Sets::sorted(&deployment("i:3", None), sets.old).new.is_none());
    }

    #[test]
    fn hashes_follow_from_template_and_collisions() {
        let of = |image: &str, collisions| template_hash(&deployment(image, collisions));
        assert_eq!(of("a", None), of("a", None));
        assert_ne!(of("a", None), of("b", None));
        assert_ne!(of("a", None), of("a", Some(1)));
    }
}
