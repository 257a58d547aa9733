//! Encryption at rest: builds the keyring in front of the store from its configuration.

use encryption::{
    ConfigReloader, Configuration, DecryptError, EncryptedStore, Keyring, Locate, Parts, Rename,
};
use env::World;
use kinds::tables::KINDS;
use metrics::Registry;
use names::Names;
use rest::storage::prefix;
use schema::table::Kind;
use std::sync::Arc;
use store::{RecoveredRecord, Store};

/// Options of encryption at rest.
pub struct Options {
    pub configuration: Configuration,
    /// Reloads the configuration when its file changes.
    pub reload: Option<ConfigReloader>,
}

/// The keyring of a configuration. `None` for plaintext without a reload.
pub(crate) fn keyring(
    options: &Options,
    names: &Names,
    world: &World,
    registry: &Registry,
    rename: Option<Rename>,
) -> Option<Arc<Keyring>> {
    let Options { configuration, reload } = options;
    if configuration.is_plaintext() && reload.is_none() {
        return None;
    }
    for (resource, group) in configuration.resources() {
        // groups of custom resources contain a dot
        if built_in(resource, group, names).is_none() && !group.contains('.') {
            tracing::warn!(resource, group, "the encryption configuration names an unknown resource");
        }
    }
    let parts = Parts { rename, reloads: reload.is_some(), ..parts(names, world, registry) };
    Some(Arc::new(Keyring::new(configuration, parts)))
}

/// A keyring that reads values and writes none. Without a configuration it tells encrypted values from others.
pub fn reading_keyring(
    configuration: Option<&Configuration>,
    names: &Names,
    world: &World,
    rename: Option<Rename>,
) -> Keyring {
    let registry = Registry::default();
    let parts = Parts { rename, ..parts(names, world, &registry) };
    match configuration {
        Some(configuration) => Keyring::new(configuration, parts),
        None => Keyring::empty(parts),
    }
}

/// Puts a store behind a keyring, and decrypts the recovered objects.
pub(crate) async fn over(
    (store, recovered): (Arc<dyn Store>, Vec<RecoveredRecord>),
    keyring: Option<Arc<Keyring>>,
    names: &Names,
    world: &World,
) -> Result<(Arc<dyn Store>, Vec<RecoveredRecord>), DecryptError> {
    // without keys, encrypted values are still distinguished from corrupt ones
    let empty = || Keyring::empty(parts(names, world, &Registry::default()));
    EncryptedStore::over(store, recovered, keyring, empty).await
}

fn parts<'a>(names: &'a Names, world: &World, registry: &'a Registry) -> Parts<'a> {
    let locate = locate(names);
    Parts { world: world.clone(), registry, names, locate, rename: None, reloads: false }
}

/// The store key of resources: by the table of built-in kinds, by group otherwise.
fn locate(names: &Names) -> Locate {
    let names = names.clone();
    Box::new(move |resource, group| match built_in(resource, group, &names) {
        Some(kind) => {
            let stored = kinds::stored(kind);
            let stored = stored.as_deref().unwrap_or(kind);
            prefix(stored, &stored.group.full(&names.api_domain))
        }
        None => format!("/registry/{group}/{resource}/"),
    })
}

fn built_in(resource: &str, group: &str, names: &Names) -> Option<&'static Kind> {
    let mut kinds = KINDS.iter().copied();
    kinds.find(|kind| kind.plural == resource && kind.group.full(&names.api_domain) == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_located_by_their_store_keys() {
        let locate = locate(&Names::kubernetes());
        for (resource, group, expected) in [
            ("secrets", "", "/registry/secrets/"),
            ("services", "", "/registry/services/specs/"),
            ("deployments", "apps", "/registry/deployments/"),
            ("events", "", "/registry/events/"),
            ("events", "events.k8s.io", "/registry/events/"),
            ("ingresses", "networking.k8s.io", "/registry/ingress/"),
            (
                "customresourcedefinitions",
                "apiextensions.k8s.io",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/",
            ),
            ("pandas", "bears.example", "/registry/bears.example/pandas/"),
        ] {
            assert_eq!(locate(resource, group), expected, "{resource} {group}");
        }
    }
}
