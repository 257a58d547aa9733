//! Configurations and results of CNI plugins: used or refused.

#![no_main]

use fuzz::duplex::run;
use fuzz::temporary::folder;
use libfuzzer_sys::fuzz_target;
use network::pod_network::cni;
use runtime::containers::cni::{BuiltInPlugin, CniFolders, PluginOutput, SandboxNetwork};
use std::io;
use std::sync::Mutex;

/// What the plugin answers.
static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match choice % 4 {
        0 => run(plugin(first, second)),
        is_failure => run(runtime(first, second, is_failure == 1)),
    }
});

/// A call of the plugin, which ends where it opens the namespace, since there is none.
async fn plugin(configuration: &[u8], arguments: &[u8]) {
    for command in ["ADD", "CHECK", "VERSION"] {
        let arguments = String::from_utf8_lossy(arguments);
        let variable = |name: &str| {
            let value = match name {
                "CNI_COMMAND" => command,
                "CNI_CONTAINERID" => "a",
                "CNI_IFNAME" => "eth0",
                "CNI_NETNS" => "/nonexistent",
                "CNI_ARGS" => &arguments,
                _ => return None,
            };
            Some(value.to_owned())
        };
        let answer = cni::run(cni::PLUGIN, variable, configuration).await;
        assert!(command == "VERSION" || !answer.is_success, "{}", answer.text);
        let text: serde_json::Value = serde_json::from_str(&answer.text).expect("JSON");
        assert!(text.is_object());
    }
}

/// A sandbox that a configuration connects, whose plugin answers this.
async fn runtime(configuration: &[u8], answer: &[u8], is_failure: bool) {
    let configurations = folder("net.d");
    std::fs::write(configurations.join("a.conflist"), configuration).expect("a file");
    *ANSWER.lock().expect("no panic") = answer.to_vec();
    let built_in = match is_failure {
        true => BuiltInPlugin { kind: "a", call: |_| output(false) },
        false => BuiltInPlugin { kind: "a", call: |_| output(true) },
    };
    let folders = CniFolders { configurations, plugins: Vec::new(), built_in: Some(built_in) };
    let sandbox = SandboxNetwork { id: "s".to_owned(), ..SandboxNetwork::default() };
    let Ok(mut record) = folders.prepare() else { return };
    let _ = folders.add(&sandbox, &mut record).await;
    let _ = folders.remove(&sandbox, &record).await;
}

fn output(is_success: bool) -> io::Result<PluginOutput> {
    let stdout = ANSWER.lock().expect("no panic").clone();
    Ok(PluginOutput { is_success, stdout, stderr: Vec::new() })
}
