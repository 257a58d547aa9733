//! Compression of large answers, for clients that ask for it.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Answers shorter than this are sent as they are.
pub const WORTH_IT: usize = 128 * 1024;

pub fn accepts_gzip(header: Option<&str>) -> bool {
    header.is_some_and(|text| text.split(',').any(is_gzip))
}

/// Whether one of the encodings that a client lists is this one, and wanted at all.
fn is_gzip(clause: &str) -> bool {
    let mut parts = clause.split(';').map(str::trim);
    let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
    let mut weights = parts.filter_map(|part| part.split_once('=').filter(|(name, _)| name.trim() == "q"));
    // a weight of nothing is a refusal
    named && !weights.any(|(_, weight)| weight.trim().parse() == Ok(0.0))
}

/// Compresses pieces one after the other: no more than a piece and its compressed form is held at a time.
pub fn gzip(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> impl Iterator<Item = Bytes> + Send {
    Gzip { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
}

struct Gzip<I> {
    pieces: I,
    /// Gone after the end was written.
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
    fn what_is_compressed_reads_back() {
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
    fn gzip_is_used_only_when_asked_for() {
        assert!(accepts_gzip(Some("deflate, gzip;q=1.0")));
        assert!(accepts_gzip(Some("br , GZIP")));
        for not in ["br", "gzip;q=0", "deflate, gzip; q=0.0", "x-gzip", "", "gzip2"] {
            assert!(!accepts_gzip(Some(not)), "{not}");
        }
        assert!(!accepts_gzip(None));
    }
}
