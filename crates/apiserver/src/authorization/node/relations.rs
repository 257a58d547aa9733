//! Relations between a node and an object, through the pods on the node.
//!
//! ```text
//! node ◄─ pod ◄─ secret, config map, service account, claim ◄─ volume ◄─ secret
//! node ◄─ attachment of a volume
//! ```
//!
//! No state is kept: the cache indexes pods by node, and only pods whose JSON contains the requested name are
//! decoded. Mirror pods relate nothing, or a kubelet could create one to read the objects that it names.

use kinds::core::persistentvolume::secrets;
use kinds::core::pod::references::{self, ReferenceKind};
use memchr::memmem::Finder;
use rest::{Api, Collection, Object};
use schema::Value;
use std::sync::Arc;

/// The collections that relations are looked up in.
pub struct Relations {
    pods: Option<Arc<Collection>>,
    volumes: Option<Arc<Collection>>,
    attachments: Option<Arc<Collection>>,
    mirror: String,
}

impl Relations {
    pub fn new(api: &Api) -> Self {
        let resources = api.resources();
        let of = |group: &str, plural: &str| {
            let version =
                if group.is_empty() { "v1".to_owned() } else { format!("{}/v1", api.names.group(group)) };
            resources.get(&version, plural).map(|it| it.collection.clone())
        };
        Relations {
            pods: of("", "pods"),
            volumes: of("", "persistentvolumes"),
            attachments: of("storage", "volumeattachments"),
            mirror: api.names.well_known("config.mirror"),
        }
    }

    pub fn secret(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.needs(node, namespace, ReferenceKind::Secret, name) || self.volume_with(node, namespace, name)
    }

    pub fn config_map(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.needs(node, namespace, ReferenceKind::ConfigMap, name)
    }

    pub fn account(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.needs(node, namespace, ReferenceKind::ServiceAccount, name)
    }

    pub fn claim(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.needs(node, namespace, ReferenceKind::Claim, name)
    }

    pub fn volume(&self, node: &str, _: &str, name: &str) -> bool {
        let Some(volume) = find(&self.volumes, name) else { return false };
        self.claimed(node, &volume)
    }

    pub fn attachment(&self, node: &str, _: &str, name: &str) -> bool {
        find(&self.attachments, name).is_some_and(|it| it.text(&["spec", "nodeName"]) == node)
    }

    /// Whether a pod on the node uses the claim that a volume is bound to.
    fn claimed(&self, node: &str, volume: &Value) -> bool {
        let claim = ["namespace", "name"].map(|field| volume.text(&["spec", "claimRef", field]));
        !claim[1].is_empty() && self.claim(node, claim[0], claim[1])
    }

    /// Whether a pod on the node uses a volume that needs a secret.
    fn volume_with(&self, node: &str, namespace: &str, secret: &str) -> bool {
        let Some(volumes) = &self.volumes else { return false };
        let snapshot = volumes.cache.snapshot();
        if snapshot.is_empty() {
            return false;
        }
        let text = Text::new(secret);
        let mut holding = snapshot.range(None, None).filter(|(_, object)| text.is_in(object));
        holding.any(|(_, object)| {
            object.value(&volumes.kind).is_ok_and(|volume| {
                secrets::refers(&volume, namespace, secret) && self.claimed(node, &volume)
            })
        })
    }

    /// Whether a pod on the node refers to an object of its namespace.
    fn needs(&self, node: &str, namespace: &str, kind: ReferenceKind, name: &str) -> bool {
        let Some(pods) = &self.pods else { return false };
        let snapshot = pods.cache.snapshot();
        let text = Text::new(name);
        // a generated claim is named after pod and volume
        let is_generated_for = |pod: &Object| {
            let volume = name.strip_prefix(&*pod.name).and_then(|rest| rest.strip_prefix('-'));
            kind == ReferenceKind::Claim && volume.is_some_and(|volume| !volume.is_empty())
        };
        let here = snapshot.with_term(node).filter(|(_, pod)| *pod.namespace == *namespace);
        let mut holding = here.filter(|(_, pod)| text.is_in(pod) || is_generated_for(pod));
        holding.any(|(_, pod)| {
            pod.value(&pods.kind).is_ok_and(|pod| {
                !self.mirrors(&pod)
                    && references::any(&pod, |reference, other| reference == kind && other == name)
            })
        })
    }

    fn mirrors(&self, pod: &Value) -> bool {
        pod.at(&["metadata", "annotations", &self.mirror]).is_some()
    }
}

fn find(collection: &Option<Arc<Collection>>, name: &str) -> Option<Value> {
    let collection = collection.as_ref()?;
    collection.cache.get("", name)?.value(&collection.kind).ok()
}

/// A name as it occurs in JSON. Names that need escapes are not searched for.
struct Text {
    finder: Finder<'static>,
    plain: bool,
}

impl Text {
    fn new(name: &str) -> Self {
        let plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        Text { finder: Finder::new(&format!("\"{name}\"")).into_owned(), plain }
    }

    fn is_in(&self, object: &Object) -> bool {
        !self.plain || self.finder.find(object.json()).is_some()
    }
}
