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
    Late(Arc<Late<T>>),
}

/// A part of a table, or the function that creates it.
pub type Late<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

impl<T> Ref<T> {
    /// A part that is created at the first access.
    pub fn late(make: impl FnOnce() -> T + Send + 'static) -> Self {
        Ref::Late(Arc::new(Late::new(Box::new(make))))
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        match self {
            Ref::Static(it) => Ref::Static(it),
            Ref::Shared(it) => Ref::Shared(it.clone()),
            Ref::Late(it) => Ref::Late(it.clone()),
        }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Ref::Static(it) => it,
            Ref::Shared(it) => it,
            Ref::Late(it) => it,
        }
    }
}

impl<T> From<T> for Ref<T> {
    fn from(it: T) -> Self {
        Ref::Shared(Arc::new(it))
    }
}
