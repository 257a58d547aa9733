//! The Common Expression Language, as rules of the API use it.
//!
//! ```text
//! text ─ lexer ─ parser (macros) ─► Expr ─ check ─► Checked ─┬─ plan ─► Node ─ eval ─► value
//!                                                           └─ estimate ─► cost
//! ```
//!
//! An [`Env`] declares what variables are; it compiles an expression once to a [`Program`], which is evaluated
//! any number of times, by any number of threads, against the trees of objects as they are. What always holds:
//! an expression cannot loop, its nesting is bounded, and everything it does is charged to a [`Budget`], so
//! that no expression and no object can hold anybody up.
//!
//! Words, types, results, faults and costs are those that clients know from release 1.26; the cases in `tests/`
//! were recorded there.

mod check;
mod convert;
mod cost;
mod declared;
mod escape;
mod estimate;
mod eval;
mod expr;
mod fault;
mod functions;
mod lexer;
mod library;
mod literal;
mod macros;
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
pub use declared::{Declared, Object};
pub use escape::{escape, unescape};
pub use estimate::Estimate;
pub use fault::{Fault, Outcome};
pub use program::{CompileError, Env, EvalError, Program, Variables};
pub use source::{Issue, Issues};
pub use time::Timestamp;
pub use types::Type;
pub use url::Url;
pub use value::{CelValue, List, Map, Text};
