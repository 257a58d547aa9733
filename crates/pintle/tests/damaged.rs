//! A data directory whose store is damaged: the refusal to start is one line that names the file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: usize = 4096;

/// Starts a server, and gives it with the line that it says first; none where it does not start.
fn start(directory: &Path) -> (Child, Option<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--components", "apiserver", "--secure-port", "0", "--data-dir"]).arg(directory);
    command.env("RUST_BACKTRACE", "full").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().map(Result::unwrap);
    (child, line)
}

#[test]
fn the_refusal_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, ready) = start(directory.path());
    assert!(ready.is_some_and(|line| line.contains("is ready on https://")));
    // a file that was not closed is verified before it is read, and nothing in it misleads
    let stopped = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success() && child.wait().unwrap().success());
    let file = directory.path().join("store/store.redb");
    let sound = std::fs::read(&file).unwrap();
    let mut refused = 0;
    for (at, page) in sound.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        if refused == 20 {
            break;
        }
        let mut harmed = sound.clone();
        // its kind and the count of its entries stay, so that it is read, and the rest of it misleads
        harmed[at * PAGE + 8..at * PAGE + page.len()].fill(0xff);
        std::fs::write(&file, harmed).unwrap();
        let (mut child, ready) = start(directory.path());
        let _ = child.kill();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        if ready.is_some() {
            continue;
        }
        refused += 1;
        assert_eq!(text.lines().count(), 1, "page {at}: {text}");
        assert!(text.starts_with("pintle: ") && text.contains("store.redb"), "page {at}: {text}");
    }
    assert!(refused > 10, "{refused}: the test tests nothing");
}
