//! A snapshot: the immutable objects of one type at one revision.

use std::ops::Bound;
use std::sync::Arc;

use crate::contents::Contents;
use crate::key::with_path;
use crate::{Entry, Key};

/// The state at exactly [`revision`](Self::revision): every change up to it and none later. Cheap to clone.
pub struct Snapshot<E> {
    revision: u64,
    pub(crate) contents: Arc<Contents<E>>,
}

impl<E> Clone for Snapshot<E> {
    fn clone(&self) -> Self {
        Self { revision: self.revision, contents: self.contents.clone() }
    }
}

impl<E: Entry> Snapshot<E> {
    pub(crate) fn new(revision: u64, contents: Arc<Contents<E>>) -> Self {
        Self { revision, contents }
    }

    /// The revision this is the state at.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.contents.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.contents.objects.is_empty()
    }

    /// The object of that name; `namespace` is empty for cluster-scoped types.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<E>> {
        with_path(namespace, name, |path| self.contents.objects.get(path))
    }

    /// Objects in key order: all or those of one namespace, from the first or from the first whose
    /// [path](Key::path) is greater than `after`. `after` may be any text, such as a client's old token.
    /// Finding the start takes a search, not a walk, so a body may stream a long list in short ranges.
    pub fn range<'a>(
        &'a self,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<E>)> + Clone + use<'a, E> {
        // Every path of a namespace starts with "ns/", and '0' is the byte that follows '/'.
        let bounds = namespace.map(|namespace| ([namespace, "/"].concat(), [namespace, "0"].concat()));
        let (first, end) =
            bounds.as_ref().map_or((None, None), |(first, end)| (Some(&**first), Some(&**end)));
        let start = match (first, after) {
            (Some(first), Some(after)) if after >= first => Bound::Excluded(after),
            (Some(first), _) => Bound::Included(first),
            (None, Some(after)) => Bound::Excluded(after),
            (None, None) => Bound::Unbounded,
        };
        let past_the_end = matches!((after, end), (Some(after), Some(end)) if after >= end);
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (start.map(str::as_bytes), end.map(str::as_bytes));
        let within = (!past_the_end).then(|| self.contents.objects.range::<_, [u8]>(range));
        within.into_iter().flatten()
    }

    /// How many objects [`range`](Self::range) gives. Walks the keys unless the range is everything.
    pub fn count(&self, namespace: Option<&str>, after: Option<&str>) -> usize {
        match (namespace, after) {
            (None, None) => self.len(),
            _ => self.range(namespace, after).count(),
        }
    }

    /// Objects whose indexed term has this value, in key order.
    pub fn with_term<'a>(
        &'a self,
        term: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<E>)> + Clone + use<'a, E> {
        let keys = self.contents.by_term.get(term);
        keys.into_iter().flatten().filter_map(move |key| self.contents.objects.get_key_value(key))
    }
}
