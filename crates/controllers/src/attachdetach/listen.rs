//! The listeners that add nodes to the queue.

use super::attacher::Attacher;
use super::indexes::{BY_NODE, BY_VOLUME, claim_of, is_own};
use super::snapshot::{is_looked_after, read_node};
use crate::pods::{placed, rank};
use crate::volumes::claims;
use client::{Change, Informer, Key, Queue};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use std::sync::Arc;

fn node_key(name: &str) -> Key {
    Key::new("", name)
}

/// The nodes of those who use a claim.
fn add_users(pods: &Informer<Pod>, claim: &Key, queue: &Queue<Key>) {
    for pod in claims::users(pods, claim) {
        rank::node(&pod).into_iter().for_each(|node| queue.add(node_key(node)));
    }
}

pub(super) fn listen(this: &Arc<Attacher>, queue: &Queue<Key>) {
    placed::index(&this.pods);
    claims::index(&this.pods);
    let attachments = this.attachments.informer();
    attachments.index(BY_NODE, |it| is_own(it).then(|| it.spec.node_name.clone()).into_iter().collect());
    attachments.index(BY_VOLUME, |it| it.spec.source.persistent_volume_name.clone().into_iter().collect());
    let news = queue.clone();
    this.pods.listen(move |change| {
        let state = |pod: &Pod| (rank::node(pod).map(str::to_owned), claims::is_done(pod), pod.uid());
        if let Change::Updated { old, new } = change
            && state(old) == state(new)
        {
            return;
        }
        let pod = change.object();
        if let Some(node) = rank::node(pod)
            && claims::of(pod).next().is_some()
        {
            news.add(node_key(node));
        }
    });
    let (news, pods) = (queue.clone(), this.pods.clone());
    this.claims.listen(move |change| add_users(&pods, &change.key(), &news));
    let (news, pods) = (queue.clone(), this.pods.clone());
    this.volumes.listen(move |change| {
        claim_of(change.object()).iter().for_each(|claim| add_users(&pods, claim, &news));
    });
    let (news, pods, volumes) = (queue.clone(), this.pods.clone(), this.volumes.clone());
    attachments.listen(move |change| {
        let attachment = change.object();
        news.add(node_key(&attachment.spec.node_name));
        // others may have waited for it to go
        if change.is_deletion()
            && let Some(name) = &attachment.spec.source.persistent_volume_name
            && let Some(claim) = volumes.get(&Key::new("", name)).as_deref().and_then(claim_of)
        {
            add_users(&pods, &claim, &news);
        }
    });
    to_nodes(this, queue);
    let (news, nodes) = (queue.clone(), this.nodes.informer().clone());
    // what a driver says about all its volumes changes hardly ever
    this.drivers.listen(move |_| nodes.all().iter().for_each(|it| news.add(Key::of(&**it))));
}

/// Agents say every few seconds how their nodes are: only what matters here is news.
fn to_nodes(this: &Arc<Attacher>, queue: &Queue<Key>) {
    let (news, names) = (queue.clone(), this.context.names.clone());
    this.nodes.informer().listen(move |change| {
        let state = |node: &Node| (read_node(node, &names), is_looked_after(node, &names));
        if let Change::Updated { old, new } = change
            && old.annotations() == new.annotations()
            && state(old) == state(new)
        {
            return;
        }
        news.add(change.key());
    });
}
