//! Discovery, OpenAPI, version, health and metrics endpoints.

pub(crate) mod aggregated;
pub mod debug;
pub mod groups;
pub mod health;
pub mod metrics;
pub mod openapi;
pub mod slis;
pub mod version;
