//! Numbers that may be said as a part of a whole: `3`, or `25%`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a part is rounded that does not come out even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// How much that is. What cannot be understood, and what is less than nothing, is nothing.
pub fn scaled_value(part: Option<&IntOrString>, whole: i32, round: Round) -> i32 {
    let percent = match part {
        None => return 0,
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text.strip_suffix('%').and_then(|it| it.parse::<u32>().ok()),
    };
    let exact = i64::from(percent.unwrap_or(0)) * i64::from(whole.max(0));
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
    fn parts_of_a_whole() {
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
