//! Interned values: equal ones share their memory.
//!
//! Unused values are dropped when the number of values has doubled, so the work per value stays constant.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// The number of values below which unused ones stay.
const MIN_LIMIT: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    limit: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Interner { values: HashSet::new(), limit: MIN_LIMIT }
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    /// The interned value that equals this one.
    pub fn intern<'v>(&mut self, value: &'v T) -> Arc<T>
    where
        Arc<T>: From<&'v T>,
    {
        self.intern_or(value, || Arc::from(value))
    }

    /// The interned value that equals this one, or this one from now on.
    pub fn intern_arc(&mut self, value: &Arc<T>) -> Arc<T> {
        self.intern_or(value, || Arc::clone(value))
    }

    fn intern_or(&mut self, value: &T, create: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.limit {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.limit = (self.values.len() * 2).max(MIN_LIMIT);
        }
        let new = create();
        self.values.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_memory_and_unused_ones_are_dropped() {
        let mut names = Interner::<str>::default();
        let first = names.intern("a");
        for nth in 0..10 * MIN_LIMIT {
            names.intern(&nth.to_string());
        }
        assert!(Arc::ptr_eq(&first, &names.intern("a")));
        assert!(names.values.len() <= MIN_LIMIT);
        let (one, two) = (Arc::new(vec![1]), Arc::new(vec![1]));
        let mut lists = Interner::default();
        assert!(Arc::ptr_eq(&lists.intern_arc(&one), &lists.intern_arc(&two)));
    }
}
