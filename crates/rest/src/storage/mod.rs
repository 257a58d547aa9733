//! Stored objects: the store with its caches, and the resources that serve them in their versions.
//!
//! A [`resource::Resource`] is a served version of a kind; the versions of a kind share a [`collection::Collection`].
//! [`registry::ResourceRegistry`] has all of them, and reads objects without the rules of a verb.

pub mod cached_store;
pub mod collection;
pub mod freshness;
pub mod read_conversion;
mod record_parts;
mod recovered;
pub mod registry;
pub mod resource;
pub mod stored_version;
mod unclaimed;

pub use cached_store::{Storage, prefix};
pub use recovered::UnreadableObject;
pub use stored_version::{InspectedValue, ValueInspector};
