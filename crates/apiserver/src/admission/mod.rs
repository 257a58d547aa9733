//! Built-in checks that writes pass.

mod namespace_lifecycle;
mod quota;

pub use namespace_lifecycle::NamespaceLifecycle;
pub use quota::Quota;
