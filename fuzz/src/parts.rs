//! Inputs of several binary parts: each has a byte for its kind and two of its length.

/// The parts, up to so many. The last one may be shorter than it says.
pub fn parts(mut data: &[u8], limit: usize) -> Vec<(u8, &[u8])> {
    let mut out = Vec::new();
    while let [kind, low, high, rest @ ..] = data {
        if out.len() == limit {
            break;
        }
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (part, rest) = rest.split_at(length);
        out.push((*kind, part));
        data = rest;
    }
    out
}
