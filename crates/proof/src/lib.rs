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
//! | `crashes` | a run: load, kills, check |
//! | `report` | what was done and found, as text |
//!
//! Invariants: the checker knows nothing about the server but its API; a rule that no planted fault breaks is not a rule
//! (`check::tests`).

pub mod check;
pub mod crashes;
pub mod history;
pub mod load;
pub mod report;
pub mod server;
