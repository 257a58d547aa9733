//! A binding sent by itself: the same as one sent to its pod.

use crate::core::pod;
use rest::hooks::{ActionTarget, CreateHooks, Hooks};

pub fn hooks() -> Hooks {
    let acts_on = ActionTarget { plural: "pods", action: "binding", check: pod::check_binding };
    Hooks { create: CreateHooks { acts_on: Some(acts_on), ..CreateHooks::default() }, ..Hooks::default() }
}
