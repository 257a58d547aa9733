//! Tests over all patch formats, and the recorded scenarios that the tests of single formats read.

mod properties;
pub(crate) mod recorded;
