//! Behaviour of the kinds of the group `apiserverinternal`.

pub mod storageversion;
