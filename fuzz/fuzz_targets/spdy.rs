//! SPDY: any frames end the connection or its streams; streams arrive as they were sent.

#![no_main]

use fuzz::duplex::{Sent, run};
use libfuzzer_sys::fuzz_target;
use streams::spdy::{Connection, Headers, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    match choice % 3 {
        0 => run(receive(rest, Role::Server)),
        1 => run(receive(rest, Role::Client)),
        _ => run(round_trip(rest)),
    }
});

async fn receive(bytes: &[u8], role: Role) {
    let (_connection, mut incoming) = Connection::start(Sent::new(bytes), role);
    while let Some(mut stream) = incoming.next().await {
        tokio::spawn(async move {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
    }
}

async fn round_trip(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (name, value) = (text(), text());
    let body = parts.next().unwrap_or_default();
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    let (client, _none) = Connection::start(ours, Role::Client);
    let (_server, mut incoming) = Connection::start(theirs, Role::Server);
    let headers = Headers::new([(&*name, &*value)]);
    let opening = tokio::spawn(async move { client.open(headers).await });
    let Some(mut received) = incoming.next().await else { return };
    let lower = name.to_ascii_lowercase();
    assert_eq!(received.headers().get(&lower).or(received.headers().get(&name)), Some(&*value), "{name:?}");
    let Ok(Ok(mut sent)) = opening.await else { return };
    let writing = body.to_vec();
    let writing = tokio::spawn(async move {
        sent.write_all(&writing).await.expect("a stream that is read");
        sent.shutdown().await.expect("a stream that is read");
        sent
    });
    let mut arrived = Vec::new();
    received.read_to_end(&mut arrived).await.expect("a stream that is sent");
    assert_eq!(arrived, body);
    drop(writing.await);
}
