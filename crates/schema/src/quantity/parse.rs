//! The parser of quantities: a fast path for common texts, and the general form.

use super::amount::{Family, MILLI, NANO, Quantity, TENS, TWOS};

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

/// Significant digits that always fit the mantissa.
const DIGITS: usize = 38;

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

/// The fast path for most quantities: a few digits and a common suffix. Also returns whether the
/// text is kept.
pub(super) fn short(text: &str) -> Option<(Quantity, bool)> {
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
pub(super) fn long(text: &str) -> Result<Quantity, QuantityError> {
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
