//! A stream of watch events.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::soon;

/// An open watch.
pub struct Watch {
    what: String,
    body: Incoming,
    pending: BytesMut,
}

impl Watch {
    pub(crate) fn new(what: String, body: Incoming) -> Self {
        Watch { what, body, pending: BytesMut::new() }
    }

    /// The next event; `None` when the server ended the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end);
                self.pending.advance(1);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match soon(&self.what, self.body.frame()).await {
                None => {
                    assert!(self.pending.is_empty(), "{}: ended within an event", self.what);
                    return None;
                }
                Some(frame) => {
                    let frame = frame.unwrap_or_else(|why| panic!("{}: {why}", self.what));
                    if let Ok(data) = frame.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// The object of the next event, which must have this type and name.
    pub async fn expect(&mut self, kind: &str, name: &str) -> Value {
        let mut event = self.some().await;
        assert_eq!(event["type"], kind, "{}: {event}", self.what);
        assert_eq!(event["object"]["metadata"]["name"], name, "{}: {event}", self.what);
        event["object"].take()
    }

    /// The next event.
    pub async fn some(&mut self) -> Value {
        match self.next().await {
            Some(event) => event,
            None => panic!("{}: the stream ended", self.what),
        }
    }

    /// The remaining events until the end.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
