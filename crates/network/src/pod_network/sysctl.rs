//! Settings of the kernel below `/proc/sys/net`. They are those of the calling thread's network namespace.

use std::io;
use std::path::{Path, PathBuf};

/// The file of a setting; the parts of its name may contain dots, as names of links do.
fn path(parts: &[&str]) -> PathBuf {
    parts.iter().fold(PathBuf::from("/proc/sys/net"), |path, part| path.join(part))
}

pub fn read(parts: &[&str]) -> io::Result<String> {
    Ok(std::fs::read_to_string(path(parts))?.trim().to_owned())
}

/// Writes a setting unless it has the value: where it has, `/proc/sys` may be read-only.
pub fn write(parts: &[&str], value: &str) -> io::Result<()> {
    if read(parts).is_ok_and(|current| current == value) {
        return Ok(());
    }
    std::fs::write(path(parts), value).map_err(|why| {
        io::Error::new(why.kind(), format!("cannot set net.{} to {value}: {why}", parts.join(".")))
    })
}

/// Whether the kernel has IPv6.
pub fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// The names below a folder of settings, such as the links of `ipv6/conf`.
pub fn names(parts: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(path(parts)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
