//! Behaviour of the kinds of the group `metrics`.

pub mod podmetrics;
