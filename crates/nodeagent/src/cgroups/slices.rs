//! The slices of systemd, which makes the cgroups of its driver.

use super::limits::CgroupLimits;
use std::io;

/// Starts, changes and stops slices. Implemented over the bus of systemd; a test hands in its own.
pub trait SliceClient: Send + Sync + 'static {
    /// Starts a slice with limits. One that runs is left as it is.
    fn start(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()>;
    /// Changes the limits of a slice.
    fn set(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()>;
    /// Stops a slice. One that does not run is no error.
    fn stop(&self, unit: &str) -> io::Result<()>;
}
