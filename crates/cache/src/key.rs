//! The key of an object within its resource type.
//!
//! A key is ordered exactly as the last part of its key in the store, `namespace/name` (or `name` when
//! cluster-scoped), byte by byte. That is not the order of the pair: `-` and `.` sort before `/`, so
//! `a-b/x < a/x` although `a < a-b`. Lists and continue tokens follow this order on every store.
//! Holding the joined path makes the order true by construction.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Namespace and name. Cloning shares the text.
#[derive(Clone)]
pub struct Key {
    path: Arc<str>,
    /// Length of the namespace; 0 when there is none.
    split: usize,
}

impl Key {
    /// The key of `name` in `namespace`, which is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Self {
        let path = match namespace {
            "" => Arc::from(name),
            _ => Arc::from([namespace, "/", name].concat()),
        };
        Self { path, split: namespace.len() }
    }

    /// The namespace, empty when cluster-scoped.
    pub fn namespace(&self) -> &str {
        &self.path[..self.split]
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self.split {
            0 => &self.path,
            split => &self.path[split + 1..],
        }
    }

    /// `namespace/name` or `name`: the last part of the key in the store.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Calls `then` with the path of `namespace` and `name`, without allocating for names of valid length.
pub(crate) fn with_path<T>(namespace: &str, name: &str, then: impl FnOnce(&[u8]) -> T) -> T {
    // A namespace has at most 63 bytes, a name at most 253.
    const LONGEST: usize = 63 + 1 + 253;
    if namespace.is_empty() {
        return then(name.as_bytes());
    }
    let (split, len) = (namespace.len(), namespace.len() + 1 + name.len());
    if len > LONGEST {
        return then([namespace, "/", name].concat().as_bytes());
    }
    let mut path = [0; LONGEST];
    path[..split].copy_from_slice(namespace.as_bytes());
    path[split] = b'/';
    path[split + 1..len].copy_from_slice(name.as_bytes());
    then(&path[..len])
}

// Equality, order and hash are those of the path's bytes, so that maps can be searched by bytes.

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.path.as_bytes()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.path.as_bytes().cmp(other.path.as_bytes())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.as_bytes().hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.path, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_its_parts() {
        let key = Key::new("kube-system", "dns");
        assert_eq!((key.namespace(), key.name(), key.path()), ("kube-system", "dns", "kube-system/dns"));
        let key = Key::new("", "node-1");
        assert_eq!((key.namespace(), key.name(), key.path()), ("", "node-1", "node-1"));
    }

    #[test]
    fn keys_sort_as_their_paths_do_in_the_store() {
        let parts = ["a", "a-b", "a.b", "a0", "ab", "b", "A", "a-", "z"];
        let mut keys: Vec<Key> =
            parts.iter().flat_map(|ns| parts.iter().map(move |name| Key::new(ns, name))).collect();
        keys.extend(parts.iter().map(|name| Key::new("", name)));
        let mut paths: Vec<String> = keys.iter().map(|key| key.path().to_owned()).collect();
        keys.sort();
        paths.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        assert_eq!(keys.iter().map(Key::path).collect::<Vec<_>>(), paths);
        assert!(Key::new("a-b", "x") < Key::new("a", "x"));
        assert!(Key::new("a.b", "x") < Key::new("a", "x"));
        assert!(Key::new("a", "x") < Key::new("a0", "x"));
    }

    #[test]
    fn a_borrowed_path_of_any_length_equals_its_key() {
        for (namespace, name) in [("", "n"), ("ns", "n"), ("ns", &*"n".repeat(1000)), (&*"n".repeat(400), "")]
        {
            let key = Key::new(namespace, name);
            with_path(namespace, name, |path| assert_eq!(path, key.path().as_bytes()));
        }
    }
}
