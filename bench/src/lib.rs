//! What the programs of the ruler share.

pub mod in_process;
pub mod pods;
pub mod process;
pub mod target;
pub mod timer;

/// Like `println!`, but ignores a closed terminal.
#[macro_export]
macro_rules! print_line {
    ($($arguments:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($arguments)*);
    }};
}
