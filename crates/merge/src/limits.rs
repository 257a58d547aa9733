//! Limits of patches: operations, nesting, copied bytes, shifted entries.

/// Most operations of a JSON patch.
pub const MAX_OPERATIONS: usize = 10_000;
/// Deepest nesting of a patched object; the decoder has the same limit.
pub const MAX_DEPTH: usize = 512;
/// Most bytes of JSON, approximately, that all `copy` operations of a JSON patch add together.
pub const MAX_COPIED: usize = 3 << 20;
/// Most entries of lists and maps that a JSON patch shifts in total.
pub(crate) const MAX_SHIFTED: usize = 20_000_000;
