//! gzip compression of large responses.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Shorter responses are not compressed.
pub const MIN_BYTES: usize = 128 * 1024;

pub fn accepts_gzip(header: Option<&str>) -> bool {
    header.is_some_and(|text| text.split(',').any(is_gzip))
}

/// Whether an `Accept-Encoding` clause accepts gzip.
fn is_gzip(clause: &str) -> bool {
    let mut parts = clause.split(';').map(str::trim);
    let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
    let mut weights = parts.filter_map(|part| part.split_once('=').filter(|(name, _)| name.trim() == "q"));
    // a weight of zero is a refusal
    named && !weights.any(|(_, weight)| weight.trim().parse() == Ok(0.0))
}

/// Compresses piece by piece: only one piece and its compressed form are in memory at a time.
pub fn gzip(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> impl Iterator<Item = Bytes> + Send {
    Gzip { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
}

struct Gzip<I> {
    pieces: I,
    /// `None` after the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

const FRAME: usize = 32 * 1024;

impl<I: Iterator<Item = Bytes>> Iterator for Gzip<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            match self.pieces.next() {
                Some(piece) => {
                    // writing to memory cannot fail
                    let _ = encoder.write_all(&piece);
                    if encoder.get_ref().len() >= FRAME {
                        return Some(std::mem::take(encoder.get_mut()).into());
                    }
                }
                None => return self.encoder.take()?.finish().ok().map(Bytes::from),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn compressed_bytes_decompress() {
        let pieces: Vec<Bytes> =
            (0..2000).map(|n| Bytes::from(format!("piece number {n} ").repeat(20))).collect();
        let whole: Vec<u8> = pieces.concat();
        let packed: Vec<u8> = gzip(pieces.into_iter()).flatten().collect();
        assert!(packed.len() < whole.len() / 4);
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
        assert_eq!(out, whole);
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        assert!(accepts_gzip(Some("deflate, gzip;q=1.0")));
        assert!(accepts_gzip(Some("br , GZIP")));
        for not in ["br", "gzip;q=0", "deflate, gzip; q=0.0", "x-gzip", "", "gzip2"] {
            assert!(!accepts_gzip(Some(not)), "{not}");
        }
        assert!(!accepts_gzip(None));
    }
}
