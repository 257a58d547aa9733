//! Settings of the kernel that nodes rely on: corrected at the start, or with `protectKernelDefaults` only checked.

use std::path::Path;

/// Files below `/proc/sys` and their values.
const SETTINGS: &[(&str, i64)] = &[
    // memory is given out freely, and processes are killed if it runs out
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    // a machine that has failed starts again
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    // each container has a keyring
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// Checks the settings below a directory. A setting with another value is corrected if possible, or with `is_protected` an
/// error.
pub fn apply(proc_sys: &Path, is_protected: bool) -> Result<(), String> {
    let mut errors = Vec::new();
    for (name, expected) in SETTINGS {
        let file = proc_sys.join(name);
        let actual = match std::fs::read_to_string(&file) {
            Ok(text) => text.trim().to_owned(),
            Err(why) if is_protected => {
                errors.push(format!("{}: {why}", file.display()));
                continue;
            }
            Err(why) => {
                tracing::warn!(setting = name, %why, "a setting of the kernel is unknown");
                continue;
            }
        };
        if actual == expected.to_string() {
            continue;
        }
        if is_protected {
            errors.push(format!(
                "invalid kernel flag: {name}, expected value: {expected}, actual value: {actual}"
            ));
        } else if let Err(why) = std::fs::write(&file, expected.to_string()) {
            tracing::warn!(setting = name, actual, expected, %why, "a setting of the kernel was not corrected");
        }
    }
    match &*errors {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_corrected_or_protected() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, expected) in SETTINGS {
            std::fs::create_dir_all(file(name).parent().unwrap()).unwrap();
            std::fs::write(file(name), format!("{expected}\n")).unwrap();
        }
        apply(folder.path(), true).unwrap();
        std::fs::write(file("kernel/panic"), "0\n").unwrap();
        let flag = "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0";
        assert_eq!(apply(folder.path(), true).unwrap_err(), flag);
        apply(folder.path(), false).unwrap();
        assert_eq!(std::fs::read_to_string(file("kernel/panic")).unwrap(), "10");
        apply(folder.path(), true).unwrap();
        std::fs::write(file("kernel/panic"), "0").unwrap();
        std::fs::write(file("vm/panic_on_oom"), "1").unwrap();
        let both = "[invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: 1, invalid";
        assert!(apply(folder.path(), true).unwrap_err().starts_with(both));
    }
}
