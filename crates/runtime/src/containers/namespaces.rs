//! Namespaces that a process leaves.

use rustix::thread::UnshareFlags;

/// Leaves namespaces of this process.
#[expect(deprecated, reason = "it is unsound with FILES only, which is never passed")]
pub fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}
