//! Network policies: which pods of this node may talk to which peers.
//!
//! | module | what it is |
//! |---|---|
//! | [`objects`] | policies, pods and namespaces as the rules need them |
//! | [`resolve`] | the addresses and ports that a policy allows to a pod |
//! | [`rules`] | the tables: a verdict map from pods to chains, a chain for each combination of policies |
//! | [`run`] | the informers around them |
//!
//! A pod that a policy selects is isolated in the policy's direction: its chain lets the allowed packets return and drops
//! the rest. Packets of connections that were allowed once pass, as do packets of the node itself to its pods, which
//! probes need. A packet between two pods must pass the egress rules of the one and the ingress rules of the other.

pub mod objects;
pub mod resolve;
pub mod rules;
pub mod run;

#[cfg(test)]
mod tests;
