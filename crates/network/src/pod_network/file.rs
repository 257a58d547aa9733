//! Files that are replaced at once: a reader finds the former content or the new one, also after the writer was killed.

use std::fs::{DirBuilder, OpenOptions, remove_file, rename};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Makes a directory and those above it.
pub fn directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Replaces a file that all users may read. Two writers of one file must exclude each other.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    install(path, |temporary| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(temporary)?;
        file.write_all(content)?;
        file.sync_all()
    })
}

/// Replaces a symbolic link.
pub fn replace_link(path: &Path, target: &Path) -> io::Result<()> {
    install(path, |temporary| symlink(target, temporary))
}

/// Removes a file; one that is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

fn install(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let temporary = temporary_path(path)?;
    // a writer that was killed may have left it
    remove(&temporary)?;
    make(&temporary).and_then(|()| rename(&temporary, path)).inspect_err(|_| {
        let _ = remove_file(&temporary);
    })
}

/// Container runtimes take no file with this ending for a configuration.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(path.with_file_name(hidden))
}
