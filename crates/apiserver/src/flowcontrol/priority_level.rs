//! A priority level with the limits that its object gives it.

use flowcontrol::limits::Bounds;
use flowcontrol::{Level, Shape};
use http::HeaderValue;
use std::sync::Arc;

/// A priority level.
pub(super) struct PriorityLevel {
    pub name: String,
    /// Its uid, as a response header.
    pub header: HeaderValue,
    pub level: Arc<Level>,
    pub bounds: Bounds,
}

impl PriorityLevel {
    pub fn is_exempt(&self) -> bool {
        self.level.shape() == Shape::Exempt
    }
}
