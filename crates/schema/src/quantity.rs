//! Amounts with a suffix: `500m`, `1536Mi`, `12e6`.
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

use std::cmp::Ordering;
use std::fmt;

/// The error of text that is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
}

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
    mantissa: i128,
    exponent: i32,
    family: Family,
    /// The text it came from, where that is given back unchanged.
    kept: Option<Box<str>>,
}

/// Significant digits that always fit the mantissa.
const DIGITS: usize = 38;
/// The finest exponent: a billionth.
const NANO: i32 = -9;
const MILLI: i32 = -3;

/// Parses and gives the text that the API gives back.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    match short(text) {
        Some((_, true)) => Ok(text.to_owned()),
        _ => Ok(text.parse::<Quantity>()?.to_string()),
    }
}

/// As [`canonical`], rounded up to thousandths as the resources of a container are.
pub fn canonical_milli(text: &str) -> Result<String, QuantityError> {
    match short(text) {
        // nothing that is short is finer than a thousandth
        Some((_, true)) => Ok(text.to_owned()),
        _ => Ok(text.parse::<Quantity>()?.round_up(MILLI).to_string()),
    }
}

/// What most quantities are: a few digits and a common suffix, read without further ado. Says also whether the
/// text is kept.
fn short(text: &str) -> Option<(Quantity, bool)> {
    const MOST: usize = 9;
    let bytes = text.as_bytes();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > MOST || bytes[0] == b'0' {
        return None;
    }
    let number = bytes[..digits].iter().fold(0i64, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    let tens = |exponent| {
        let quantity = Quantity { mantissa: number.into(), exponent, family: Family::Decimal, kept: None };
        Some((quantity, number % 1000 != 0))
    };
    let twos = |power: u32| {
        let mantissa = i128::from(number) << power;
        let quantity = Quantity { mantissa, exponent: 0, family: Family::Binary, kept: None };
        let kept = digits as u32 + power * 3 / 10 <= 14 && number & 7 != 0;
        (mantissa <= i64::MAX.into()).then_some((quantity, kept))
    };
    match &bytes[digits..] {
        b"m" => tens(MILLI),
        b"" => tens(0),
        b"k" => tens(3),
        b"M" => tens(6),
        b"G" => tens(9),
        b"Ki" => twos(10),
        b"Mi" => twos(20),
        b"Gi" => twos(30),
        b"Ti" => twos(40),
        _ => None,
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if let Some((quantity, kept)) = short(text) {
            return Ok(Quantity { kept: kept.then(|| text.into()), ..quantity });
        }
        long(text)
    }
}

/// Text of any form.
fn long(text: &str) -> Result<Quantity, QuantityError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let parts = Parts::of(text)?;
    let suffix = Suffix::of(parts.suffix)?;
    if parts.lacks_digits(text, suffix) {
        return Err(QuantityError::Numeric);
    }
    let mut quantity = match suffix {
        Suffix::Ten(exponent, family) => parts.decimal(exponent, family),
        Suffix::Two(power) => parts.binary(power),
    };
    if parts.negative {
        quantity.mantissa = -quantity.mantissa;
    }
    if parts.is_kept(suffix) {
        quantity.kept = Some(text.into());
    }
    Ok(quantity)
}

/// The pieces of the text, without judging them.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let number = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { negative: text.starts_with('-'), whole, fraction, suffix })
    }

    /// No digit at all is zero, but only where the suffix leaves room for a short way of reading it.
    fn lacks_digits(&self, text: &str, suffix: Suffix) -> bool {
        let number = &text[..text.len() - self.suffix.len()];
        let short = match suffix {
            Suffix::Ten(exponent, _) => exponent >= NANO,
            Suffix::Two(power) => power <= 40,
        };
        !short && !number.bytes().any(|b| b.is_ascii_digit())
    }

    fn all_digits(&self) -> Vec<u8> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|b| b - b'0').collect()
    }

    fn decimal(&self, exponent: i32, family: Family) -> Quantity {
        let exponent = i64::from(exponent) - self.fraction.len() as i64;
        let (mantissa, exponent) = settle(&self.all_digits(), exponent);
        Quantity { mantissa, exponent, family, kept: None }
    }

    fn binary(&self, power: u32) -> Quantity {
        let biggest = Quantity { mantissa: i64::MAX.into(), exponent: 0, family: Family::Binary, kept: None };
        // the fraction times 2^power, digit by digit from the right; what is carried out at the left is whole
        let mut fraction: Vec<u8> = self.fraction.bytes().map(|b| b - b'0').collect();
        let mut carry: u128 = 0;
        for digit in fraction.iter_mut().rev() {
            carry += u128::from(*digit) << power;
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        let whole = if self.whole.len() > 19 { None } else { Some(self.whole.parse::<u128>().unwrap_or(0)) };
        let Some(whole) = whole.map(|whole| (whole << power) + carry).filter(|it| *it <= i64::MAX as u128)
        else {
            return biggest;
        };
        let mut all: Vec<u8> = whole.to_string().bytes().map(|b| b - b'0').collect();
        all.extend(&fraction);
        let (mantissa, exponent) = settle(&all, -(fraction.len() as i64));
        let quantity = Quantity { mantissa, exponent, family: Family::Binary, kept: None };
        if quantity > biggest {
            return biggest;
        }
        // less than one cannot be said in binary suffixes
        let family = if whole == 0 && mantissa != 0 { Family::Decimal } else { Family::Binary };
        Quantity { family, ..quantity }
    }

    /// Whether the text counts as canonical already; coarser than it could be, but visible to clients.
    fn is_kept(&self, suffix: Suffix) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let length = whole.len() + self.fraction.len();
        match suffix {
            Suffix::Ten(exponent, _) => {
                let scale = i64::from(exponent) - self.fraction.len() as i64;
                let thousands = || self.all_digits().ends_with(&[0, 0, 0]);
                length <= 18
                    && scale >= NANO.into()
                    && scale % 3 == 0
                    && !whole.starts_with('0')
                    && !thousands()
            }
            Suffix::Two(power) => {
                let length = whole.len() as u32 + power * 3 / 10;
                let odd = || whole.parse::<u64>().is_ok_and(|it| it & 7 != 0);
                self.fraction.is_empty() && length <= 14 && odd()
            }
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Digits times a power of ten, rounded away from zero into the range of a quantity.
fn settle(digits: &[u8], exponent: i64) -> (i128, i32) {
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = &digits[leading..];
    if digits.is_empty() {
        return (0, 0);
    }
    let too_fine = usize::try_from(i64::from(NANO) - exponent).unwrap_or(0);
    let too_many = digits.len().saturating_sub(DIGITS);
    let cut = too_fine.max(too_many);
    let (kept, dropped) = digits.split_at(digits.len().saturating_sub(cut));
    let mut mantissa = kept.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(*digit));
    if dropped.iter().any(|digit| *digit != 0) {
        mantissa += 1;
    }
    let exponent = exponent.saturating_add(cut as i64);
    (mantissa, i32::try_from(exponent).unwrap_or(i32::MAX))
}

#[derive(Clone, Copy)]
enum Suffix {
    Ten(i32, Family),
    Two(u32),
}

const TENS: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const TWOS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Suffix {
    fn of(text: &str) -> Result<Self, QuantityError> {
        if let Some((_, exponent)) = TENS.iter().find(|(name, _)| *name == text) {
            return Ok(Suffix::Ten(*exponent, Family::Decimal));
        }
        if let Some(thousands) = TWOS.iter().position(|name| *name == text) {
            return Ok(Suffix::Two(10 * thousands as u32));
        }
        let number = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
        let exponent = number.parse::<i32>().map_err(|_| QuantityError::Suffix)?;
        Ok(Suffix::Ten(exponent, Family::Exponent))
    }
}

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

    /// Whether it is a whole number that fits 64 bits.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn the_short_way_leads_where_the_long_one_does() {
        let mut taken = 0;
        for number in
            [1, 7, 8, 10, 64, 100, 999, 1000, 1001, 1024, 8000, 8001, 65_536, 123_456_789, 999_999_999]
        {
            for suffix in ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "Pi", "n", "e3", "x"] {
                let text = format!("{number}{suffix}");
                let (short_way, long_way) = (text.parse::<Quantity>(), long(&text));
                assert_eq!(format!("{short_way:?}"), format!("{long_way:?}"), "{text}");
                let text_of = |it: Quantity| it.to_string();
                assert_eq!(canonical(&text), long_way.clone().map(text_of), "{text}");
                assert_eq!(canonical_milli(&text), long_way.map(|it| text_of(it.round_up(MILLI))), "{text}");
                taken += usize::from(short(&text).is_some());
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn given_back_as_the_api_does() {
        for pair in [
            "1000m 1",
            "0.5 500m",
            "1024Ki 1Mi",
            "1.5Gi 1536Mi",
            "1e3 1e3",
            "1E3 1E3",
            "12e4 120e3",
            "1e5 100e3",
            "1500e-3 1500e-3",
            "0 0",
            ".5 500m",
            "5. 5.",
            "+5 +5",
            "05Mi 05Mi",
            "1.0 1",
            "- 0",
            "+ 0",
            ". 0",
            "1e100 10e99",
            "1e-20 1e-9",
            "1n 1n",
            "0.1n 1n",
            "1.1n 2n",
            "-0.1n -1n",
            "-1.1n -2n",
            "-0.5 -500m",
            "12345678901234567890 12345678901234567890",
            "9223372036854775808 9223372036854775808",
            "16Ei 9223372036854775807",
            "7Ei 7Ei",
            "8Ei 9223372036854775807",
            "-9Ei -9223372036854775807",
            "1e18 1e18",
            "1e21 1e21",
            "1e-30 1e-9",
            "0e5 0",
            "0Gi 0",
            "0.0 0",
            "-0 0",
            "1E 1E",
            "1e+3 1e+3",
            "1.5Ki 1536",
            "1000Ki 1000Ki",
            "0.001Ki 1024m",
            "0.1Ki 102400m",
            "1.5u 1500n",
            "1024000Ki 1000Mi",
            "100000000000000000000000000000n 100E",
            "1.2345678901234567890123E 1234567890123456789012300u",
            "1.00000000000000000000000000000000001Ei 1152921504606846976000000001n",
            "12000m 12",
            "3000000m 3k",
            "1.0000000001Ti 1099511627885951162778n",
            "-1048576Ki -1Gi",
            "9Ki 9Ki",
            "+9Ki +9Ki",
            "8Ki 8Ki",
            "0.00000000000000000000000000000000001Ei 1n",
            "1.000Ki 1Ki",
            "1e00 1e00",
            "1E18 1E18",
            "1000000000000 1T",
            "12345678901234567890Ki 9223372036854775807",
            "1000E 1000E",
            "1e1000000000 10e999999999",
            "1e-1000000000 1e-9",
            "1.5G 1500M",
            " 7 7",
        ] {
            let (text, expected) = pair.rsplit_once(' ').unwrap();
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
            assert_eq!(canonical(expected).as_deref(), Ok(expected), "{text} again");
        }
    }

    #[test]
    fn refused_as_the_api_does() {
        for text in ["", "1e3k", "1e12k", "0x10", "1_000", "1e2e", "x", "1 k", "é", "1é", "--1-"] {
            assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
        }
        for text in
            ["1Kii", "1e", "1i", "+-1", "1-1", "1+1", "1Mi5", "1M5", "1m-5", "1e99999999999", "--1", "1ee3"]
        {
            assert_eq!(canonical(text), Err(QuantityError::Suffix), "{text}");
        }
    }

    #[test]
    fn a_number_is_missing() {
        assert_eq!(canonical("Ki").as_deref(), Ok("0"));
        assert_eq!(canonical("Pi"), Err(QuantityError::Numeric));
        assert_eq!(canonical("-e-12"), Err(QuantityError::Numeric));
        assert_eq!(canonical("0Pi").as_deref(), Ok("0"));
    }

    #[test]
    fn whole_and_milli_round_away_from_zero() {
        for (text, whole, milli) in [
            ("1500m", 2, 1500),
            ("-1500m", -2, -1500),
            ("1n", 1, 1),
            ("-1n", -1, -1),
            ("1e-20", 1, 1),
            ("1.1Ki", 1127, 1_126_400),
            ("1e30", i64::MAX, i64::MAX),
            ("-1e30", i64::MIN, i64::MIN),
            ("1e2000000000", i64::MAX, i64::MAX),
        ] {
            assert_eq!((q(text).whole(), q(text).milli()), (whole, milli), "{text}");
        }
        assert_eq!(q("1500m").as_whole(), None);
        assert_eq!(q("3k").as_whole(), Some(3000));
        assert_eq!(canonical_milli("1n").as_deref(), Ok("1m"));
        assert_eq!(canonical_milli("+5").as_deref(), Ok("+5"));
        assert_eq!(canonical_milli("0.0001Ki").as_deref(), Ok("103m"));
    }

    #[test]
    fn order_and_sums() {
        let ascending = [
            "-1e3000",
            "-2",
            "-1.5",
            "0",
            "1n",
            "1m",
            "999m",
            "1",
            "1.5",
            "1k",
            "1Ki",
            "1e9",
            "1Gi",
            "1e2000000000",
        ];
        for pair in ascending.windows(2) {
            assert!(q(pair[0]) < q(pair[1]), "{pair:?}");
        }
        assert_eq!(q("1000m"), q("1"));
        assert_eq!(q("1Gi").plus(&q("1Gi")).to_string(), "2Gi");
        assert_eq!(q("1").minus(&q("250m")).to_string(), "750m");
        assert_eq!(q("0").plus(&q("1Mi")).to_string(), "1Mi");
        assert_eq!(q("1").minus(&q("1")).to_string(), "0");
        assert_eq!(q("1e2000000000").plus(&q("1n")).sign(), 1);
        assert_eq!(Quantity::from_bytes(2048).to_string(), "2Ki");
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    }

    #[test]
    fn long_texts_are_linear_and_harmless() {
        let nines = "9".repeat(100_000);
        assert!(canonical(&nines).unwrap().starts_with("1000"));
        assert_eq!(canonical(&format!("0.{nines}")).as_deref(), Ok("1"));
        assert_eq!(canonical(&format!("{nines}.{nines}Gi")).as_deref(), Ok("9223372036854775807"));
        assert!(canonical(&format!("1e{nines}")).is_err());
    }
}
