//! Texts of errors that a new process hands to its monitor.

use std::fmt::Display;

/// For `map_err`: an error text that names the action.
pub fn during<E: Display>(action: impl Display) -> impl FnOnce(E) -> String {
    move |why| format!("{action}: {why}")
}
