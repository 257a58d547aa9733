//! Built-in checks that writes pass.

mod creation;
mod escalation;
mod namespace_lifecycle;
mod quota;
mod signers;

pub use creation::Creation;
pub use escalation::Escalation;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use quota::Quota;
pub use signers::Signers;
