//! The ports that this node offers to load balancers.
//!
//! ```text
//! services ─► ports that they want and no process of the machine has ─► annotation of the node
//!                     the loop `service` ─► addresses of nodes that offer the ports ─► status of the service
//! ```
//!
//! Only the machine knows which of its ports are taken, and only one loop of the cluster may decide which service gets
//! them: so the node offers, and the loop assigns. The service proxy serves the addresses that the status has.

mod listening;
mod offer;
mod run;

pub use listening::ListeningPorts;
pub use offer::{Offer, offer};
pub use run::run;
