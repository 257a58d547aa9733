//! Packet filter rules (nf_tables) and tracked connections, over netlink.
//!
//! A [`Ruleset`] is the typed model of tables, chains, rules and sets. [`diff`] compares two of them, and yields a
//! [`Batch`], which [`Connection::commit`] writes as one transaction: all of it takes effect, or nothing. Programs that
//! change few elements of large sets build their batch directly.
//!
//! ```text
//! let service = [destination_address, Selector::l4_protocol(), Selector::destination_port()];
//! let rule = Rule::new([Statement::verdict_map(service, "services")]);
//! ```
//!
//! A rule is written with statements, like those of the program `nft`; registers and expressions of the kernel are
//! chosen in `expression`. Rules carry a hash of their expressions, so that rules which are read back after a restart are
//! compared without parsing expressions. Every call is a system call that the kernel answers before it returns; a
//! large batch takes tens of milliseconds, so asynchronous callers use a thread for blocking work.

mod attribute;
mod batch;
mod connection;
pub mod conntrack;
mod diff;
mod difference;
mod expression;
mod ranges;
mod read;
mod rule;
mod ruleset;
pub mod statement;
mod table_writer;
mod tracked_table;
mod value;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use batch::{Batch, Change};
pub use connection::{ChangeError, Connection, Error, Generation};
pub use diff::diff;
pub use difference::{Difference, Transition};
pub use ranges::{AddressRange, Prefix, merge, subtract};
pub use rule::Rule;
pub use ruleset::{
    BaseChain, Chain, ChainType, Data, DynamicElements, Element, Family, Hook, Name, Priority, Ruleset, Set,
    SetData, SetType, Table, TableId, Verdict,
};
pub use statement::{AddressSide, Selector, Statement};
pub use table_writer::{SyncKind, TableWriter};
pub use tracked_table::TrackedTable;
pub use value::{Field, FieldType, Protocol, Value};
