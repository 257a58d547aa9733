//! This program as a CNI plugin: a container runtime calls it by the name of a link in its folder of plugins.

use crate::host;
use network::pod_network::cni;
use std::io::{Read, Write, stderr, stdin, stdout};
use std::process::ExitCode;

/// The name of the plugin, if the program was called by one.
pub fn called() -> Option<String> {
    host::program_name().filter(|name| cni::is_plugin(name))
}

/// Answers one call. It must be quick: a pod waits for it.
pub fn run(program: &str) -> ExitCode {
    let mut input = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let answer = match (stdin().read_to_end(&mut input), runtime) {
        (Ok(_), Ok(runtime)) => runtime.block_on(cni::run(program, |name| std::env::var(name).ok(), &input)),
        (Err(why), _) | (_, Err(why)) => {
            let _ = writeln!(stderr(), "pintle: cannot answer the call: {why}");
            return ExitCode::FAILURE;
        }
    };
    let written = stdout().write_all(answer.text.as_bytes()).and_then(|()| stdout().flush());
    match written.is_ok() && answer.is_success {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
