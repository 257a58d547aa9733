//! The built-in tables, compiled from the `.api` files into read-only memory.
//!
//! Every type is a `pub static` named after its package and name (`CORE_V1_POD_SPEC`), every kind one with
//! `K_` in front (`K_CORE_V1_POD`). Always true: whatever is in here has passed the schema language's checks,
//! so numbers are unique, keys exist and references resolve.

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The type with this name, for example `api.core.v1` and `PodSpec`.
pub fn type_named(package: &str, name: &str) -> Option<&'static Type> {
    let index = TYPES.binary_search_by(|it| (&*it.package, &*it.name).cmp(&(package, name))).ok()?;
    Some(TYPES[index])
}

/// The kind with this name in a group and version, whether it is a resource or only travels.
pub fn kind_named(group: &Group, version: &str, name: &str) -> Option<&'static Kind> {
    let all = KINDS.iter().chain(TRAVELLING).copied();
    all.into_iter().find(|it| it.name == name && it.version == version && it.group == *group)
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod golden;
#[cfg(test)]
pub(crate) mod sample_objects;
#[cfg(test)]
mod tests;
