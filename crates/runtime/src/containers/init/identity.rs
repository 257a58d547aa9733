//! Gives up rights: capabilities, groups and user, in the one order that works.
//!
//! A filter of system calls is loaded by a process with CAP_SYS_ADMIN or with `no_new_privs`, under which set-user-id
//! programs have no effect. So without `no_new_privs` the filter comes before the capabilities are dropped, which is then
//! the only call between the filter and the program; with it, the filter is the last.

use super::failure::during;
use super::seccomp::Filter;
use super::users::ResolvedUser;
use crate::containers::spec::ProcessSpec;
use rustix::fs::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Capabilities beyond this number do not exist yet.
const CAPABILITY_COUNT: u32 = 64;

/// What a process with its user still has to give up.
pub struct Rights {
    /// Those that it had, and those that it keeps.
    own: CapabilitySet,
    kept: CapabilitySet,
    no_new_privs: bool,
    filter: Option<Filter>,
}

/// Becomes the user, and keeps the capabilities.
pub fn assume(process: &ProcessSpec, user: &ResolvedUser) -> Result<(), String> {
    if let Some(profile) = &process.apparmor {
        set_apparmor(profile)?;
    }
    let kept = CapabilitySet::from_bits_retain(process.capabilities);
    for number in 0..CAPABILITY_COUNT {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // the kernel knows no more of them
            Err(rustix::io::Errno::INVAL) => break,
            other => other.map_err(during("drop a capability"))?,
        }
    }
    // the user changes first, because that needs capabilities
    set_keep_capabilities(true).map_err(during("keep capabilities"))?;
    let groups: Vec<_> = user.groups.iter().map(|it| Gid::from_raw(*it)).collect();
    set_thread_groups(&groups).map_err(during("setgroups"))?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_res_gid(gid, gid, gid).map_err(during("setgid"))?;
    set_thread_res_uid(uid, uid, uid).map_err(during("setuid"))?;
    let _ = clear_ambient_capability_set();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

impl Rights {
    pub fn of(process: &ProcessSpec) -> Result<Self, String> {
        // capabilities that this process lacks cannot be given on
        let own = rustix::thread::capabilities(None).map_err(during("read capabilities"))?.permitted;
        Ok(Rights {
            own,
            kept: CapabilitySet::from_bits_retain(process.capabilities) & own,
            no_new_privs: process.no_new_privs,
            filter: Filter::new(&process.seccomp, process.capabilities)?,
        })
    }

    /// Leaves the process with what the program may have.
    pub fn give_up(&self) -> Result<(), String> {
        let load = || self.filter.as_ref().map_or(Ok(()), Filter::load);
        if self.no_new_privs {
            set(self.kept)?;
            set_no_new_privs(true).map_err(during("set no_new_privs"))?;
            return load();
        }
        if self.filter.is_some() {
            // those of another user than root are there, but not in effect
            set(self.own)?;
            load()?;
        }
        set(self.kept)
    }
}

fn set(capabilities: CapabilitySet) -> Result<(), String> {
    let sets = CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(during("set capabilities"))
}

fn set_apparmor(profile: &str) -> Result<(), String> {
    let text = format!("exec {profile}");
    let own = std::fs::write("/proc/self/attr/apparmor/exec", &text);
    own.or_else(|_| std::fs::write("/proc/self/attr/exec", &text))
        .map_err(during(format_args!("apply the AppArmor profile {profile:?}")))
}
