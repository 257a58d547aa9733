//! Built-in checks that writes pass.

mod namespace_lifecycle;

pub use namespace_lifecycle::NamespaceLifecycle;
