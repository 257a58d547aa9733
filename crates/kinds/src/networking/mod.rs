//! Behaviour of the kinds of the group `networking`.

pub mod clustercidr;
pub mod ingress;
pub mod networkpolicy;
