//! Files in memory, for decoders that read a path.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A folder of this process.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared_memory = Path::new("/dev/shm");
    let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    folder
});

/// Writes a file of this content, in place of the last one.
pub fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = FOLDER.join(name);
    std::fs::write(&path, content).expect("a temporary file");
    path
}

/// An empty folder, in place of the last one.
pub fn folder(name: &str) -> PathBuf {
    let path = FOLDER.join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a temporary folder");
    path
}
