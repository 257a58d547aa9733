//! The parts that fuzz targets share: division of an input, and readers of its parts.
//!
//! A target of several parts (an object and a patch, an expression and its variable) has them in one input, divided by
//! bytes 0, which no text of the API contains. So inputs stay readable, and mutations keep them apart.

pub mod certificates;
pub mod duplex;
pub mod http1;
pub mod http2;
pub mod objects;
pub mod parts;
pub mod temporary;

use schema::Value;

/// The parts of an input, as text; absent ones are empty. `None` if one is not UTF-8.
pub fn texts<const N: usize>(data: &[u8]) -> Option<[&str; N]> {
    let mut parts = data.splitn(N, |byte| *byte == 0).map(std::str::from_utf8);
    let mut out = [""; N];
    for part in &mut out {
        match parts.next() {
            None => break,
            Some(text) => *part = text.ok()?,
        }
    }
    Some(out)
}

/// A whole input as text.
pub fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The tree of a JSON text.
pub fn json(text: &str) -> Option<Value> {
    Some(schema::decode::json_untyped(text.as_bytes()).ok()?.value)
}

/// The first byte, which chooses what an input is for, and the rest.
pub fn choice(data: &[u8]) -> Option<(usize, &[u8])> {
    data.split_first().map(|(first, rest)| (usize::from(*first), rest))
}

/// A copy of something valid, changed as the input says: the first bit chooses whether an end is cut off, then come two
/// bytes of a position and one that is added there.
pub fn mutated(valid: &[u8], script: &[u8]) -> Vec<u8> {
    let mut out = valid.to_vec();
    if out.is_empty() {
        return out;
    }
    let Some((first, edits)) = script.split_first() else { return out };
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % out.len();
        out[at] = out[at].wrapping_add(edit[2]);
    }
    if first & 1 == 1 {
        out.truncate(out.len().saturating_sub(usize::from(first >> 1)));
    }
    out
}

/// Lets panics in a library pass whose callers catch them, as they are: every other one ends the process.
pub fn forgive_panics_in(library: &'static str) {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_library = panic.location().is_some_and(|it| it.file().contains(library));
        if !is_library {
            abort(panic);
        }
    }));
}
