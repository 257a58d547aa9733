//! Packed values: as the embedded engine compresses them.
//!
//! ```text
//! length of the value 4 | LZ4 block
//! ```

use bytes::Bytes;

use crate::{EncodedBy, MAX_VALUE_BYTES, RecoveredRecord, Revision};

/// The length of the value before the block.
const LENGTH: usize = 4;

/// Room in a recovered value, for readers that put the digits of its revision into it: it then fills its memory.
pub(crate) fn room_for(revision: Revision) -> usize {
    revision.0.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A value as it is stored if that saves at least an eighth of its bytes.
pub(crate) fn pack(value: &[u8]) -> Option<Bytes> {
    let mut packed = vec![0; LENGTH + lz4_flex::block::get_maximum_output_size(value.len())];
    let (length, block) = packed.split_at_mut(LENGTH);
    length.copy_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
    let written = lz4_flex::block::compress_into(value, block).ok()?;
    packed.truncate(LENGTH + written);
    (packed.len() <= value.len() / 8 * 7).then(|| packed.into())
}

/// The length of a packed value before it was packed, or why it is not one.
pub fn unpacked_len(packed: &[u8]) -> Result<usize, String> {
    split(packed).map(|(length, _)| length)
}

/// The value as it was before it was packed, or why it is not one. It has room for so many bytes more.
pub fn unpack(packed: &[u8], room: usize) -> Result<Vec<u8>, String> {
    let (length, block) = split(packed)?;
    let mut value = Vec::with_capacity(length + room);
    value.resize(length, 0);
    let found = lz4_flex::block::decompress_into(block, &mut value).map_err(|_| bad())?;
    if found == length { Ok(value) } else { Err(bad()) }
}

impl RecoveredRecord {
    /// Unpacks the value, if it is packed; the error says why it is not one.
    pub fn unpack(&mut self) -> Result<(), String> {
        if let (Some(value), Some(EncodedBy { is_packed: is_packed @ true, .. })) =
            (&mut self.value, &mut self.encoded_by)
        {
            *value = unpack(value, room_for(self.revision))?.into();
            *is_packed = false;
        }
        Ok(())
    }
}

fn split(packed: &[u8]) -> Result<(usize, &[u8]), String> {
    let (length, block) = packed.split_first_chunk::<LENGTH>().ok_or_else(bad)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length <= MAX_VALUE_BYTES { Ok((length, block)) } else { Err(bad()) }
}

fn bad() -> String {
    "a compressed value is not one".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_packed_where_that_is_worth_it() {
        let text = br#"{"name":"a","value":"b"}"#.repeat(100);
        let packed = pack(&text).unwrap();
        assert!(packed.len() < text.len() / 10, "{}", packed.len());
        assert_eq!(unpack(&packed, 3).unwrap(), text);
        assert_eq!(unpacked_len(&packed), Ok(text.len()));
        let mut state = 7_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..1000).map(|_| noise()).collect();
        assert_eq!(pack(&noise), None);
        assert_eq!(pack(b""), None);
        assert_eq!(pack(b"{}"), None);
    }

    #[test]
    fn a_damaged_packed_value_is_refused() {
        let text = br#"{"name":"a","value":"b"}"#.repeat(10);
        let packed = pack(&text).unwrap();
        for end in 0..packed.len() {
            assert!(unpack(&packed[..end], 0).is_err(), "cut at {end}");
        }
        let mut longer = packed.to_vec();
        longer[0] += 1;
        assert!(unpack(&longer, 0).is_err());
        longer[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(unpack(&longer, 0).is_err() && unpacked_len(&longer).is_err());
    }
}
