//! Descriptors that the agent had from its own parent: locks, sockets, pipes of a shell.
//!
//! The library opens everything so that it is closed by `exec`; what others opened is not. A monitor outlives the agent,
//! and its children are containers: neither may have such a descriptor.

use std::io;
use std::os::fd::RawFd;

/// The first descriptor after the standard streams.
const FIRST: RawFd = 3;

/// Closes all descriptors except the standard streams. Called before this process opens any.
pub fn close_all() -> io::Result<()> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|it| it.parse::<RawFd>().ok());
        found.extend(number.filter(|it| *it >= FIRST));
    }
    for descriptor in found {
        // one of them was the listing, which is closed
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
