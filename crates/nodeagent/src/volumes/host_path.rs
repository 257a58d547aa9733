//! Host path volumes: the checks and creations of their types.

use crate::filesystem::Filesystem;
use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Checks that a path has the type of its volume, or makes it. Without a type nothing is checked: the runtime makes
/// a directory that is absent.
pub fn prepare(path: &str, kind: &str, filesystem: &dyn Filesystem) -> Result<(), String> {
    let (is_kind, name): (fn(&FileType) -> bool, &str) = match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" | "Directory" => (FileType::is_dir, "a directory"),
        "FileOrCreate" | "File" => (FileType::is_file, "a file"),
        "Socket" => (FileTypeExt::is_socket, "a socket file"),
        "CharDevice" => (FileTypeExt::is_char_device, "a character device"),
        "BlockDevice" => (FileTypeExt::is_block_device, "a block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    let file = Path::new(path);
    let found = match std::fs::metadata(file) {
        Ok(data) => Some(data.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.to_string()),
    };
    let made = match (found, kind) {
        (None, "DirectoryOrCreate") => filesystem.create_dir_all(file, DIRECTORY_MODE),
        (None, "FileOrCreate") => filesystem.create_file(file, FILE_MODE),
        (Some(found), _) if is_kind(&found) => Ok(()),
        _ => return Err(format!("hostPath type check failed: {path} is not {name}")),
    };
    made.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use std::os::unix::net::UnixListener;

    #[test]
    fn types_are_checked_in_upstreams_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("f"), "").unwrap();
        let _socket = UnixListener::bind(path("s")).unwrap();
        let check = |name: &str, kind: &str, expected: &str| {
            let verdict = prepare(&path(name), kind, &LinuxFilesystem).err().unwrap_or_default();
            let expected = match expected {
                "" => String::new(),
                it => format!("hostPath type check failed: {} is not {it}", path(name)),
            };
            assert_eq!(verdict, expected, "{name} {kind}");
        };
        check("none", "", "");
        check("none", "Directory", "a directory");
        check("none", "File", "a file");
        check("none", "Socket", "a socket file");
        check("d", "Directory", "");
        check("d", "DirectoryOrCreate", "");
        check("d", "File", "a file");
        check("d", "FileOrCreate", "a file");
        check("d", "BlockDevice", "a block device");
        check("d", "CharDevice", "a character device");
        check("f", "Directory", "a directory");
        check("f", "File", "");
        check("s", "Socket", "");
        check("new/dir", "DirectoryOrCreate", "");
        check("new/file", "FileOrCreate", "");
        assert!(Path::new(&path("new/dir")).is_dir() && Path::new(&path("new/file")).is_file());
        assert_eq!(prepare("/x", "Bogus", &LinuxFilesystem).unwrap_err(), "Bogus is an invalid volume type");
    }
}
