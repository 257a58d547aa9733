//! Moves: the sizes that replica sets get.

use super::limits::Limits;
use super::revision::RevisionAnnotations;
use crate::replicas::Replicated;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::ResourceExt;
use std::sync::Arc;

/// A replica set that is to have so many pods.
#[derive(Debug, Clone)]
pub struct Move {
    pub set: Arc<ReplicaSet>,
    pub to: i32,
}

/// The moves that change something: the size, or what a set is marked with.
pub fn moves(
    all: impl IntoIterator<Item = (Arc<ReplicaSet>, i32)>,
    limits: &Limits,
    marks: &RevisionAnnotations,
) -> Vec<Move> {
    let changes = |set: &ReplicaSet, to| {
        set.replicas() != to || {
            let mut annotations = set.annotations().clone();
            marks.size(&mut annotations, limits)
        }
    };
    all.into_iter().filter(|(set, to)| changes(set, *to)).map(|(set, to)| Move { set, to }).collect()
}
