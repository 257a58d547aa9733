//! Network policies: which pods of this node may talk to which peers.
//!
//! | module | what it is |
//! |---|---|
//! | [`objects`] | policies, pods and namespaces as the rules need them |
//! | [`selector_index`] | the selectors that labels may match |
//! | [`membership`] | the pods that are in the selections of policies |
//! | [`rules`] | the tables: a verdict map from pods to chains, a chain for each policy, sets of peers |
//! | [`family_table`] | the table of one family, with the sets that policies share |
//! | [`state`] | changes of objects to batches |
//! | [`run`] | the informers around them |
//!
//! A pod that a policy selects is isolated in the policy's direction: the chains of its policies accept the allowed
//! packets, and the rest is dropped. Packets of connections that were allowed once pass, as do packets of the node itself to its pods, which
//! probes need. A packet between two pods must pass the egress rules of the one and the ingress rules of the other.

mod family_table;
pub mod membership;
pub mod objects;
pub mod rules;
pub mod run;
pub mod selector_index;
pub mod state;

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;
