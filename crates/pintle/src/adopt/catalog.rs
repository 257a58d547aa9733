//! Which kind a key belongs to.

use kinds::{Options, Serving};
use names::Names;
use rest::storage::{ValueInspector, prefix};
use std::collections::BTreeMap;

/// A kind whose objects are in the store.
pub struct StoredKind {
    /// The plural and the group, as `kubectl` takes them: `deployments.apps`.
    pub resource: String,
    /// Absent for kinds that a server serves only with a flag.
    pub inspector: Option<ValueInspector>,
}

/// What a key is.
pub enum KeyClass<'a> {
    /// An object of a built-in kind.
    Object(&'a StoredKind),
    /// An object of a group with a domain: a custom resource, `group/plural`.
    Custom {
        group: &'a str,
        plural: &'a str,
    },
    /// A key of the servers themselves, which every one of them makes anew.
    Server(&'static str),
    Unknown,
}

/// Keys that are not objects of the API, with what is behind them.
const SERVER_KEYS: &[(&str, &str)] = &[
    ("/registry/masterleases/", "addresses of API servers"),
    ("/registry/ranges/", "records of service addresses and node ports"),
    ("/registry/pintle/", "keys of Pintle's servers"),
    ("/registry/health", "health checks"),
];

/// See the module.
pub struct Catalog {
    /// By key prefix.
    kinds: BTreeMap<String, StoredKind>,
}

impl Catalog {
    pub fn new(names: &Names) -> Self {
        let resource = |plural: &str, group: &str| match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        let mut kinds = BTreeMap::new();
        for kind in kinds::tables::KINDS.iter().filter(|kind| !kind.unstored && kind.stored_as.is_none()) {
            let group = kind.group.full(&names.api_domain);
            let stored = StoredKind { resource: resource(&kind.plural, &group), inspector: None };
            kinds.insert(prefix(kind, &group), stored);
        }
        for (kind, hooks) in kinds::builtin_serving(Options::default(), &Serving::default()) {
            let stored = kinds::stored(&kind).unwrap_or_else(|| kind.clone());
            if let Some(known) = kinds.get_mut(&prefix(&stored, &stored.group.full(&names.api_domain))) {
                let versions = hooks.storage.versions.as_ref();
                known.inspector.get_or_insert_with(|| ValueInspector::new(stored, versions, names));
            }
        }
        Catalog { kinds }
    }

    pub fn class<'a>(&'a self, key: &'a str) -> KeyClass<'a> {
        if let Some((_, what)) = SERVER_KEYS.iter().find(|(prefix, _)| key.starts_with(prefix)) {
            return KeyClass::Server(what);
        }
        // prefixes end with a slash, so that at most one is found at each
        let slashes = key.match_indices('/').map(|(at, _)| at + 1).skip(2).take(3);
        if let Some(kind) = slashes.into_iter().find_map(|end| self.kinds.get(&key[..end])) {
            return KeyClass::Object(kind);
        }
        let mut parts = key.trim_start_matches("/registry/").split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(plural), Some(_)) if group.contains('.') => KeyClass::Custom { group, plural },
            _ => KeyClass::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_classes() {
        let catalog = Catalog::new(&Names::kubernetes());
        let class = |key: &str| match catalog.class(key) {
            KeyClass::Object(kind) => kind.resource.clone(),
            KeyClass::Custom { group, plural } => format!("custom {plural}.{group}"),
            KeyClass::Server(what) => what.to_owned(),
            KeyClass::Unknown => "unknown".to_owned(),
        };
        for (key, expected) in [
            ("/registry/pods/default/a", "pods"),
            ("/registry/services/specs/default/a", "services"),
            ("/registry/services/endpoints/default/a", "endpoints"),
            ("/registry/deployments/default/a", "deployments.apps"),
            ("/registry/apiregistration.k8s.io/apiservices/v1.", "apiservices.apiregistration.k8s.io"),
            ("/registry/example.com/widgets/default/a", "custom widgets.example.com"),
            ("/registry/masterleases/10.0.0.1", "addresses of API servers"),
            ("/registry/podsecuritypolicy/a", "unknown"),
        ] {
            assert_eq!(class(key), expected, "{key}");
        }
    }
}
