//! Files that keep the state of a manager over restarts: JSON with a checksum, as upstream writes them.
//!
//! The checksum is over a text that names the fields and types of the data. [`struct_text`], [`map_text`] and
//! [`list_text`] make that text.

use std::fmt::Display;
use std::path::Path;

/// The error of a file whose checksum is wrong, or that is no JSON of the right form.
pub const CORRUPT: &str = "checkpoint is corrupted";

/// The text of a file, if it exists.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| CORRUPT.to_owned()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}

/// Replaces a file.
pub fn write(path: &Path, text: &str) -> std::io::Result<()> {
    durable_file::replace(path, text, durable_file::PRIVATE)
}

/// The checksum of a text: FNV-1a of 32 bits.
pub fn checksum(text: &str) -> u64 {
    const PRIME: u32 = 16_777_619;
    let sum = text.bytes().fold(2_166_136_261_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(PRIME));
    u64::from(sum)
}

/// A structure: `{Name:(type)value Name:(type)value}`.
pub fn struct_text(fields: &[(&str, &str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, kind, value)| format!("{name}:({kind}){value}")).collect();
    format!("{{{}}}", fields.join(" "))
}

/// A map: `map[key:value key:value]`.
pub fn map_text<K: Display>(entries: impl IntoIterator<Item = (K, String)>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}

/// A list: `[item item]`.
pub fn list_text(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/state");
        assert_eq!(read(&path), Ok(None));
        write(&path, "1").unwrap();
        assert_eq!(read(&path), Ok(Some("1".to_owned())));
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read(&path), Err(CORRUPT.to_owned()));
    }
}
