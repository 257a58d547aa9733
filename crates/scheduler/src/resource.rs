//! Resource vectors: what a node offers, and what pods request of it.
//!
//! Arithmetic saturates: quantities come from users.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use apimachinery::resource_list::{HUGE_PAGES, is_native};
use names::labels::NATIVE_RESOURCE_PREFIX;
use schema::format;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
pub const PODS: &str = "pods";

/// The CPU that scores assume for a container without a request, in thousandths.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// The memory that scores assume for a container without a request, in bytes.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

const ATTACHABLE_VOLUMES: &str = "attachable-volumes-";
const REQUESTS: &str = "requests.";

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub pods: i64,
    /// Extended resources, huge pages and the like, in the order of their names.
    scalars: Vec<(Arc<str>, i64)>,
}

impl Resource {
    pub fn from_list(list: &BTreeMap<String, Quantity>) -> Self {
        let mut resource = Resource::default();
        resource.add_list(list);
        resource
    }

    pub fn add_list(&mut self, list: &BTreeMap<String, Quantity>) {
        for (name, quantity) in list {
            match &**name {
                CPU => self.milli_cpu = self.milli_cpu.saturating_add(quantity.milli()),
                MEMORY => self.memory = self.memory.saturating_add(quantity.whole()),
                EPHEMERAL_STORAGE => {
                    self.ephemeral_storage = self.ephemeral_storage.saturating_add(quantity.whole());
                }
                PODS => self.pods = self.pods.saturating_add(quantity.whole()),
                name if is_scalar(name) => {
                    let sum = self.scalar_mut(name);
                    *sum = sum.saturating_add(quantity.whole());
                }
                _ => {}
            }
        }
    }

    /// Raises each amount to that of the list.
    pub fn raise_to_list(&mut self, list: &BTreeMap<String, Quantity>) {
        for (name, quantity) in list {
            match &**name {
                CPU => self.milli_cpu = self.milli_cpu.max(quantity.milli()),
                MEMORY => self.memory = self.memory.max(quantity.whole()),
                EPHEMERAL_STORAGE => self.ephemeral_storage = self.ephemeral_storage.max(quantity.whole()),
                PODS => {}
                name if is_scalar(name) => {
                    let most = self.scalar_mut(name);
                    *most = (*most).max(quantity.whole());
                }
                _ => {}
            }
        }
    }

    /// Adds the amounts of a pod, except `pods`.
    pub fn add(&mut self, other: &Resource) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Resource) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Resource, operation: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = operation(self.milli_cpu, other.milli_cpu);
        self.memory = operation(self.memory, other.memory);
        self.ephemeral_storage = operation(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let sum = self.scalar_mut(name);
            *sum = operation(*sum, *amount);
        }
    }

    pub fn scalars(&self) -> &[(Arc<str>, i64)] {
        &self.scalars
    }

    /// The amount of a scalar resource; `None` if the resource is not listed.
    pub fn scalar(&self, name: &str) -> Option<i64> {
        let at = self.scalars.binary_search_by(|(one, _)| (**one).cmp(name)).ok()?;
        self.scalars.get(at).map(|(_, amount)| *amount)
    }

    fn scalar_mut(&mut self, name: &str) -> &mut i64 {
        let at = match self.scalars.binary_search_by(|(one, _)| (**one).cmp(name)) {
            Ok(at) => at,
            Err(at) => {
                self.scalars.insert(at, (Arc::from(name), 0));
                at
            }
        };
        &mut self.scalars[at].1
    }
}

/// Whether a resource name is one that users define: qualified, and not below the well-known domain.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with(REQUESTS)
        && format::qualified_name(&format!("{REQUESTS}{name}")).is_empty()
}

/// Whether the scheduler counts a resource besides CPU, memory, ephemeral storage and pods.
pub fn is_scalar(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
        || name.contains(NATIVE_RESOURCE_PREFIX)
        || name.starts_with(ATTACHABLE_VOLUMES)
        || is_extended(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        entries.iter().map(|(name, text)| ((*name).to_owned(), text.parse().unwrap())).collect()
    }

    #[test]
    fn lists_add_and_raise() {
        let mut resource = Resource::from_list(&list(&[("cpu", "1500m"), ("a.b/gpu", "2"), ("pods", "3")]));
        assert_eq!((resource.milli_cpu, resource.scalar("a.b/gpu"), resource.pods), (1500, Some(2), 3));
        resource.raise_to_list(&list(&[("cpu", "1"), ("a.b/gpu", "5"), ("memory", "1Ki")]));
        assert_eq!((resource.milli_cpu, resource.scalar("a.b/gpu"), resource.memory), (1500, Some(5), 1024));
        let other = resource.clone();
        resource.subtract(&other);
        assert_eq!((resource.milli_cpu, resource.scalar("a.b/gpu")), (0, Some(0)));
        assert_eq!(resource.scalar("a.b/other"), None);
    }

    #[test]
    fn absurd_quantities_saturate() {
        let mut resource = Resource::from_list(&list(&[("cpu", "9E"), ("memory", "9E")]));
        let other = resource.clone();
        resource.add(&other);
        resource.add(&other);
        assert_eq!((resource.milli_cpu, resource.memory), (i64::MAX, i64::MAX));
    }

    #[test]
    fn scalar_names() {
        for name in ["a.b/c", "hugepages-2Mi", "kubernetes.io/x", "attachable-volumes-aws-ebs"] {
            assert!(is_scalar(name), "{name}");
        }
        assert!(!is_scalar("cpu") && !is_scalar("foo") && !is_scalar("requests.a.b/c"));
        assert!(!is_extended("x.kubernetes.io/y") && is_extended("a.b/c"));
    }
}
