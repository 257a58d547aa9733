//! What the server says about itself: discovery, OpenAPI, version, health, metrics.

pub mod debug;
pub mod discovery;
pub mod health;
pub mod metrics;
pub mod openapi;
pub mod slis;
pub mod version;
mod whole;
