//! The mapping between keys of this store and keys in etcd: the first begin with `/registry`, the second with the
//! configured prefix.

use std::sync::Arc;

use bytes::Bytes;

/// The prefix of all keys in this process.
const INTERNAL_PREFIX: &str = "/registry/";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    /// The prefix of all keys in etcd, with a slash at both ends.
    there: String,
}

impl Prefix {
    /// Normalizes the configured prefix: leading, trailing and repeated slashes do not count.
    pub(crate) fn new(text: &str) -> Self {
        let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty()).collect();
        let there = if parts.is_empty() { "/".to_owned() } else { format!("/{}/", parts.join("/")) };
        Prefix { there }
    }

    /// The key in etcd; `None` if `key` does not begin with `/registry/`.
    pub(crate) fn etcd_key(&self, key: &str) -> Option<Bytes> {
        let rest = key.strip_prefix(INTERNAL_PREFIX)?;
        Some(Bytes::from(format!("{}{rest}", self.there)))
    }

    /// The key in this process; `None` if it is outside the prefix or is not UTF-8.
    pub(crate) fn store_key(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key.strip_prefix(self.there.as_bytes())?).ok()?;
        Some([INTERNAL_PREFIX, rest].concat().into())
    }

    /// The range of the prefix: its first key, and the first key after its last.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        let first = Bytes::from(self.there.clone());
        // '0' is the byte after '/'
        let end = [&self.there.as_bytes()[..self.there.len() - 1], b"0"].concat();
        (first, end.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_their_beginning_at_the_border() {
        for (said, there) in [
            ("/registry", "/registry/pods/a/b"),
            ("registry/", "/registry/pods/a/b"),
            ("/a//b/", "/a/b/pods/a/b"),
            ("", "/pods/a/b"),
        ] {
            let prefix = Prefix::new(said);
            assert_eq!(prefix.etcd_key("/registry/pods/a/b").unwrap(), there);
            assert_eq!(&*prefix.store_key(there.as_bytes()).unwrap(), "/registry/pods/a/b");
            let (first, end) = prefix.bounds();
            assert!(first <= there && there < end, "{first:?} {end:?}");
        }
        let prefix = Prefix::new("/mine");
        assert_eq!(prefix.etcd_key("/other/x"), None);
        assert_eq!(prefix.store_key(b"/registry/pods/x"), None);
        assert_eq!(prefix.store_key(b"/mine2/x"), None);
        assert_eq!(prefix.store_key(b"/mine/\xff"), None);
        assert_eq!(prefix.bounds(), ("/mine/".into(), "/mine0".into()));
    }
}
