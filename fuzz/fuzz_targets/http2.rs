//! Frames of HTTP/2 to a running server: frames of HTTP/2 come back, and a user without rights writes nothing.

#![no_main]

#[path = "../servers/api_server.rs"]
mod api_server;

use api_server::{InProcess, may_write, user};
use fuzz::http2::{check, frames};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

thread_local! {
    static SERVER: ManuallyDrop<RefCell<InProcess>> = ManuallyDrop::new(InProcess::start().into());
}

fuzz_target!(
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let Some((choice, script)) = fuzz::choice(data) else { return };
        SERVER.with(|server| {
            let mut server = server.borrow_mut();
            server.renew();
            let before = server.revision();
            let received = server.exchange(user(choice), true, frames(script));
            assert!(may_write(choice) || server.revision() == before, "a write without rights");
            check(&received);
        });
    }
);
