//! Short texts that stand for what an object asks for, to put into names and labels.
//!
//! The same content gives the same text in every process and version; different content mostly a different one, and
//! where it does not, the count of collisions makes it so.

use serde::Serialize;

/// No vowels, so that no words come out, and nothing that looks like another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub fn hash(content: &impl Serialize, collisions: Option<i32>) -> String {
    // what an API type looks like in JSON can always be said
    let mut bytes = serde_json::to_vec(content).unwrap_or_default();
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
    fn texts_follow_from_content_and_collisions() {
        // the published test vectors
        assert_eq!(fnv(b""), 0x811c_9dc5);
        assert_eq!(fnv(b"foobar"), 0xbf9c_f968);
        let plain = hash(&"content", None);
        assert_eq!(plain, hash(&"content", None));
        assert!(plain.bytes().all(|byte| LETTERS.contains(&byte)) && plain.len() <= 10);
        assert_ne!(plain, hash(&"other", None));
        assert_ne!(plain, hash(&"content", Some(0)));
        assert_ne!(hash(&"content", Some(1)), hash(&"content", Some(2)));
    }
}
