//! How a new node gets to know a cluster, and the cluster the node: the protocol of upstream's installer.
//!
//! ```text
//! administrator: token create ─► Secret bootstrap-token-ID, ConfigMap cluster-info (signed with each token), roles
//! new node:      cluster-info without trust ─► signature by the token ─► pinned authority ─► TLS ─► certificate request
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | bootstrap tokens and their Secrets |
//! | [`cluster_info`] | the public cluster information: content, signatures, pinned authorities |
//! | [`component_roles`] | the rights of components beside the API server |
//! | `create_missing` | objects that are created if they are absent |
//! | [`objects`] | the objects that a new node needs |

pub mod cluster_info;
pub mod component_roles;
mod create_missing;
pub mod objects;
pub mod token;
