//! Every kind that a body may name, in every version that there is or was: upstream's scheme.

use crate::tables::{self, KINDS, RETIRED, TRAVELLING};
use names::Names;
use schema::table::{Field, Flags, Group, ListKind, ListShape, Ref, Scalar, Shape, Type};

const META: &str = "apimachinery.pkg.apis.meta.v1";

/// Kinds that belong to every version of every group.
const OF_ALL_VERSIONS: &[&str] = &[
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// The type of a kind, or of a list of it.
pub fn find_type(names: &Names, api_version: &str, kind: &str) -> Option<Ref<Type>> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let is_in = |it: &Group, its_version: &str| its_version == version && it.full(&names.api_domain) == group;
    let present = KINDS.iter().chain(TRAVELLING).copied().filter(|it| is_in(&it.group, &it.version));
    let retired = RETIRED.iter().filter(|it| is_in(&it.group, &it.version)).map(|it| it.form);
    let mut of_version = present.chain(retired).peekable();
    // kinds of the group of metadata are registered in the groups that use them
    of_version.peek().filter(|it| it.group.stem != "meta")?;
    if OF_ALL_VERSIONS.contains(&kind) {
        return Some(tables::type_named(META, kind).map_or_else(|| bare(kind), Ref::Static));
    }
    let item = kind.strip_suffix("List").filter(|item| !item.is_empty());
    let mut listed = None;
    for it in of_version {
        if it.name == kind {
            return Some(it.root.clone());
        }
        if item.is_some_and(|item| it.name == item) {
            listed = Some(it.root.clone());
        }
    }
    list(kind, &listed?)
}

/// A kind of which only the name is known.
fn bare(kind: &str) -> Ref<Type> {
    Type::new(kind.to_owned(), META, type_meta()).into()
}

fn type_meta() -> Vec<Field> {
    ["kind", "apiVersion"].map(|name| Field::new(name, Shape::Scalar(Scalar::String))).into()
}

/// A list is a kind like others, made of the one that it lists.
fn list(kind: &str, item: &Ref<Type>) -> Option<Ref<Type>> {
    let metadata = Shape::Struct(Ref::Static(tables::type_named(META, "ListMeta")?));
    let items = ListShape { item: Shape::Struct(item.clone()), kind: ListKind::Atomic, default: None };
    let items = Shape::List(items.into());
    let mut fields = type_meta();
    for (number, name, shape) in [(1, "metadata", metadata), (2, "items", items)] {
        fields.push(Field { number, flags: Flags::ALWAYS, ..Field::new(name, shape) });
    }
    Some(Type::new(kind.to_owned(), item.package.clone(), fields).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_every_version_are_found() {
        let is_known = |version, kind| find_type(&Names::default(), version, kind).is_some();
        for (version, kind) in [
            ("v1", "ConfigMap"),
            ("v1", "ConfigMapList"),
            ("v1", "List"),
            ("v1", "Status"),
            ("v1", "PodExecOptions"),
            ("apps/v1", "DeleteOptions"),
            ("apps/v1", "WatchEvent"),
            ("apps/v1beta1", "Deployment"),
            ("extensions/v1beta1", "Deployment"),
            ("autoscaling/v1", "Scale"),
            ("autoscaling/v2beta2", "HorizontalPodAutoscaler"),
            ("policy/v1", "Eviction"),
        ] {
            assert!(is_known(version, kind), "{version} {kind}");
        }
        for (version, kind) in [
            ("v9", "ConfigMap"),
            ("v9", "DeleteOptions"),
            ("apps/v1", "Status"),
            ("v1", "configmap"),
            ("meta.k8s.io/v1", "Status"),
            ("v1", "Scale"),
        ] {
            assert!(!is_known(version, kind), "{version} {kind}");
        }
    }
}
