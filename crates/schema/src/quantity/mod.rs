//! Quantities: amounts with a suffix, such as `500m`, `1536Mi` and `12e6`.
//!
//! A quantity is `mantissa × 10^exponent`, exact down to a billionth; finer amounts are rounded away from
//! zero, so that a small request never becomes zero. It keeps the suffix family of its text, and its canonical text has
//! that family:
//!
//! ```text
//! 1000m → 1      0.5 → 500m     1024Ki → 1Mi    1.5Gi → 1536Mi    100e3 → 100e3    0.1Ki → 102400m
//! ```
//!
//! Text that is already short enough is kept to the letter, even where the canonical text is another (`+5`,
//! `05Mi`, `5.`, `1E6`): as upstream accepts them.
//!
//! Two things differ from the API on purpose: more than 38 significant digits are rounded, and an amount
//! beyond the largest suffix keeps its zeros (`1000E`) where the API loses them.

mod amount;
mod parse;
#[cfg(test)]
mod tests;

pub use amount::{Family, Quantity};
pub use parse::{QuantityError, canonical, canonical_milli};
