//! The reference data of upstream that tests compare with: recorded answers, golden objects and reference tables.
//!
//! The data is not part of the repository; it lies beside it, in `../shared`. A test without its data never passes
//! silently. It fails if the data is required; otherwise it prints a line that `cargo test` always shows.
//! `PINTLE_TEST_DATA` is `required` or `optional`; if it is not set, the data is required in CI (`CI=true`).
//!
//! Only tests depend on this crate.

use std::io::Write as _;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "PINTLE_TEST_DATA";

/// The path of a file or folder of the reference data, for example `recorded/tables`. `None` if it is absent and
/// optional: the test then returns.
///
/// # Panics
///
/// If it is absent and required.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(name);
    if path.exists() {
        return Some(path);
    }
    let variable = |name| std::env::var(name).ok();
    let required = is_required(variable(VARIABLE).as_deref(), variable("CI").as_deref());
    assert!(
        !required,
        "the test data {} is absent; {VARIABLE}=optional skips the tests that need it",
        path.display()
    );
    skip(&format!("there is no {}", path.display()));
    None
}

/// Prints that the current test, or the rest of it, is skipped, and why. The line goes around the output capture of
/// the test harness.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // a closed standard error is no reason to fail
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

fn is_required(mode: Option<&str>, ci: Option<&str>) -> bool {
    match mode {
        Some("required") => true,
        Some("optional") => false,
        Some(other) => panic!("{VARIABLE} is required or optional, not {other:?}"),
        None => ci == Some("true"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_required_in_ci_by_default() {
        assert!(is_required(None, Some("true")));
        assert!(!is_required(None, None) && !is_required(None, Some("false")));
        assert!(!is_required(Some("optional"), Some("true")));
        assert!(is_required(Some("required"), None));
    }

    #[test]
    #[should_panic(expected = "not \"yes\"")]
    fn other_values_fail() {
        is_required(Some("yes"), None);
    }
}
