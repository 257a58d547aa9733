//! A binding sent by itself: the same as one sent to its pod.

use rest::hooks::{ActsOn, Hooks};

pub fn hooks() -> Hooks {
    Hooks { acts_on: Some(ActsOn { plural: "pods", action: "binding" }), ..Hooks::default() }
}
