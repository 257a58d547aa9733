//! Integers or percentages of a total: `3`, or `25%`.

use api::IntOrString;

/// The direction in which a fraction is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// The number that a value stands for. Zero if it is absent, negative or invalid.
pub fn scaled_value(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    let percent = match value {
        None => return 0,
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text.strip_suffix('%').and_then(|it| it.parse::<u32>().ok()),
    };
    let exact = i64::from(percent.unwrap_or(0)) * i64::from(total.max(0));
    let rounded = match round {
        Round::Up => exact.saturating_add(99) / 100,
        Round::Down => exact / 100,
    };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_total() {
        let check = |part: &str, whole, up, down| {
            let part = match part.parse() {
                Ok(number) => IntOrString::Int(number),
                Err(_) => IntOrString::String(part.to_owned()),
            };
            let of = |round| scaled_value(Some(&part), whole, round);
            assert_eq!((of(Round::Up), of(Round::Down)), (up, down), "{part:?} of {whole}");
        };
        check("3", 10, 3, 3);
        check("-3", 10, 0, 0);
        check("25%", 10, 3, 2);
        check("100%", 7, 7, 7);
        check("0%", 7, 0, 0);
        check("x", 7, 0, 0);
        check("-5%", 7, 0, 0);
        check("50%", -7, 0, 0);
        check("4294967295%", i32::MAX, i32::MAX, i32::MAX);
        assert_eq!(scaled_value(None, 7, Round::Up), 0);
    }
}
