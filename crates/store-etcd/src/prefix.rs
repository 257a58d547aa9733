//! Keys as everybody else knows them, and as they are in the etcd: they begin with `/registry` here, and with what
//! the operator says there.

use std::sync::Arc;

use bytes::Bytes;

/// What all keys begin with on this side.
const HERE: &str = "/registry/";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    /// What all keys begin with on the other side, with a slash at both ends.
    there: String,
}

impl Prefix {
    /// As the operator wrote it: slashes at the ends make no difference.
    pub(crate) fn new(text: &str) -> Self {
        let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty()).collect();
        let there = if parts.is_empty() { "/".to_owned() } else { format!("/{}/", parts.join("/")) };
        Prefix { there }
    }

    /// The key on the other side; none if it is no key of this side.
    pub(crate) fn outward(&self, key: &str) -> Option<Bytes> {
        let rest = key.strip_prefix(HERE)?;
        Some(Bytes::from(format!("{}{rest}", self.there)))
    }

    /// The key on this side; none if it is not below the prefix, or not text.
    pub(crate) fn inward(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key.strip_prefix(self.there.as_bytes())?).ok()?;
        Some([HERE, rest].concat().into())
    }

    /// The first key, and the first after the last.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        let first = Bytes::from(self.there.clone());
        // what follows the slash at the end
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
            assert_eq!(prefix.outward("/registry/pods/a/b").unwrap(), there);
            assert_eq!(&*prefix.inward(there.as_bytes()).unwrap(), "/registry/pods/a/b");
            let (first, end) = prefix.bounds();
            assert!(first <= there && there < end, "{first:?} {end:?}");
        }
        let prefix = Prefix::new("/mine");
        assert_eq!(prefix.outward("/other/x"), None);
        assert_eq!(prefix.inward(b"/registry/pods/x"), None);
        assert_eq!(prefix.inward(b"/mine2/x"), None);
        assert_eq!(prefix.inward(b"/mine/\xff"), None);
        assert_eq!(prefix.bounds(), ("/mine/".into(), "/mine0".into()));
    }
}
