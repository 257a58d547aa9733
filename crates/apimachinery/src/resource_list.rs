//! Resource lists: names of resources with quantities in canonical text.

use crate::unstructured as read;
use names::Names;
use schema::Value;
use schema::quantity::Quantity;

/// The prefix of huge pages; their size follows.
pub const HUGE_PAGES: &str = "hugepages-";
/// Resources below the well-known domain belong to the system although they are qualified.
const NAMES: Names = Names::kubernetes();

/// The quantity that a value holds; zero if it holds none.
pub fn parse(value: &Value) -> Quantity {
    read::text(value).parse().unwrap_or_else(|_| Quantity::new(0))
}

/// Whether a resource belongs to the system: its name has no domain, or the well-known one.
pub fn is_native(name: &str) -> bool {
    match name.split_once('/') {
        None => true,
        Some((prefix, _)) => prefix.ends_with(&*NAMES.well_known_domain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_resources_have_no_domain_of_their_own() {
        assert!(is_native("cpu") && is_native("kubernetes.io/x") && is_native("a.kubernetes.io/x"));
        assert!(!is_native("a.b/c"));
        assert_eq!((parse(&"2".into()), parse(&Value::Null)), (Quantity::new(2), Quantity::new(0)));
    }
}
