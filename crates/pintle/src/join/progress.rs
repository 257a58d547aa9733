//! Lines about the progress of a command.

use std::io::{Write as _, stdout};

/// Prints a line.
pub fn say(line: &str) {
    // a closed terminal is not an error
    let _ = writeln!(stdout(), "{line}");
    let _ = stdout().flush();
}
