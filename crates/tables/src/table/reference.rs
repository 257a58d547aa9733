//! References between the parts of tables, and sequences of parts: compiled in or created at run time.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A sequence, compiled in or created at run time.
pub type Many<T> = Cow<'static, [T]>;

/// A reference to a part of a table, compiled in or counted.
#[derive(Debug)]
pub enum Ref<T: 'static> {
    Static(&'static T),
    Shared(Arc<T>),
    /// Created at the first access.
    Lazy(Arc<Lazy<T>>),
}

/// A part of a table, or the function that creates it.
pub type Lazy<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

impl<T> Ref<T> {
    /// A part that is created at the first access.
    pub fn lazy(make: impl FnOnce() -> T + Send + 'static) -> Self {
        Ref::Lazy(Arc::new(Lazy::new(Box::new(make))))
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        match self {
            Ref::Static(it) => Ref::Static(it),
            Ref::Shared(it) => Ref::Shared(it.clone()),
            Ref::Lazy(it) => Ref::Lazy(it.clone()),
        }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Ref::Static(it) => it,
            Ref::Shared(it) => it,
            Ref::Lazy(it) => it,
        }
    }
}

impl<T> From<T> for Ref<T> {
    fn from(it: T) -> Self {
        Ref::Shared(Arc::new(it))
    }
}
