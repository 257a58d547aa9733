//! Gives up rights: capabilities, groups and user, in the one order that works.

use super::failure::during;
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
    // capabilities that this process lacks cannot be given on
    let own = rustix::thread::capabilities(None).map_err(during("read capabilities"))?.permitted;
    let sets =
        CapabilitySets { effective: kept & own, permitted: kept & own, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(during("set capabilities"))?;
    let _ = clear_ambient_capability_set();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if process.no_new_privs {
        set_no_new_privs(true).map_err(during("set no_new_privs"))?;
    }
    Ok(())
}

fn set_apparmor(profile: &str) -> Result<(), String> {
    let text = format!("exec {profile}");
    let own = std::fs::write("/proc/self/attr/apparmor/exec", &text);
    own.or_else(|_| std::fs::write("/proc/self/attr/exec", &text))
        .map_err(during(format_args!("apply the AppArmor profile {profile:?}")))
}
