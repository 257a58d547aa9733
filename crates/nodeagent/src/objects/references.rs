//! The config maps and secrets that a pod refers to.

use api::core::v1::{Container, EnvFromSource, EnvVarSource, Pod, Volume};
use client::Key;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceKind {
    ConfigMap,
    Secret,
}

/// An object that a pod refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: ReferenceKind,
    pub namespace: String,
    pub name: String,
}

impl Reference {
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// All references of a pod: environments, volumes, pull secrets.
pub fn references(pod: &Pod) -> BTreeSet<Reference> {
    let mut names: BTreeSet<(ReferenceKind, &str)> = BTreeSet::new();
    names.extend(pod.spec.image_pull_secrets.iter().map(|it| (ReferenceKind::Secret, &*it.name)));
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
        of_container(container, &mut names);
    }
    for ephemeral in &pod.spec.ephemeral_containers {
        ephemeral.env_from.iter().for_each(|it| of_env_from(it, &mut names));
        ephemeral.env.iter().filter_map(|it| it.value_from.as_ref()).for_each(|it| of_value(it, &mut names));
    }
    for volume in &pod.spec.volumes {
        of_volume(volume, &mut names);
    }
    let namespace = &pod.metadata.namespace;
    let named = names.into_iter().filter(|(_, name)| !name.is_empty());
    named
        .map(|(kind, name)| Reference { kind, namespace: namespace.clone(), name: name.to_owned() })
        .collect()
}

fn of_container<'a>(container: &'a Container, names: &mut BTreeSet<(ReferenceKind, &'a str)>) {
    container.env_from.iter().for_each(|it| of_env_from(it, names));
    container.env.iter().filter_map(|it| it.value_from.as_ref()).for_each(|it| of_value(it, names));
}

fn of_env_from<'a>(source: &'a EnvFromSource, names: &mut BTreeSet<(ReferenceKind, &'a str)>) {
    names.extend(source.config_map_ref.iter().map(|it| (ReferenceKind::ConfigMap, &*it.name)));
    names.extend(source.secret_ref.iter().map(|it| (ReferenceKind::Secret, &*it.name)));
}

fn of_value<'a>(source: &'a EnvVarSource, names: &mut BTreeSet<(ReferenceKind, &'a str)>) {
    names.extend(source.config_map_key_ref.iter().map(|it| (ReferenceKind::ConfigMap, &*it.name)));
    names.extend(source.secret_key_ref.iter().map(|it| (ReferenceKind::Secret, &*it.name)));
}

fn of_volume<'a>(volume: &'a Volume, names: &mut BTreeSet<(ReferenceKind, &'a str)>) {
    names.extend(volume.config_map.iter().map(|it| (ReferenceKind::ConfigMap, &*it.name)));
    names.extend(volume.secret.iter().map(|it| (ReferenceKind::Secret, &*it.secret_name)));
    for source in volume.projected.iter().flat_map(|it| &it.sources) {
        names.extend(source.config_map.iter().map(|it| (ReferenceKind::ConfigMap, &*it.name)));
        names.extend(source.secret.iter().map(|it| (ReferenceKind::Secret, &*it.name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_volumes_and_pull_secrets_are_references() {
        let pod: Pod = api::from_json(
            br#"{"metadata":{"namespace":"n"},"spec":{"imagePullSecrets":[{"name":"pull"}],
                "containers":[{"envFrom":[{"configMapRef":{"name":"m1"}},{"secretRef":{"name":"s1"}}],
                    "env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"m1","key":"k"}}}]}],
                "ephemeralContainers":[{"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}}]}],
                "volumes":[{"name":"a","configMap":{"name":"m2"}},{"name":"b","secret":{"secretName":"s3"}},
                    {"name":"c","projected":{"sources":[{"configMap":{"name":"m3"}},{"secret":{"name":"s4"}}]}}]}}"#,
        )
        .unwrap();
        let all = references(&pod);
        let of = |kind| all.iter().filter(|it| it.kind == kind).map(|it| &*it.name).collect::<Vec<_>>();
        assert_eq!(of(ReferenceKind::ConfigMap), ["m1", "m2", "m3"]);
        assert_eq!(of(ReferenceKind::Secret), ["pull", "s1", "s2", "s3", "s4"]);
        assert!(all.iter().all(|it| it.namespace == "n"));
    }
}
