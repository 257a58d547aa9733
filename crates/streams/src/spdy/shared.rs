//! State of a connection that its tasks and streams share.

use super::compression::Compressor;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// A stream as the reading task knows it.
pub struct Receiver {
    /// Absent once the peer has ended its direction.
    pub pieces: Option<mpsc::Sender<Bytes>>,
    /// Of a stream that was opened here and has no reply yet.
    pub reply: Option<oneshot::Sender<()>>,
}

pub struct Shared {
    /// By id, as long as their [`Stream`](super::Stream) exists.
    pub streams: Mutex<HashMap<u32, Receiver>>,
    /// The compressor, and the id of the next stream that is opened here.
    pub compressor: tokio::sync::Mutex<(Compressor, u32)>,
    /// The queue of the writing task.
    pub frames: mpsc::Sender<Bytes>,
}
