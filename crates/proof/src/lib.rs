//! Proof: clients record what they did and saw while the server is killed, and a checker decides whether a correct server
//! can have answered so.
//!
//! ```text
//! server process ◄─ load (clients, watchers) ─► history ─► check ─► violations
//!       ▲
//! kill -9, restart
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `history` | operations, watches, and the order in which they happened |
//! | `check` | the rules: writes, reads, lists, watches |
//! | `load` | clients with random operations, and watchers |
//! | `server` | the process of the server: start, kill, restart |
//! | `encryption` | the configuration of encryption at rest |
//! | `etcd` | three members of an etcd: start, kill, pause, leader, compaction, alarms |
//! | `peer_links` | the connections between members, which can be cut |
//! | `crew` | the clients of a run, and the check of their histories |
//! | `crashes` | a run with one server that is killed |
//! | `etcd_faults` | a run with two servers on an etcd whose members fail |
//! | `report` | what was done and found, as text |
//! | `cluster` | whole clusters under a simulated clock, and what must hold in them at every change |
//!
//! Invariants: the checker knows nothing about the server but its API; a rule that no planted fault breaks is not a rule
//! (`check::tests`).

pub mod check;
pub mod cluster;
pub mod crashes;
mod crew;
mod encryption;
mod etcd;
pub mod etcd_faults;
pub mod history;
pub mod load;
mod peer_links;
pub mod report;
pub mod server;
