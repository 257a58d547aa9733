//! Limits of patches: operations, nesting, copied bytes, shifted entries, items merged repeatedly.

/// Most operations of a JSON patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// Deepest nesting of a patched object; the decoder has the same limit.
pub const MAX_DEPTH: usize = 512;
/// Most bytes of JSON, approximately, that all `copy` operations of a JSON patch add together.
pub const MAX_COPIED: usize = 3 << 20;
/// Most entries of lists and maps that a JSON patch shifts in total.
pub(crate) const MAX_SHIFTED: usize = 20_000_000;
/// Most entries, in total, of the items that a strategic merge patch changes again after it has changed them.
pub(crate) const MAX_MERGED_AGAIN: usize = 2_000_000;
