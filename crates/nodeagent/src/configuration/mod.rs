//! The configuration of the agent: `KubeletConfiguration` (`NodeAgentConfiguration`) from a file, overridden by flags.
//!
//! | module | what it is |
//! |---|---|
//! | `fields` | the table of fields: names, types, defaults, flags (`fields.txt`) |
//! | `object_text` | the text of an object, up to its kind and version |
//! | `decode` | a text becomes a tree; unknown fields are ignored, wrong types are errors in upstream's words |
//! | `values` | [`Configuration`]: the tree with all defaults, and typed reads |
//! | `flags` | upstream's command line ([`Flags`]), and how it overrides the file |
//! | `flag_values` | values of flags by type |
//! | `flag_checks` | checks of flags that are no fields |
//! | `validate` | checks of values that need nothing else |
//! | `start` | checks that upstream makes when it starts: reserved resources, eviction thresholds, policies, TLS |
//! | `policy_options` | options of the CPU manager and the topology manager |
//! | `gates` | feature gates, known names handed in |
//!
//! Invariants: the texts of errors are upstream's. A checked configuration has every field that has a default.

pub mod cpuset;
mod decode;
mod error;
mod fields;
mod flag_checks;
mod flag_values;
mod flags;
mod gates;
mod load;
pub mod object_text;
pub mod policy_options;
mod start;
mod validate;
mod values;

pub use error::StartError;
pub use flags::{DIALECT_FLAGS, FlagRow, Flags, help, ignored_fields, rows as flag_rows};
pub use gates::{AGENT_GATES, Gate, Gates};
pub use load::{Loaded, load};
pub use start::check_swap;
pub use values::Configuration;
