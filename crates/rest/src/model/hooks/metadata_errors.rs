//! The order of metadata errors that validation reports more than once.

/// Rules of object metadata, and the place of a kind's rules among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataRules {
    /// Rules of the next state.
    State,
    /// Rules of the change from the state before.
    Change,
    /// Rules of the kind about the next state; without this entry they come last.
    OfKind,
    /// Rules of the kind about the change; without this entry they come behind those of the state.
    OfChange,
}

/// The metadata errors that an update repeats, in this order. Every update reports them once, as rules of all objects;
/// most kinds of the API check them again as rules of their own, and clients compare the causes. A kind that repeats
/// none validates the metadata of a new object last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedMetadataErrors(pub &'static [MetadataRules]);

impl RepeatedMetadataErrors {
    /// Everything about the change, then everything about the next state.
    pub const CHANGE_FIRST: Self = RepeatedMetadataErrors(&[
        MetadataRules::Change,
        MetadataRules::OfChange,
        MetadataRules::State,
        MetadataRules::OfKind,
    ]);
}

impl Default for RepeatedMetadataErrors {
    fn default() -> Self {
        RepeatedMetadataErrors(&[MetadataRules::Change, MetadataRules::State])
    }
}
