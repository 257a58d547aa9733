//! `pintle etcd`: the etcd v3 API from an embedded store, with etcd's flags. A link named `etcd` runs it.

mod command;
mod flag_table;
mod options;

pub use command::{is_called, run};
pub use flag_table::flag_rows;
