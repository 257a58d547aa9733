//! Digests of content: `sha256:…` and `sha512:…`, and readers and hashers that verify them.

use super::error::ImageError;
use ring::digest::{Context, SHA256, SHA512};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Read};

/// The digest of a blob. Its text is valid: it can be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    text: String,
}

impl Digest {
    /// The digest of bytes, by SHA-256.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let is_hex = |hex: &str| hex.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
        let is_valid = match text.split_once(':') {
            Some(("sha256", hex)) => hex.len() == 64 && is_hex(hex),
            Some(("sha512", hex)) => hex.len() == 128 && is_hex(hex),
            _ => false,
        };
        match is_valid {
            true => Ok(Digest { text: text.to_owned() }),
            false => Err(ImageError::Invalid(format!("{text:?} is not a digest by SHA-256 or SHA-512"))),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `sha256` or `sha512`.
    pub fn algorithm(&self) -> &str {
        self.text.split_once(':').map_or("", |(algorithm, _)| algorithm)
    }

    pub fn hex(&self) -> &str {
        self.text.split_once(':').map_or("", |(_, hex)| hex)
    }

    /// A hasher of this digest's algorithm.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm() {
            "sha512" => Hasher::sha512(),
            _ => Hasher::sha256(),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = ImageError;

    fn try_from(text: String) -> Result<Self, ImageError> {
        Digest::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Computes a digest piece by piece.
pub struct Hasher {
    /// The name of the algorithm in digests.
    algorithm: &'static str,
    state: Context,
}

impl Hasher {
    pub fn sha256() -> Self {
        Hasher { algorithm: "sha256", state: Context::new(&SHA256) }
    }

    fn sha512() -> Self {
        Hasher { algorithm: "sha512", state: Context::new(&SHA512) }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    pub fn finish(self) -> Digest {
        let digest = self.state.finish();
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Digest { text: format!("{}:{hex}", self.algorithm) }
    }
}

/// Hashes bytes as they are read, and fails once more than `limit` bytes were read.
pub struct HashingReader<R> {
    input: R,
    hasher: Hasher,
    left: u64,
}

impl<R: Read> HashingReader<R> {
    pub fn new(input: R, hasher: Hasher, limit: u64) -> Self {
        HashingReader { input, hasher, left: limit }
    }

    /// Reads the rest, and returns the digest of everything.
    pub fn finish(mut self) -> io::Result<Digest> {
        let mut buffer = vec![0; 64 * 1024];
        while self.read(&mut buffer)? > 0 {}
        Ok(self.hasher.finish())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other("the unpacked data is larger than the limit"))?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_valid_or_refused() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        let digest = Digest::parse(empty).unwrap();
        assert_eq!((digest.algorithm(), digest.hex().len()), ("sha256", 64));
        for text in ["", "sha256:", "sha256:../../x", "md5:00", &empty.to_uppercase(), &empty[..70]] {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
        let long = format!("sha512:{}", "0".repeat(128));
        assert_eq!(Digest::parse(&long).unwrap().hasher().finish().algorithm(), "sha512");
    }

    #[test]
    fn a_reader_ends_at_its_limit() {
        let read = |limit: u64| HashingReader::new(&b"12345"[..], Hasher::sha256(), limit).finish();
        assert_eq!(read(5).unwrap(), Digest::of(b"12345"));
        assert!(read(4).is_err());
    }
}
