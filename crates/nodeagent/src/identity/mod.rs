//! The certificates of the agent: as a client of the API server, and of its HTTP API.
//!
//! | module | what it is |
//! |---|---|
//! | [`certificate`] | a certificate with its key, and what it says |
//! | [`certificate_store`] | the files of certificates, laid out as upstream's agent does |
//! | [`signing_request`] | requests a certificate from the API server, and waits for it |
//! | [`rotation`], [`rotation_state`], [`certificate_metrics`] | keeps a certificate current |
//! | [`bootstrap`] | the first certificate of a node, and its kubeconfig |
//! | [`serving`] | names and addresses in the certificate of the HTTP API |

pub mod bootstrap;
pub mod certificate;
pub mod certificate_metrics;
pub mod certificate_store;
pub mod rotation;
pub mod rotation_state;
pub mod serving;
pub mod signing_request;
#[cfg(test)]
mod testing;

pub use certificate::PemPair;
pub use certificate_store::CertificateStore;
pub use rotation::{CertificateRotation, RotationOptions};
pub use rotation_state::RotationState;
pub use signing_request::{CertificateTemplate, KeySource, Purpose};
