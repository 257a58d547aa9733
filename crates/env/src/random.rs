//! Random values: numbers and uids from a world, and the generator behind seeded worlds.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::World;

/// Eight random bytes as a number.
pub fn random_u64(world: &World) -> u64 {
    let mut bytes = [0; 8];
    world.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A random (version 4) uid.
pub fn new_uid(world: &World) -> String {
    let mut bytes = [0u8; 16];
    world.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut uid = String::with_capacity(36);
    for (at, byte) in bytes.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            uid.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            uid.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    uid
}

/// A generator whose bytes follow from a seed.
pub(crate) struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            // splitmix64: small, well distributed, and each step depends on the counter alone
            let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (a, b) = (SeededRandom::new(7), SeededRandom::new(7));
        let (mut x, mut y) = ([0u8; 20], [0u8; 20]);
        a.fill(&mut x);
        b.fill(&mut y);
        assert_eq!(x, y);
        a.fill(&mut y);
        assert_ne!(x, y);
    }
}
