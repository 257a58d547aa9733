//! Simulated nodes: Node objects with leases, whose pods go through the node agent's own workers, beside a runtime
//! without processes.
//!
//! | module | what it is |
//! |---|---|
//! | [`profile`] | the nodes of a cluster and the behaviour of its pods, as a file |
//! | [`behaviour`], [`node_settings`] | how a pod and a node behave: rules of the profile, annotations |
//! | [`fleet`] | all nodes: follows Node objects and pods |
//! | [`node`], [`node_object`] | one node, its object and the status of it |
//! | [`node_creation`], [`node_writer`], [`heartbeats`] | create and write the objects and the leases of all nodes |
//! | [`agent`], [`agent_server`] | the workers of a node that has pods, and its HTTP API in memory |
//! | [`stages`] | stages of kwok, in place of the workers |
//! | [`pods`], [`setup`], [`actions`], [`status_gate`], [`events`] | what the workers get in place of a machine |
//!
//! Invariants: a node is simulated while its object says so; who made the object does not matter. All nodes share one
//! watch of nodes and one of pods. A node without pods is an entry in a map: no task, no timer of its own.

pub mod actions;
pub mod agent;
pub mod agent_server;
pub mod behaviour;
pub mod events;
pub mod fleet;
pub mod heartbeats;
pub mod node;
pub mod node_creation;
pub mod node_object;
pub mod node_settings;
pub mod node_writer;
pub mod pods;
pub mod profile;
pub mod setup;
pub mod stages;
pub mod status_gate;

pub use agent_server::AgentServers;
pub use fleet::{Fleet, FleetOptions};
pub use node::SimulatedNodes;
pub use profile::{NodeShape, Profile};
