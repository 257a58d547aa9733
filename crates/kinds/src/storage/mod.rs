//! Behaviour of the kinds of the group `storage`.

pub mod csi;
pub mod storageclass;
pub mod volumeattachment;
