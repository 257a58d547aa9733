//! Programs and servers of tests.

pub mod https_server;

use std::os::unix::fs::symlink;
use std::path::Path;

/// Makes a program that is a shell script.
///
/// A file cannot be executed while a process has it open for writing, and a process that another test starts meanwhile has
/// it open for a moment. So the program is a link to one that no test writes, which reads the script.
pub fn write_program(path: &Path, script: &str) {
    let mut text = path.as_os_str().to_owned();
    text.push(".sh");
    std::fs::write(text, script).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing/run-script");
    match symlink(program, path) {
        Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => panic!("{why}"),
        _ => {}
    }
}
