//! Answers of a container runtime: the client reads or refuses them.

#![no_main]

#[path = "../servers/grpc_server.rs"]
mod grpc_server;

use bytes::Bytes;
use fuzz::duplex::run;
use grpc_server::{Answers, message};
use libfuzzer_sys::fuzz_target;
use nodeagent::runtime::cri::CriRuntime;
use nodeagent::runtime::{ContainerConfig, LinuxResources, RegistryAuth, Runtime, SandboxConfig};
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::time::Duration;

thread_local! {
    static RUNTIME: ManuallyDrop<(CriRuntime, Answers)> = run(async {
        let (socket, answers) = (fuzz::temporary::FOLDER.join("cri.sock"), Answers::default());
        grpc_server::serve(&socket, &answers);
        let endpoint = format!("unix://{}", socket.display());
        let limit = Some(Duration::from_secs(10));
        ManuallyDrop::new((CriRuntime::new(&endpoint, None, limit, None).expect("an endpoint"), answers))
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    // most answers have the head of a message
    let body = if choice & 0x80 == 0 { message(rest) } else { Bytes::copy_from_slice(rest) };
    RUNTIME.with(|it| {
        let (runtime, answers) = &**it;
        answers.set([vec![body]]);
        run(call(runtime, choice & 0x7f));
    });
});

async fn call(runtime: &CriRuntime, choice: usize) {
    match choice % 16 {
        0 => shown(runtime.version().await),
        1 => shown(runtime.status().await),
        2 => shown(runtime.sandboxes(None).await),
        3 => shown(runtime.sandbox_status("a").await),
        4 => shown(runtime.containers(Some("a")).await),
        5 => shown(runtime.container_status("a").await),
        6 => shown(runtime.container_stats().await),
        7 => shown(runtime.sandbox_stats().await),
        8 => shown(runtime.images().await),
        9 => shown(runtime.image("a").await),
        10 => shown(runtime.exec_sync("a", &[], Duration::from_secs(1)).await),
        11 => shown(runtime.run_sandbox(&SandboxConfig::default(), "").await),
        12 => {
            let config = ContainerConfig::default();
            shown(runtime.create_container("a", &config, &SandboxConfig::default()).await);
        }
        13 => shown(runtime.pull("a", Some(&RegistryAuth::default()), &SandboxConfig::default()).await),
        14 => shown(runtime.image_fs().await),
        _ => shown(runtime.update_resources("a", &LinuxResources::default()).await),
    }
}

fn shown(answer: impl Debug) {
    std::hint::black_box(format!("{answer:?}").len());
}
