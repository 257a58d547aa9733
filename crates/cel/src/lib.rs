//! The Common Expression Language, as validation rules of the API use it.
//!
//! ```text
//! text ─ lexer ─ parser (macros) ─► Expr ─ check ─► Checked ─┬─ plan ─► Node ─ eval ─► value
//!                                                           └─ estimate ─► cost
//! ```
//!
//! An [`Env`] declares the variables; it compiles an expression once to a [`Program`], which is evaluated any
//! number of times, by any number of threads, against the trees of objects in place. Invariants: an expression
//! cannot loop, its nesting is bounded, and every step is charged to a [`Budget`], so that no expression and no
//! object can block the server.
//!
//! Syntax, types, results, errors and costs are those of release 1.26; the cases in `tests/` were recorded there.

mod builder;
mod check;
mod convert;
mod cost;
mod declaration;
mod escape;
mod estimate;
mod eval;
mod expr;
mod fault;
mod functions;
mod grammar;
mod lexer;
mod library;
mod literal;
mod macros;
mod memory_budget;
mod operators;
mod parser;
mod plan;
mod program;
mod source;
mod strings;
mod time;
mod types;
mod url;
mod value;

pub use cost::{Budget, PER_CALL, PER_EXPRESSION, PER_OBJECT, PER_SCHEMA};
pub use declaration::{Declaration, Object};
pub use escape::{escape, unescape};
pub use estimate::Estimate;
pub use fault::{Fault, Outcome};
pub use program::{CompileError, Env, EvalError, Program, Variables};
pub use source::{Issue, Issues};
pub use time::Timestamp;
pub use types::Type;
pub use url::Url;
pub use value::{CelValue, List, Map, Text};
