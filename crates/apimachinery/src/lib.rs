//! Semantics of API objects that server and clients share.
//!
//! | module | what it is |
//! |---|---|
//! | [`labels`] | label selectors: parsing and matching |
//! | [`net`] | IP networks and address families |
//! | [`quota`], [`resource_list`] | what objects cost a namespace, and what its quotas allow |
//! | [`qos`] | the quality-of-service class of a pod |
//! | [`volumes`] | the storage class of claims and volumes |
//! | [`unstructured`] | readers of fields in object trees |
//!
//! Everything here is pure: no requests, no storage, no clock.

pub mod labels;
pub mod net;
pub mod qos;
pub mod quota;
pub mod resource_list;
#[cfg(test)]
mod testing;
pub mod unstructured;
pub mod volumes;
