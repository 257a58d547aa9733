//! Behaviour of the kinds of the group `autoscaling`.

pub mod horizontalpodautoscaler;
pub(crate) mod scale;
