//! Requests to the runtime that is served as the CRI: each is answered, with an error at most.

#![no_main]

use env::{Simulated, World};
use fuzz::duplex::run;
use fuzz::parts::parts;
use grpc::Message;
use grpc::cri::image_service_client::ImageServiceClient;
use grpc::cri::runtime_service_client::RuntimeServiceClient;
use grpc::tonic::{Code, Request};
use libfuzzer_sys::fuzz_target;
use nodeagent::cri_server::{CriServer, CriServerOptions};
use nodeagent::runtime::simulated::SimulatedRuntime;
use outbound::{Channel, Target};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static SERVER: ManuallyDrop<(SimulatedRuntime, Channel)> = run(async {
        let socket = fuzz::temporary::FOLDER.join("cri.sock");
        let world: World = Simulated::new(1_700_000_000, 7);
        let runtime = SimulatedRuntime::new(world.clone());
        let options = CriServerOptions {
            runtime: Arc::new(runtime.clone()),
            world,
            stream_address: ([127, 0, 0, 1], 0).into(),
            stream_idle_timeout: Duration::ZERO,
        };
        tokio::spawn(CriServer::bind(&socket, options).await.expect("a socket").serve());
        let url = format!("unix://{}", socket.display());
        let channel = Channel::new(&Target { url, ..Target::default() }, &[]).expect("an endpoint");
        ManuallyDrop::new((runtime, channel))
    });
}

fuzz_target!(|data: &[u8]| {
    SERVER.with(|it| {
        let (runtime, channel) = &**it;
        run(async {
            for (choice, request) in parts(data, 8) {
                call(channel, choice, request).await;
            }
        });
        runtime.remove_all();
        runtime.take_log();
    });
});

async fn call(channel: &Channel, choice: u8, bytes: &[u8]) {
    macro_rules! call {
        ($client:ident, $method:ident) => {{
            let Ok(request) = Message::decode(bytes) else { return };
            let answer = $client::new(channel.clone()).$method(Request::new(request)).await;
            let code = answer.as_ref().map_or_else(|why| why.code(), |_| Code::Ok);
            assert!(code != Code::Internal, "{:?}", answer.err());
        }};
    }
    match choice % 16 {
        0 => call!(RuntimeServiceClient, run_pod_sandbox),
        1 => call!(RuntimeServiceClient, stop_pod_sandbox),
        2 => call!(RuntimeServiceClient, pod_sandbox_status),
        3 => call!(RuntimeServiceClient, list_pod_sandbox),
        4 => call!(RuntimeServiceClient, create_container),
        5 => call!(RuntimeServiceClient, list_containers),
        6 => call!(RuntimeServiceClient, container_status),
        7 => call!(RuntimeServiceClient, update_container_resources),
        8 => call!(RuntimeServiceClient, exec),
        9 => call!(RuntimeServiceClient, list_container_stats),
        10 => call!(RuntimeServiceClient, list_pod_sandbox_stats),
        11 => call!(RuntimeServiceClient, port_forward),
        12 => call!(ImageServiceClient, list_images),
        13 => call!(ImageServiceClient, image_status),
        14 => call!(ImageServiceClient, pull_image),
        _ => call!(RuntimeServiceClient, remove_pod_sandbox),
    }
}
