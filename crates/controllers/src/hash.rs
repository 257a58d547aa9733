//! Hashes of content for names and labels.
//!
//! The same content has the same hash in every process and version. Different content can collide; the collision count
//! then changes the hash.

use api::Json;

/// No vowels, so that no words appear, and no characters that look alike.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub fn hash(content: &impl Json, collisions: Option<i32>) -> String {
    let mut bytes = api::to_json(content);
    if let Some(collisions) = collisions {
        bytes.extend(collisions.to_le_bytes());
    }
    let letter = |digit: char| char::from(LETTERS[digit as usize % LETTERS.len()]);
    fnv(&bytes).to_string().chars().map(letter).collect()
}

/// FNV-1a, 32 bits.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_content_and_collisions() {
        // the published test vectors
        assert_eq!(fnv(b""), 0x811c_9dc5);
        assert_eq!(fnv(b"foobar"), 0xbf9c_f968);
        let of = |content: &str, collisions| hash(&content.to_owned(), collisions);
        let plain = of("content", None);
        assert_eq!(plain, of("content", None));
        assert!(plain.bytes().all(|byte| LETTERS.contains(&byte)) && plain.len() <= 10);
        assert_ne!(plain, of("other", None));
        assert_ne!(plain, of("content", Some(0)));
        assert_ne!(of("content", Some(1)), of("content", Some(2)));
    }
}
