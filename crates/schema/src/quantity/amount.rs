//! The amount: exact arithmetic, comparison, and the canonical text.

use std::cmp::Ordering;
use std::fmt;

/// The family of suffixes that a quantity is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `m`, `k`, `M`, ...
    Decimal,
    /// `e3`, `e6`, ...
    Exponent,
    /// `Ki`, `Mi`, ...
    Binary,
}

/// An amount.
#[derive(Debug, Clone)]
pub struct Quantity {
    pub(super) mantissa: i128,
    pub(super) exponent: i32,
    pub(super) family: Family,
    /// The text it came from, where that is given back unchanged.
    pub(super) kept: Option<Box<str>>,
}

/// The finest exponent: a billionth.
pub(super) const NANO: i32 = -9;
pub(super) const MILLI: i32 = -3;
/// Numbers below this one have as many digits as 64 bits always hold.
const FEW_DIGITS: u128 = 10u128.pow(18);

pub(super) const TENS: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
pub(super) const TWOS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Default for Quantity {
    fn default() -> Self {
        Quantity::new(0)
    }
}

impl Quantity {
    /// A whole number.
    pub fn new(number: i64) -> Self {
        Quantity { mantissa: number.into(), exponent: 0, family: Family::Decimal, kept: None }
    }

    /// A number of thousandths.
    pub fn from_milli(number: i64) -> Self {
        Quantity { mantissa: number.into(), exponent: MILLI, family: Family::Decimal, kept: None }
    }

    /// A number of bytes, written with binary suffixes.
    pub fn from_bytes(number: i64) -> Self {
        Quantity { family: Family::Binary, ..Self::new(number) }
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The integer, rounded away from zero and saturated.
    pub fn whole(&self) -> i64 {
        self.scaled(0)
    }

    /// The number of thousandths, rounded away from zero and saturated.
    pub fn milli(&self) -> i64 {
        self.scaled(MILLI)
    }

    /// Whether it is whole once it is rounded to thousandths, away from zero. Where these do not fit 64 bits, upstream
    /// takes a number with few digits for whole, and looks at the lowest 64 bits of another one.
    pub fn is_whole(&self) -> bool {
        let (milli, _) = self.at_exponent(MILLI);
        let has_few_digits = i64::try_from(milli).is_err() && self.mantissa.unsigned_abs() < FEW_DIGITS;
        has_few_digits || milli as i64 % 1000 == 0
    }

    /// Whether it is a multiple of a positive number once it is rounded away from zero.
    pub fn is_multiple_of(&self, step: i64) -> bool {
        step > 0 && self.at_exponent(0).0 % i128::from(step) == 0
    }

    /// The whole number, if it is one that fits 64 bits.
    pub fn as_whole(&self) -> Option<i64> {
        let (mantissa, exact) = self.at_exponent(0);
        i64::try_from(mantissa).ok().filter(|_| exact)
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let (mantissa, _) = self.at_exponent(exponent);
        i64::try_from(mantissa).unwrap_or(if mantissa < 0 { i64::MIN } else { i64::MAX })
    }

    /// The mantissa at another exponent, rounded away from zero, and whether nothing was lost.
    fn at_exponent(&self, exponent: i32) -> (i128, bool) {
        let up = i64::from(self.exponent) - i64::from(exponent);
        let power = u32::try_from(up.abs()).ok().and_then(|power| 10i128.checked_pow(power));
        match power {
            _ if self.mantissa == 0 => (0, true),
            Some(power) if up >= 0 => match self.mantissa.checked_mul(power) {
                Some(mantissa) => (mantissa, true),
                None => (if self.mantissa < 0 { i128::MIN } else { i128::MAX }, false),
            },
            Some(power) => {
                let rest = self.mantissa % power;
                (self.mantissa / power + rest.signum(), rest == 0)
            }
            None if up >= 0 => (if self.mantissa < 0 { i128::MIN } else { i128::MAX }, false),
            None => (self.mantissa.signum(), false),
        }
    }

    /// Rounded away from zero so that nothing finer than `10^exponent` is left.
    pub fn round_up(self, exponent: i32) -> Self {
        if self.exponent >= exponent || self.mantissa == 0 {
            return self;
        }
        let (mantissa, _) = self.at_exponent(exponent);
        Quantity { mantissa, exponent, family: self.family, kept: None }
    }

    /// The sum, in this one's family unless this one is zero.
    pub fn plus(&self, other: &Quantity) -> Quantity {
        let family = if self.is_zero() { other.family } else { self.family };
        let fine = match (self.is_zero(), other.is_zero()) {
            (true, _) => other.exponent,
            (_, true) => self.exponent,
            _ => self.exponent.min(other.exponent),
        };
        let (a, b) = (self.at_exponent(fine).0, other.at_exponent(fine).0);
        Quantity { mantissa: a.saturating_add(b), exponent: fine, family, kept: None }
    }

    /// The difference, in this one's family unless this one is zero.
    pub fn minus(&self, other: &Quantity) -> Quantity {
        self.plus(&Quantity { mantissa: other.mantissa.saturating_neg(), ..other.clone() })
    }

    /// Magnitude without trailing zeros: digits and the exponent of the last one.
    fn reduced(&self) -> (String, i64) {
        let digits = self.mantissa.unsigned_abs().to_string();
        let short = digits.trim_end_matches('0');
        let zeros = digits.len() - short.len();
        (short.to_owned(), i64::from(self.exponent) + zeros as i64)
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.sign().cmp(&other.sign());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        let ((a, ea), (b, eb)) = (self.reduced(), other.reduced());
        let magnitude = (ea + a.len() as i64).cmp(&(eb + b.len() as i64)).then_with(|| a.cmp(&b));
        if self.mantissa < 0 { magnitude.reverse() } else { magnitude }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.kept {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.family == Family::Binary {
            let (mut number, exact) = self.at_exponent(0);
            if exact && number.unsigned_abs() >= 1024 {
                let mut thousands = 0;
                while number % 1024 == 0 && thousands + 1 < TWOS.len() {
                    number /= 1024;
                    thousands += 1;
                }
                return write!(f, "{number}{}", TWOS[thousands]);
            }
        }
        let (digits, exponent) = self.reduced();
        let sign = if self.mantissa < 0 { "-" } else { "" };
        // down to a multiple of three
        let mut suffix = exponent.div_euclid(3) * 3;
        if self.family != Family::Exponent {
            suffix = suffix.min(18);
        }
        write!(f, "{sign}{digits}")?;
        (suffix..exponent).try_for_each(|_| f.write_str("0"))?;
        match self.family {
            Family::Exponent if suffix == 0 => Ok(()),
            Family::Exponent => write!(f, "e{suffix}"),
            _ => {
                f.write_str(TENS.iter().find(|(_, it)| i64::from(*it) == suffix).map_or("", |(name, _)| name))
            }
        }
    }
}
