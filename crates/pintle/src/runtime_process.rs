//! This program as a process of the embedded runtime: the monitor of a pod, or the first process of a container.

use crate::world;
use runtime::containers::{INIT_COMMAND, MONITOR_COMMAND, init, monitor};
use std::process::ExitCode;

/// The role of a process that the embedded runtime started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Monitor,
    ContainerProcess,
}

/// The role, if the program was called by its runtime.
pub fn called() -> Option<Role> {
    let word = std::env::args_os().nth(1)?;
    match word.to_str()? {
        INIT_COMMAND => Some(Role::ContainerProcess),
        MONITOR_COMMAND => Some(Role::Monitor),
        _ => None,
    }
}

pub fn run(role: Role) -> ExitCode {
    match role {
        Role::ContainerProcess => init::run().into(),
        Role::Monitor => match world::real() {
            Ok(world) => monitor::run(&world).into(),
            Err(_) => ExitCode::FAILURE,
        },
    }
}
