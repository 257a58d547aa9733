//! A log in memory, for tests.

use super::reader::LogSink;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::io;

#[derive(Default)]
pub struct Text(pub Vec<u8>);

impl LogSink for Text {
    fn write<'a>(&'a mut self, bytes: &'a [u8], _: bool) -> BoxFuture<'a, io::Result<()>> {
        self.0.extend_from_slice(bytes);
        async { Ok(()) }.boxed()
    }

    fn flush(&mut self) -> BoxFuture<'_, io::Result<()>> {
        async { Ok(()) }.boxed()
    }
}
