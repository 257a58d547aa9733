//! Tests with a kernel: each runs as root in a network and mount namespace of its own.

use std::process::{Command, Stdio};

const IN_NAMESPACE: &str = "PINTLE_TEST_NAMESPACE";

/// Runs a test in new namespaces. The test's program is started again there with this one test, since a thread cannot
/// enter a namespace without unsafe code. `module` is the caller's `module_path!()`.
pub(crate) fn in_namespace(module: &str, test: &str, body: impl FnOnce()) {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        run("ip", "link set lo up");
        return body();
    }
    let can_unshare =
        Command::new("unshare").args(["--net", "--mount", "true"]).stderr(Stdio::null()).status();
    if !can_unshare.is_ok_and(|status| status.success()) {
        println!("SKIPPED {test}: network namespaces need root and the program unshare");
        return;
    }
    let module = module.split_once("::").map_or(module, |(_, rest)| rest);
    let output = Command::new("unshare")
        .args(["--net", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture", "--test-threads=1"])
        .env(IN_NAMESPACE, "1")
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "the test {module}::{test} was not found:\n{text}");
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The ruleset as the program `nft` shows it, if it is there.
pub(crate) fn nft_ruleset() -> Option<String> {
    let output = Command::new("nft").args(["list", "ruleset"]).output().ok()?;
    assert!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
