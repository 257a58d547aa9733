//! Loads programs into the kernel: filters of system calls, and the programs of control groups that decide about devices.
//!
//! What the programs say is the caller's: this crate makes the system calls only, which no crate of the workspace's
//! dependencies offers. The kernel verifies each program before it takes it, and copies it, so a wrong one is an error and
//! harms nothing.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The most instructions of a filter.
pub const FILTER_LIMIT: usize = 4096;

/// An instruction of a filter of system calls: classic BPF, in the form of the kernel (`struct sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInstruction {
    pub code: u16,
    pub jump_if_true: u8,
    pub jump_if_false: u8,
    pub operand: u32,
}

/// The filter as the kernel reads it (`struct sock_fprog`).
#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const FilterInstruction,
}

/// Puts the calling thread under a filter of system calls. The thread has CAP_SYS_ADMIN or `no_new_privs`.
#[allow(unsafe_code, reason = "see the decision")]
pub fn load_filter(instructions: &[FilterInstruction]) -> io::Result<()> {
    let length = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = FilterProgram { length, instructions: instructions.as_ptr() };
    let flags = 0;
    // SAFETY: the kernel reads the program, whose length is that of the slice, and writes nothing.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
/// Programs of the groups above and of other owners stay in force.
const ALLOW_MULTI: u32 = 2;
/// Of the program, which calls no function of the kernel.
const LICENSE: &CStr = c"Apache-2.0";

/// The beginning of `union bpf_attr` for the load of a program; the rest is zero.
#[repr(C)]
struct LoadRequest {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct AttachRequest {
    target: RawFd,
    program: RawFd,
    kind: u32,
    flags: u32,
}

/// Loads a program that decides about the use of devices: instructions of eBPF, each in its 8 bytes. The program is there
/// as long as its descriptor, or a group that it is attached to.
#[allow(unsafe_code, reason = "see the decision")]
pub fn load_device_program(instructions: &[u64]) -> io::Result<OwnedFd> {
    let request = LoadRequest {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the request has the form of this command; the kernel reads as many instructions as the slice has, and the
    // licence up to its zero. Both live until the call returns.
    let program = unsafe { bpf(PROG_LOAD, &request) }?;
    // SAFETY: the kernel has made this descriptor, which is close-on-exec, for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// Attaches a program to a control group of version 2, whose directory is open. It cannot be detached by its processes,
/// and ends with the group.
#[allow(unsafe_code, reason = "see the decision")]
pub fn attach_device_program(cgroup: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let request = AttachRequest {
        target: cgroup.as_fd().as_raw_fd(),
        program: program.as_fd().as_raw_fd(),
        kind: CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: the request has the form of this command, and no addresses.
    unsafe { bpf(PROG_ATTACH, &request) }.map(drop)
}

/// # Safety
///
/// The request has the form of the command, and its addresses are those of memory that is as long as it says.
#[allow(unsafe_code, reason = "see the decision")]
unsafe fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<RawFd> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads `size` bytes of the request; for the rest see above.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *request, size) };
    match RawFd::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `return VALUE` of a filter.
    fn answer(value: u32) -> FilterInstruction {
        FilterInstruction { code: 0x06, jump_if_true: 0, jump_if_false: 0, operand: value }
    }

    #[test]
    fn programs_that_are_wrong_are_refused() {
        // a filter without an end, one without instructions, and one that is too long
        let load = FilterInstruction { code: 0x20, ..answer(0) };
        for program in [vec![load], vec![], vec![answer(0); 70_000]] {
            assert!(load_filter(&program).is_err());
        }
        // an instruction that does not exist
        assert!(load_device_program(&[u64::MAX]).is_err());
        assert!(load_device_program(&[]).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(attach_device_program(&null, &null).is_err());
    }
}
