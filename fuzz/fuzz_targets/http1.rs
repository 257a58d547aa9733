//! Bytes as HTTP/1.1 to a running server: whole responses come back, and a user without rights writes nothing.

#![no_main]

#[path = "../servers/api_server.rs"]
mod api_server;

use api_server::{InProcess, may_write, user};
use fuzz::http1::statuses;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

thread_local! {
    static SERVER: ManuallyDrop<RefCell<InProcess>> = ManuallyDrop::new(InProcess::start().into());
}

fuzz_target!(
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let Some((choice, sent)) = fuzz::choice(data) else { return };
        SERVER.with(|server| {
            let mut server = server.borrow_mut();
            server.renew();
            let before = server.revision();
            let received = server.exchange(user(choice), false, sent.to_vec());
            assert!(may_write(choice) || server.revision() == before, "a write without rights");
            statuses(&received, sent.windows(4).any(|it| it == b"HEAD"));
        });
    }
);
