//! Load balancers of one machine: a service of type LoadBalancer gets the addresses of the node if its ports are free.
//!
//! The address is written to the status of the service, and the service proxy serves it. A port is free if no other
//! service has it at these addresses and no process of the machine listens on it. Services with a class are left to
//! others, as are those that have the address of another load balancer.

mod assign;
mod listening;
mod run;

pub use assign::{Assignments, assign};
pub use listening::ListeningPorts;
pub use run::run;
