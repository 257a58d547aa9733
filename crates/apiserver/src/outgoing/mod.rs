//! Destinations of outgoing calls: the network to dial through, and the address of a Service or a webhook; and the
//! parts of a reverse proxy.

pub mod egress;
pub(crate) mod forwarding;
pub(crate) mod service_resolver;
pub(crate) mod webhook_target;
