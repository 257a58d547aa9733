//! A process with one thread is copied.

use std::io::{Read, Write};
use std::process::Command;

/// Waits for a child, and returns its exit code.
fn exit_code(pid: i32) -> i32 {
    let mut status = 0;
    #[allow(unsafe_code, reason = "a test waits for its child")]
    // SAFETY: the kernel writes the status.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(ended, pid);
    assert!(libc::WIFEXITED(status), "{status}");
    libc::WEXITSTATUS(status)
}

fn main() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let mut text = vec!["of the parent"];
    let pid = process_start::fork(|| {
        text.push("and the copy");
        writer.write_all(text.join(" ").as_bytes()).unwrap();
        7
    });
    assert_eq!(exit_code(pid.unwrap()), 7);
    drop(writer);
    let mut written = String::new();
    reader.read_to_string(&mut written).unwrap();
    assert_eq!((written.as_str(), text.len()), ("of the parent and the copy", 1));

    std::panic::set_hook(Box::new(|_| {}));
    let pid = process_start::fork(|| panic!("in the copy"));
    assert_eq!(exit_code(pid.unwrap()), 101);
    let _ = std::panic::take_hook();

    // a program that is executed has the signals of a new one
    let pid = process_start::fork(|| {
        process_start::reset_broken_pipe().unwrap();
        let ignored = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = ignored.lines().find_map(|it| it.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
        u8::from(u64::from_str_radix(&ignored, 16).unwrap() & (1 << (libc::SIGPIPE - 1)) != 0)
    });
    assert_eq!(exit_code(pid.unwrap()), 0);
    assert!(Command::new("true").status().unwrap().success());
    println!("test result: ok. 1 passed; 0 failed; 0 ignored");
}
