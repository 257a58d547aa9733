//! The listeners that add nodes to the queue.

use super::attacher::Attacher;
use super::indexes::{BY_NODE, BY_VOLUME, claim_of, is_managed, volume_name};
use super::migration::has_inline;
use super::snapshot::{is_attach_managed, read_node};
use crate::pods::placed;
use crate::volumes::claims;
use api::Resource;
use api::core::v1::{Node, Pod};
use api::storage::v1::CSINode;
use client::{Change, Informer, Key, Queue};
use names::labels::MIGRATED_PLUGINS;
use std::sync::Arc;

fn node_key(name: &str) -> Key {
    Key::new("", name)
}

/// Adds the nodes of the pods that use a claim.
fn add_users(pods: &Informer<Pod>, claim: &Key, queue: &Queue<Key>) {
    for pod in claims::users(pods, claim).iter().filter(|it| !it.spec.node_name.is_empty()) {
        queue.add(node_key(&pod.spec.node_name));
    }
}

pub(super) fn listen(attacher: &Arc<Attacher>, queue: &Queue<Key>) {
    placed::index(&attacher.pods);
    claims::index(&attacher.pods);
    let attachments = attacher.attachments.informer();
    attachments.index(BY_NODE, |it| is_managed(it).then(|| it.spec.node_name.clone()).into_iter().collect());
    attachments.index(BY_VOLUME, |it| volume_name(it).into_iter().collect());
    let changed = queue.clone();
    attacher.pods.listen(move |change| {
        fn state(pod: &Pod) -> (&str, bool, &str) {
            (&pod.spec.node_name, claims::has_released_volumes(pod), pod.uid())
        }
        if let Change::Updated { old, new } = change
            && state(old) == state(new)
        {
            return;
        }
        let pod = change.object();
        let has_volumes = claims::used_by(pod).next().is_some() || has_inline(pod);
        if !pod.spec.node_name.is_empty() && has_volumes {
            changed.add(node_key(&pod.spec.node_name));
        }
    });
    let (changed, pods) = (queue.clone(), attacher.pods.clone());
    attacher.claims.listen(move |change| add_users(&pods, &change.key(), &changed));
    let (changed, pods) = (queue.clone(), attacher.pods.clone());
    attacher.volumes.listen(move |change| {
        claim_of(change.object()).iter().for_each(|claim| add_users(&pods, claim, &changed));
    });
    let (changed, pods, volumes) = (queue.clone(), attacher.pods.clone(), attacher.volumes.clone());
    attachments.listen(move |change| {
        let attachment = change.object();
        changed.add(node_key(&attachment.spec.node_name));
        // other nodes may wait for the volume
        if change.is_deletion()
            && let Some(name) = &attachment.spec.source.persistent_volume_name
            && let Some(claim) = volumes.get(&Key::new("", name)).as_deref().and_then(claim_of)
        {
            add_users(&pods, &claim, &changed);
        }
    });
    listen_to_nodes(attacher, queue);
    let changed = queue.clone();
    attacher.csi_nodes.listen(move |change| {
        let plugins = |it: &CSINode| it.metadata.annotations.get(MIGRATED_PLUGINS).cloned();
        if !matches!(change, Change::Updated { old, new } if plugins(old) == plugins(new)) {
            changed.add(change.key());
        }
    });
    let (changed, nodes) = (queue.clone(), attacher.nodes.informer().clone());
    // drivers change rarely
    attacher.drivers.listen(move |_| nodes.all().iter().for_each(|it| changed.add(Key::of(&**it))));
}

/// Nodes report their status every few seconds: only changes that affect volumes add the node.
fn listen_to_nodes(attacher: &Arc<Attacher>, queue: &Queue<Key>) {
    let (changed, names) = (queue.clone(), attacher.context.names.clone());
    attacher.nodes.informer().listen(move |change| {
        let state = |node: &Node| (read_node(node, &names), is_attach_managed(node, &names));
        if let Change::Updated { old, new } = change
            && old.metadata.annotations == new.metadata.annotations
            && state(old) == state(new)
        {
            return;
        }
        changed.add(change.key());
    });
}
