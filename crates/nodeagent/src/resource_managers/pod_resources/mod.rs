//! The pod resources API: what devices, CPUs and memory pods have, for monitoring agents on the node.

mod lister;

pub use lister::{PodResourcesOptions, bind, serve};

#[cfg(test)]
mod tests;
