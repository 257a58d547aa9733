//! Tests of the whole request path below HTTP, and the stores that they share with other modules' tests.

mod recovered_objects;
mod service_allocation;
pub(crate) mod shared_store;
