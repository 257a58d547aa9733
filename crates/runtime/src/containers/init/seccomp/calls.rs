//! System calls by name and architecture: the numbers are facts in a table beside this file.

use std::collections::HashMap;

const TABLE: &str = include_str!("calls.txt");
const COLUMNS: usize = 5;
/// Marks the calls of x32, which are otherwise those of x86-64.
const X32_BIT: u32 = 0x4000_0000;
const FIRST_OF_X32: u32 = 512;
/// Calls that x32 has numbers of its own for, one after the other.
const OF_X32: &str = "
    rt_sigaction rt_sigreturn ioctl readv writev recvfrom sendmsg recvmsg execve ptrace rt_sigpending rt_sigtimedwait
    rt_sigqueueinfo sigaltstack timer_create mq_notify kexec_load waitid set_robust_list get_robust_list vmsplice
    move_pages preadv pwritev rt_tgsigqueueinfo recvmmsg sendmmsg process_vm_readv process_vm_writev setsockopt
    getsockopt io_setup io_submit execveat preadv2 pwritev2";

/// A set of system calls that the kernel of a machine may offer to programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    X86,
    X32,
    Aarch64,
    Arm,
    Riscv64,
}

use Architecture::{Aarch64, Arm, Riscv64, X32, X86, X86_64};

impl Architecture {
    /// That of this program, if filters for it can be made.
    pub fn native() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(X86_64),
            "aarch64" => Some(Aarch64),
            "riscv64" => Some(Riscv64),
            _ => None,
        }
    }

    /// All that processes of this architecture's kernel may use; itself is the first.
    pub fn family(self) -> &'static [Architecture] {
        match self {
            X86_64 => &[X86_64, X86, X32],
            Aarch64 => &[Aarch64, Arm],
            Riscv64 => &[Riscv64],
            X86 | X32 | Arm => &[],
        }
    }

    /// The name as of the OCI.
    pub fn name(self) -> &'static str {
        match self {
            X86_64 => "SCMP_ARCH_X86_64",
            X86 => "SCMP_ARCH_X86",
            X32 => "SCMP_ARCH_X32",
            Aarch64 => "SCMP_ARCH_AARCH64",
            Arm => "SCMP_ARCH_ARM",
            Riscv64 => "SCMP_ARCH_RISCV64",
        }
    }

    /// The number by which the kernel names it to a filter (`AUDIT_ARCH_*`). x32 is known by its calls only.
    pub fn audit_number(self) -> u32 {
        match self {
            X86_64 | X32 => 0xc000_003e,
            X86 => 0x4000_0003,
            Aarch64 => 0xc000_00b7,
            Arm => 0x4000_0028,
            Riscv64 => 0xc000_00f3,
        }
    }

    /// Arguments have 64 bits.
    pub fn is_wide(self) -> bool {
        !matches!(self, X86 | Arm)
    }

    /// The lowest number.
    pub fn first_number(self) -> u32 {
        if self == X32 { X32_BIT } else { 0 }
    }

    /// Numbers from here on are not in the order in which calls were invented.
    pub fn special_numbers(self) -> u32 {
        match self {
            X86_64 => X32_BIT,
            X32 => X32_BIT | FIRST_OF_X32,
            Arm => 0xf0000,
            _ => u32::MAX,
        }
    }

    fn column(self) -> usize {
        match self {
            X86_64 | X32 => 0,
            X86 => 1,
            Aarch64 => 2,
            Arm => 3,
            Riscv64 => 4,
        }
    }
}

/// The table.
pub struct Calls(HashMap<&'static str, [Option<u32>; COLUMNS]>);

impl Calls {
    pub fn read() -> Self {
        let row = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let mut numbers = [None; COLUMNS];
            for (number, word) in numbers.iter_mut().zip(words) {
                *number = word.parse().ok();
            }
            Some((name, numbers))
        };
        Calls(TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect())
    }

    /// The number of a call; none if the architecture does not have it.
    pub fn number(&self, name: &str, architecture: Architecture) -> Option<u32> {
        if architecture == X32
            && let Some(position) = OF_X32.split_whitespace().position(|it| it == name)
        {
            return Some(X32_BIT | (FIRST_OF_X32 + position as u32));
        }
        let number = (*self.0.get(name)?)[architecture.column()]?;
        Some(if architecture == X32 { X32_BIT | number } else { number })
    }

    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_a_number_for_each_architecture() {
        let calls = Calls::read();
        let numbers = |name| [X86_64, X86, X32, Aarch64, Arm, Riscv64].map(|it| calls.number(name, it));
        let x32 = |number| Some(X32_BIT | number);
        assert_eq!(numbers("read"), [Some(0), Some(3), x32(0), Some(63), Some(3), Some(63)]);
        assert_eq!(numbers("execve"), [Some(59), Some(11), x32(520), Some(221), Some(11), Some(221)]);
        assert_eq!(numbers("pwritev2"), [Some(328), Some(379), x32(547), Some(287), Some(393), Some(287)]);
        assert_eq!(numbers("socketcall"), [None, Some(102), None, None, None, None]);
        assert_eq!(numbers("no_such_call"), [None; 6]);
        // one number is one call, except for one of ARM that has two names
        for architecture in [X86_64, X86, Aarch64, Arm, Riscv64] {
            let mut all: Vec<_> = calls.names().filter_map(|it| calls.number(it, architecture)).collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count - usize::from(architecture == Arm), "{architecture:?}");
            assert!(count > 300, "{architecture:?}");
        }
    }
}
