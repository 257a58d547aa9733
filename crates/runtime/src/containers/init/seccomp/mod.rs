//! System call filters: the default one, and profiles in the form of the OCI.
//!
//! A filter is one program. It is compiled before the process gives up its rights, and loaded as the last step but one; what
//! follows are calls that a profile for runc allows, because runc makes more of them.

mod calls;
mod default_profile;
mod profile;
mod program;

use super::failure::during;
use crate::containers::spec::Seccomp;
use calls::Architecture;
use default_profile::default_profile;
use kernel_programs::FilterInstruction;
use profile::Profile;
use serde_json::Value;

/// A filter that is ready to be loaded.
pub struct Filter(Vec<FilterInstruction>);

impl Filter {
    /// The filter of a process; none for a process without one.
    pub fn new(seccomp: &Seccomp, capabilities: u64) -> Result<Option<Self>, String> {
        let profile = match seccomp {
            Seccomp::Unconfined => return Ok(None),
            Seccomp::Default => default_profile(capabilities),
            Seccomp::Profile(text) => Profile::parse(text)?,
        };
        let native = Architecture::native()
            .ok_or_else(|| format!("there are no system call filters for {}", std::env::consts::ARCH))?;
        profile.compile(native).map(|it| Some(Filter(it)))
    }

    /// Puts this process under the filter.
    pub fn load(&self) -> Result<(), String> {
        kernel_programs::load_filter(&self.0).map_err(during("load a system call filter"))
    }
}

/// Whether a profile can be used.
pub fn check_profile(text: &str) -> Result<(), String> {
    Filter::new(&Seccomp::Profile(text.to_owned()), 0).map(drop)
}

/// The filter of a process as `linux.seccomp` of the OCI; none for a process without one.
pub fn oci_profile(seccomp: &Seccomp, capabilities: u64) -> Result<Option<Value>, String> {
    match seccomp {
        Seccomp::Unconfined => Ok(None),
        Seccomp::Profile(text) => {
            serde_json::from_str(text).map(Some).map_err(during("read the seccomp profile"))
        }
        Seccomp::Default => serde_json::to_value(default_profile(capabilities))
            .map(Some)
            .map_err(during("write the seccomp profile")),
    }
}

#[cfg(test)]
mod tests {
    use super::calls::Calls;
    use super::default_profile::SYS_ADMIN;
    use super::program::{Action, interpret};
    use super::*;

    const NAMESPACES: u64 = 0x1000_0000;

    #[test]
    fn the_default_filter_is_that_of_the_capabilities_in_every_architecture() {
        let calls = Calls::read();
        let errno = |number| Action::Errno(number).value();
        let allow = Action::Allow.value();
        for native in [Architecture::X86_64, Architecture::Aarch64, Architecture::Riscv64] {
            let profile = |capabilities| {
                let mut profile = default_profile(capabilities);
                profile.architectures = Some(native.family().iter().map(|it| it.name().to_owned()).collect());
                profile.compile(native).unwrap()
            };
            let (plain, admin) = (profile(0), profile(SYS_ADMIN));
            assert!(plain.len() < 1500, "{}", plain.len());
            for architecture in native.family() {
                let call = |program: &[FilterInstruction], name: &str, argument: u64| {
                    let number = calls.number(name, *architecture).unwrap();
                    interpret(program, architecture.audit_number(), number, [argument; 6])
                };
                for name in ["read", "execve", "socket", "geteuid", "futex_requeue"] {
                    assert_eq!([call(&plain, name, 0), call(&admin, name, 0)], [allow; 2], "{name}");
                }
                for name in ["mount", "unshare", "setns", "bpf"] {
                    assert_eq!([call(&plain, name, 0), call(&admin, name, 0)], [errno(1), allow], "{name}");
                }
                for name in ["kexec_load", "add_key", "reboot", "init_module"] {
                    assert_eq!([call(&plain, name, 0), call(&admin, name, 0)], [errno(1); 2], "{name}");
                }
                assert_eq!([call(&plain, "clone", NAMESPACES), call(&plain, "clone", 17)], [errno(1), allow]);
                assert_eq!([call(&plain, "clone3", 0), call(&admin, "clone3", 0)], [errno(38), allow]);
                assert_eq!(call(&plain, "mseal", 0), errno(38));
            }
        }
    }

    #[test]
    fn the_names_of_the_default_profile_exist() {
        let calls = Calls::read();
        let all = [Architecture::X86_64, Architecture::Aarch64, Architecture::Riscv64];
        let all: Vec<_> = all.iter().flat_map(|it| it.family()).copied().collect();
        let profile = default_profile(u64::MAX);
        for name in profile.syscalls.iter().flatten().flat_map(|it| &it.names) {
            assert!(all.iter().any(|it| calls.number(name, *it).is_some()), "{name}");
        }
        assert!(Filter::new(&Seccomp::Unconfined, 0).unwrap().is_none());
    }
}
