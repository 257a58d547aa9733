//! Subresources of resources, by name.

use rest::Resource;

/// Subresources that the kubelet serves.
pub const ON_NODE: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];

pub fn on_node(subresource: &str) -> bool {
    ON_NODE.contains(&subresource)
}

/// Whether a resource serves a subresource.
pub fn serves(resource: &Resource, name: &str) -> bool {
    subresource_index(resource, name).is_some_and(|number| number > 0)
}

/// Index of a subresource by name, counted from one; 0 is the resource itself.
pub(crate) fn subresource_index(resource: &Resource, name: &str) -> Option<usize> {
    if name.is_empty() {
        return Some(0);
    }
    let hooks = &resource.hooks;
    let own = hooks.subresources.parts.iter().map(|one| one.name);
    let own = own.chain(hooks.subresources.actions.iter().map(|one| one.name));
    let own = own.chain(hooks.subresources.views.iter().map(|one| &*one.name));
    let own = own.chain(hooks.subresources.virtuals.iter().map(|one| one.name));
    let mut all = own.chain(ON_NODE);
    Some(all.position(|one| one == name)? + 1)
}
