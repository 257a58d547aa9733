//! Behaviour of the kinds of the group `certificates`.

pub mod certificatesigningrequest;
