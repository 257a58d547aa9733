//! Stored objects: the store with its caches, and resources in their versions.

pub mod cached_store;
pub mod read_conversion;
pub mod resource;
pub mod stored_version;

pub use cached_store::{Storage, Unreadable, prefix};
