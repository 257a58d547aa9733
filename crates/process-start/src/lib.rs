//! Starts a process as a copy of this one, and gives a process the signals and the limit of open files that programs begin
//! with.
//!
//! A copy costs a fifth of what a start of this program does. Only the calling thread is copied, so other threads must not
//! exist: what they hold, such as the allocator's locks, would be held in the copy for ever.

mod open_files;

pub use open_files::{
    initial_open_files, lower_open_files, maximum_open_files, raise_open_files, set_open_files,
};

use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `child` in a copy of this process, which ends with the code that it returns. Returns the process id of the copy.
///
/// The copy has all descriptors of this process, also those that close when a program is executed, and writes no buffered
/// output of it.
#[allow(unsafe_code, reason = "see the decision")]
pub fn fork(child: impl FnOnce() -> u8) -> io::Result<i32> {
    if !has_one_thread()? {
        return Err(io::Error::other("a process with several threads cannot be copied"));
    }
    // SAFETY: there is one thread, and no other one can begin before this call, because only this one could make it. So
    // the copy has the memory of a whole program, and everything may be called in it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: this ends the copy, before it returns to the caller, who goes on in the process that was copied.
            unsafe { libc::_exit(code.into()) }
        }
        pid => Ok(pid),
    }
}

/// Whether the calling thread is the only one of its process.
fn has_one_thread() -> io::Result<bool> {
    // a folder has a link from its parent, one from itself, and one from each folder in it
    Ok(std::fs::metadata("/proc/self/task")?.nlink() == 3)
}

/// Ends this process at a write to a pipe without a reader, as programs expect it. Rust programs ignore that, and what is
/// ignored stays so in another program.
#[allow(unsafe_code, reason = "see the decision")]
pub fn reset_broken_pipe() -> io::Result<()> {
    // SAFETY: the default action takes the place of no handler of this program, which has none for this signal.
    match unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_not_copied() {
        // the harness has one more
        assert!(!has_one_thread().unwrap());
        let refused = fork(|| 0).unwrap_err();
        assert_eq!(refused.to_string(), "a process with several threads cannot be copied");
    }
}
