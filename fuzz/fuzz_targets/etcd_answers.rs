//! Answers and events of an etcd: the store that is a client of it publishes changes in the order of their revisions.

#![no_main]

#[path = "../servers/grpc_server.rs"]
mod grpc_server;

use env::{Simulated, World};
use fuzz::duplex::run;
use fuzz::parts::parts;
use grpc_server::{Answers, message};
use libfuzzer_sys::fuzz_target;
use outbound::Target;
use std::mem::ManuallyDrop;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use store::{Change, Revision, Store};
use store_etcd::Options;

static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(1_700_000_000, 7));

thread_local! {
    static ETCD: ManuallyDrop<(Options, Answers)> = run(async {
        let (socket, answers) = (fuzz::temporary::FOLDER.join("etcd.sock"), Answers::default());
        grpc_server::serve(&socket, &answers);
        let target = Target { url: format!("unix://{}", socket.display()), ..Target::default() };
        let options = Options {
            servers: vec![target],
            compaction_interval: None,
            size_poll_interval: None,
            open_timeout: Duration::ZERO,
            ..Options::default()
        };
        ManuallyDrop::new((options, answers))
    });
}

fuzz_target!(|data: &[u8]| {
    ETCD.with(|it| {
        let (options, answers) = &**it;
        // a part of an odd kind is one more message of the answer before
        let mut all: Vec<Vec<_>> = Vec::new();
        for (kind, part) in parts(data, 16) {
            match all.last_mut().filter(|_| kind % 2 == 1) {
                Some(last) => last.push(message(part)),
                None => all.push(vec![message(part)]),
            }
        }
        answers.set(all);
        run(follow(options.clone(), answers));
    });
});

async fn follow(options: Options, answers: &Answers) {
    let Ok((store, recovered)) = store_etcd::open(options, WORLD.clone()).await else { return };
    assert!(recovered.is_sorted_by_key(|it| it.revision));
    assert!(recovered.iter().all(|it| it.key.starts_with("/registry/")));
    if answers.left() == 0 {
        return;
    }
    let last = Arc::new(Mutex::new(Revision(0)));
    let seen = last.clone();
    let started = store.start(Box::new(move |changes: &[Change]| {
        let mut last = seen.lock().expect("no panic");
        for change in changes {
            assert!(change.revision >= *last, "{:?} after {last:?}", change.revision);
            assert!(change.key.starts_with("/registry/"), "{}", change.key);
            *last = change.revision;
        }
    }));
    started.expect("a new store");
    // the watch asks for the newest revision and the status, and then reads events
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if answers.left() == 0 {
            break;
        }
    }
    store.close().await;
}
