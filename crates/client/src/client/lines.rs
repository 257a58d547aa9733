//! An answer that is read line by line as it arrives.

use crate::error::{BoxError, Error};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use memchr::memchr;

/// The lines of an answer.
pub struct Lines {
    body: UnsyncBoxBody<Bytes, BoxError>,
    /// Bytes that have arrived and are not read yet.
    buffer: BytesMut,
    /// The first so many bytes of the buffer hold no line end.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Lines { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line without its end; `None` when the answer has ended. A last line without an end is cut off, and
    /// dropped.
    pub async fn next_line(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[self.searched..]) {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                // many watches wait: an idle one holds no buffer
                if self.buffer.is_empty() {
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Error::Transport(error)),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    // most frames are one line, which needs no copy
                    if self.buffer.is_empty() && memchr(b'\n', &data).is_some_and(|at| at + 1 == data.len()) {
                        return Ok(Some(data.slice(..data.len() - 1)));
                    }
                    self.buffer.extend_from_slice(&data);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::io;

    async fn lines(frames: &[&'static str]) -> Vec<String> {
        let frames: Vec<io::Result<_>> = frames.iter().map(|it| Ok(Frame::data(Bytes::from(*it)))).collect();
        let body = StreamBody::new(stream::iter(frames)).map_err(BoxError::from).boxed_unsync();
        let (mut lines, mut read) = (Lines::new(body), Vec::new());
        while let Some(line) = lines.next_line().await.unwrap() {
            read.push(String::from_utf8(line.to_vec()).unwrap());
        }
        read
    }

    #[tokio::test]
    async fn lines_are_independent_of_frames() {
        assert_eq!(
            lines(&["a\nb\nc", "d", "\n", "\ne"]).await,
            ["a", "b", "cd", ""],
            "the last one is cut off"
        );
        assert!(lines(&[]).await.is_empty());
    }
}
