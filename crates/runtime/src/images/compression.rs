//! Decompresses layers, by their first bytes: gzip, zstd or none.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The first three bytes of a skippable frame of zstd, after one that varies.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
const BUFFER: usize = 128 * 1024;

/// A reader of the uncompressed data.
pub fn decompress<R: Read + 'static>(input: R) -> io::Result<Box<dyn Read>> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let start = input.fill_buf()?;
    if start.starts_with(GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(input)));
    }
    let is_skippable = start.len() > 4 && start[1..4] == *ZSTD_SKIPPABLE && start[0] & 0xf0 == 0x50;
    if start.starts_with(ZSTD) || is_skippable {
        return Ok(Box::new(ZstdReader { input, decoder: FrameDecoder::new(), is_in_frame: false }));
    }
    Ok(Box::new(input))
}

/// Reads the frames of zstd one after another, and skips those without data.
struct ZstdReader<R> {
    input: BufReader<R>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: Read> ZstdReader<R> {
    /// Begins the next frame; false at the end of the input.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut (&mut self.input).take(u64::from(length)), &mut io::sink())?;
                }
                Err(why) => return Err(io::Error::other(why)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded =
                    self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.is_in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn read(data: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        decompress(io::Cursor::new(data))?.read_to_end(&mut found)?;
        Ok(found)
    }

    #[test]
    fn layers_are_read_in_every_compression() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|it| (it / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        assert_eq!(read(gzip.finish().unwrap()).unwrap(), text);
        let zstd = compress_to_vec(&text[..], CompressionLevel::Fastest);
        assert!(zstd.starts_with(ZSTD) && zstd.len() < text.len());
        assert_eq!(read(zstd.clone()).unwrap(), text);
        assert_eq!(read(text.clone()).unwrap(), text);
        // a skippable frame between two others
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let frames = [&skippable[..], &zstd, &skippable, &zstd].concat();
        assert_eq!(read(frames).unwrap(), [&text[..], &text].concat());
        assert!(read(zstd[..zstd.len() / 2].to_vec()).is_err());
        assert_eq!(read(Vec::new()).unwrap(), b"");
    }
}
