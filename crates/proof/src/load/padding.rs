//! Padding: what a write adds to its value so that objects have many sizes, and what of it can be compressed. It follows
//! from the value, so that a reader knows it.
//!
//! ```text
//! 2-17          client and number of the write: no padding
//! 2-18-t4000    and 4000 bytes of text that repeats
//! 2-19-n4000    and 4000 bytes of noise
//! ```

use env::World;
use std::iter::repeat_with;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// More than any write asks for.
const MOST: usize = 1 << 18;

/// The end of a value, from which its padding follows. Most are small; the store compresses values from 1 KiB on.
pub fn draw(random: &World) -> String {
    let below = |limit: u64| env::random_u64(random) % limit;
    let size = match below(100) {
        0..=69 => return String::new(),
        70..=84 => 800 + below(3300),
        85..=94 => 4000 + below(16_000),
        95..=98 => 20_000 + below(20_000),
        _ => 40_000 + below(60_000),
    };
    let form = if below(2) == 0 { 't' } else { 'n' };
    format!("-{form}{size}")
}

/// The padding of a value.
pub fn of(value: &str) -> String {
    let form = value.rsplit('-').next().unwrap_or_default();
    let size = |digits: &str| digits.parse().unwrap_or(0).min(MOST);
    if let Some(digits) = form.strip_prefix('t') {
        return value.chars().chain(" is repeated, ".chars()).cycle().take(size(digits)).collect();
    }
    let Some(digits) = form.strip_prefix('n') else { return String::new() };
    // FNV-1a of the value, then xorshift
    let mut state = value
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let noise = repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(ALPHABET[(state >> 58) as usize])
    });
    noise.take(size(digits)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Seeded;

    #[test]
    fn the_padding_of_a_value_has_its_size_and_is_the_same_for_every_reader() {
        assert_eq!(of("2-17"), "");
        assert_eq!(of("the-end"), "");
        assert_eq!(of("2-18-t20"), "2-18-t20 is repeated");
        let noise = of("2-19-n5000");
        assert_eq!((noise.len(), &noise), (5000, &of("2-19-n5000")));
        assert_ne!(noise, of("2-20-n5000"));
    }

    #[test]
    fn paddings_have_both_forms_and_sizes_up_to_many_kilobytes() {
        let random: World = Seeded::new(0, 1);
        let drawn: Vec<String> = repeat_with(|| draw(&random)).take(2000).collect();
        let sizes = |form: &str| {
            let sizes = drawn.iter().filter_map(|it| it.strip_prefix(form)?.parse::<usize>().ok());
            sizes.collect::<Vec<_>>()
        };
        for form in ["-t", "-n"] {
            assert!(sizes(form).iter().any(|it| *it < 4096), "{form}");
            assert!(sizes(form).iter().any(|it| *it > 40_000), "{form}");
        }
    }
}
