//! Changes of the sizes of replica sets.

use super::limits::Limits;
use super::revision::RevisionAnnotations;
use crate::replicas::ReplicaKind;
use api::apps::v1::ReplicaSet;
use std::sync::Arc;

/// A replica set, and its new number of pods.
#[derive(Debug, Clone)]
pub struct Move {
    pub set: Arc<ReplicaSet>,
    pub to: i32,
}

/// The moves that change the size of a set, or its annotations of the size.
pub fn moves(
    all: impl IntoIterator<Item = (Arc<ReplicaSet>, i32)>,
    limits: &Limits,
    annotations: &RevisionAnnotations,
) -> Vec<Move> {
    let changes = |set: &ReplicaSet, to| {
        set.replicas() != to || annotations.size(&mut set.metadata.annotations.clone(), limits)
    };
    all.into_iter().filter(|(set, to)| changes(set, *to)).map(|(set, to)| Move { set, to }).collect()
}
