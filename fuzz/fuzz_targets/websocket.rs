//! WebSocket: any frames are messages in pieces, or end the connection.

#![no_main]

use fuzz::duplex::{Sent, run};
use libfuzzer_sys::fuzz_target;
use streams::websocket::{self, Codec};

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    let codec = if choice % 2 == 0 { Codec::Binary } else { Codec::Base64 };
    run(async {
        let (_sender, mut messages) = websocket::start(Sent::new(rest), codec);
        let mut bytes = 0;
        while let Some(message) = messages.recv().await {
            bytes += message.data.len();
        }
        assert!(bytes <= rest.len());
    });
});
