//! The CNI plugin of this program: a container runtime calls it by the name of a link in its folder of plugins, and the
//! embedded runtime calls it in its own process.

use crate::host;
use network::pod_network::cni::{self, Answer};
use runtime::containers::cni::{BuiltInPlugin, PluginOutput};
use std::io::{self, Read, Write, stderr, stdin, stdout};
use std::process::ExitCode;

/// The plugin for the embedded runtime.
pub const BUILT_IN: BuiltInPlugin = BuiltInPlugin {
    kind: cni::PLUGIN,
    call: |call| {
        let Answer { text, is_success } = answer(cni::PLUGIN, |name| call.variable(name), &call.input)?;
        Ok(PluginOutput { is_success, stdout: text.into(), stderr: Vec::new() })
    },
};

/// The name of the plugin, if the program was called by one.
pub fn called() -> Option<String> {
    host::program_name().filter(|name| cni::is_plugin(name))
}

/// Answers one call. It must be quick: a pod waits for it.
fn answer(program: &str, variable: impl Fn(&str) -> Option<String>, input: &[u8]) -> io::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    Ok(runtime.block_on(cni::run(program, variable, input)))
}

/// Answers the call that this process is for.
pub fn run(program: &str) -> ExitCode {
    let mut input = Vec::new();
    let read = stdin().read_to_end(&mut input);
    let answer = match read.and_then(|_| answer(program, |name| std::env::var(name).ok(), &input)) {
        Ok(answer) => answer,
        Err(why) => {
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
