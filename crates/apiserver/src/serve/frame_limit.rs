//! Rate limit for the control frames of an HTTP/2 connection.
//!
//! A frame of SETTINGS, PING, PRIORITY, WINDOW_UPDATE or RST_STREAM costs the client nothing and the server
//! microseconds, and the HTTP/2 library accepts any number of them. So a connection has credit for control
//! frames. Proper clients send them in proportion to requests and received bytes, so both earn credit, as
//! time does:
//!
//! ```text
//! at the start       10,000 frames
//! per request        + 4       (a reset, a priority, updates of the window)
//! per 128 bytes sent + 1       (updates of two windows for each small event of a watch)
//! per second         + 1,000
//! ```
//!
//! Invariants: only frame heads are inspected, never payloads; the clock is read only when the credit is used
//! up. The library itself bounds other floods: CONTINUATION, small DATA, requests that are reset before they
//! are handled.
//!
//! Only the library can send GOAWAY at the right point of the stream. So a connection without credit is
//! closed by feeding the library, from the end of the last frame on, an endless header block: it sends GOAWAY
//! with ENHANCE_YOUR_CALM, and closes. What the client goes on sending is read for a moment longer: the kernel would
//! answer unread bytes with a reset, and throw away what it has not delivered yet, the GOAWAY among it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use env::World;
use env::io::Sleep;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

const START: u64 = 10_000;
const PER_REQUEST: u64 = 4;
const BYTES_PER_FRAME: u64 = 128;
const PER_SECOND: u64 = 1_000;
/// Upper bound of the credit.
const MAX: u64 = 10 * START;

/// How long, and up to how many bytes, a client is listened to after the GOAWAY.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;

/// Stream id of the endless header block; the highest one, unused by clients.
const LAST_STREAM: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// A transport of HTTP/2 whose control frames are counted.
pub(super) struct FrameLimit<S> {
    inner: S,
    world: World,
    /// Bytes until the next head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    credit: u64,
    /// Bytes sent that have not earned credit yet.
    sent: u64,
    /// The time up to which credit was earned.
    earned_until: Duration,
    state: State,
    /// Set once a connection without credit has sent its last byte.
    linger: Option<Linger>,
}

/// What is left of the time and the bytes that a client is listened to.
struct Linger {
    end: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Linger {
    /// Reads until the client closes or one of the bounds is reached.
    fn poll(&mut self, cx: &mut Context<'_>, io: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        let mut space = [0; 4096];
        while self.bytes > 0 && self.end.as_mut().poll(cx).is_pending() {
            let mut into = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut *io).poll_read(cx, &mut into)) {
                Ok(()) if !into.filled().is_empty() => {
                    self.bytes = self.bytes.saturating_sub(into.filled().len());
                }
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Counting,
    /// The credit is used up; the current frame is completed first.
    LastFrame,
    /// Position in the endless header block.
    Farewell(usize),
}

impl<S> FrameLimit<S> {
    pub(super) fn new(inner: S, world: World) -> Self {
        let earned_until = world.elapsed();
        let head = [0; HEAD_BYTES];
        let (skip, credit, state) = (PREFACE_BYTES, START, State::Counting);
        FrameLimit {
            inner,
            world,
            skip,
            head,
            head_filled: 0,
            credit,
            sent: 0,
            earned_until,
            state,
            linger: None,
        }
    }

    /// Inspects the bytes read; returns how many may be passed on.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len() - at);
                (self.skip, at) = (self.skip - skipped, at + skipped);
            } else {
                let copied = (HEAD_BYTES - self.head_filled).min(bytes.len() - at);
                self.head[self.head_filled..][..copied].copy_from_slice(&bytes[at..at + copied]);
                (self.head_filled, at) = (self.head_filled + copied, at + copied);
                if self.head_filled == HEAD_BYTES {
                    self.frame();
                }
            }
            if self.state == State::LastFrame && self.skip == 0 {
                self.state = State::Farewell(0);
                return at;
            }
        }
        at
    }

    /// Handles a complete frame head.
    fn frame(&mut self) {
        self.head_filled = 0;
        let [a, b, c, kind, ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            HEADERS => self.credit = (self.credit + PER_REQUEST).min(MAX),
            DATA | CONTINUATION => {}
            _ if self.credit > 0 => self.credit -= 1,
            _ => match self.earn() {
                0 => self.state = State::LastFrame,
                earned => self.credit = (earned - 1).min(MAX),
            },
        }
    }

    /// Credit earned by bytes and time since the last call.
    fn earn(&mut self) -> u64 {
        let by_bytes = self.sent / BYTES_PER_FRAME;
        self.sent %= BYTES_PER_FRAME;
        let now = self.world.elapsed();
        let passed = now.saturating_sub(self.earned_until).as_millis();
        let by_time = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(PER_SECOND) / 1000;
        if by_time > 0 {
            self.earned_until = now;
        }
        by_bytes.saturating_add(by_time)
    }

    fn after_write(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent = self.sent.saturating_add(*bytes as u64).min(MAX * BYTES_PER_FRAME);
        }
    }
}

/// The byte at a position of the endless header block: empty frames, none of which is the last.
fn farewell(at: usize) -> u8 {
    match at % HEAD_BYTES {
        3 if at < HEAD_BYTES => HEADERS,
        3 => CONTINUATION,
        index @ 5.. => LAST_STREAM[index - 5],
        _ => 0,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Farewell(at) = self.state {
            // more than the library reads at once, in whole frames
            let bytes: Vec<u8> = (at..at + into.remaining().min(64 * HEAD_BYTES)).map(farewell).collect();
            into.put_slice(&bytes);
            self.state = State::Farewell(at + bytes.len());
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, into))?;
        let passed_on = self.read(&into.filled()[before..]);
        into.set_filled(before + passed_on);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FrameLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.after_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.after_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        if !matches!(this.state, State::Farewell(_)) {
            return Poll::Ready(Ok(()));
        }
        let linger = this
            .linger
            .get_or_insert_with(|| Linger { end: Box::pin(env::io::sleep(LINGER)), bytes: LINGER_BYTES });
        linger.poll(cx, &mut this.inner).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use std::sync::Arc;

    const WINDOW_UPDATE: u8 = 8;
    const RESET: u8 = 3;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        bytes.extend(vec![0xff; payload]);
        bytes
    }

    fn limit() -> (FrameLimit<()>, Arc<Simulated>) {
        let world = Simulated::new(0, 0);
        let mut limit = FrameLimit::new((), world.clone());
        assert_eq!(limit.read(&[b'P'; PREFACE_BYTES]), PREFACE_BYTES);
        (limit, world)
    }

    /// Number of frames passed on before the connection is closed.
    fn flood(limit: &mut FrameLimit<()>, kind: u8, most: u64) -> u64 {
        let one = frame(kind, 4);
        (0..most).take_while(|_| limit.read(&one) == one.len() && limit.state == State::Counting).count()
            as u64
    }

    #[test]
    fn control_frames_use_up_the_credit_and_time_restores_it() {
        for kind in [2, RESET, 4, 6, 7, WINDOW_UPDATE, 99] {
            let (mut limit, _) = limit();
            assert_eq!(flood(&mut limit, kind, u64::MAX), START, "{kind}");
            assert_eq!(limit.state, State::Farewell(0), "{kind}");
        }
        let (mut limit, world) = limit();
        assert_eq!(flood(&mut limit, 6, START), START);
        for _ in 0..10 {
            world.advance(Duration::from_secs(1));
            assert_eq!(flood(&mut limit, 6, PER_SECOND), PER_SECOND);
        }
        assert_eq!(flood(&mut limit, 6, 1), 0);
    }

    #[test]
    fn clients_in_normal_use_are_never_cut() {
        let (mut limit, _) = limit();
        // two updates for each kilobyte of a download
        for _ in 0..100_000 {
            limit.after_write(&Poll::Ready(Ok(1024)));
            assert_eq!(flood(&mut limit, WINDOW_UPDATE, 2), 2);
        }
        // the same for each event of a watch, the smallest of which are bookmarks
        for _ in 0..100_000 {
            limit.after_write(&Poll::Ready(Ok(256)));
            assert_eq!(flood(&mut limit, WINDOW_UPDATE, 2), 2);
        }
        // requests that are reset, with their priorities and windows
        for _ in 0..100_000 {
            assert_eq!(flood(&mut limit, HEADERS, 1), 1);
            assert_eq!(flood(&mut limit, RESET, 4), 4);
        }
        // an upload
        assert_eq!(flood(&mut limit, DATA, 100_000), 100_000);
    }

    #[test]
    fn heads_are_found_in_any_split_of_the_bytes() {
        let sent: Vec<u8> = (0..100).flat_map(|n| frame(6, n * 7 % 50)).collect();
        for piece in [1, 2, 8, 9, 10, 4096] {
            let (mut limit, _) = limit();
            limit.credit = 60;
            let mut passed_on = 0;
            for bytes in sent.chunks(piece) {
                passed_on += limit.read(bytes);
                if limit.state == State::Farewell(0) {
                    break;
                }
            }
            // the frame that exceeds the credit is completed first
            let expected: usize = (0..61).map(|n| HEAD_BYTES + n * 7 % 50).sum();
            assert_eq!(passed_on, expected, "{piece}");
        }
    }

    #[tokio::test]
    async fn a_client_without_credit_is_read_from_until_it_closes() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
        let (ours, mut theirs) = duplex(64);
        let mut limit = FrameLimit::new(ours, Simulated::new(0, 0));
        limit.state = State::Farewell(0);
        let client = async {
            // more than the pipe holds: it is read after the end of what the server sends
            theirs.write_all(&[0; 10_000]).await.unwrap();
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            drop(theirs);
            got
        };
        let server = async {
            limit.write_all(b"GOAWAY").await.unwrap();
            limit.shutdown().await.unwrap();
        };
        assert_eq!(tokio::join!(server, client).1, b"GOAWAY");
    }

    #[test]
    fn the_farewell_is_a_header_block_without_an_end() {
        let bytes: Vec<u8> = (0..27).map(farewell).collect();
        let next = [0, 0, 0, CONTINUATION, 0, 0x7f, 0xff, 0xff, 0xff];
        assert_eq!(bytes[..9], [0, 0, 0, HEADERS, 0, 0x7f, 0xff, 0xff, 0xff]);
        assert_eq!((&bytes[9..18], &bytes[18..]), (&next[..], &next[..]));
    }
}
