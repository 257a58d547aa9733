//! Normalization of scores to 0 to 100.

use crate::framework::MAX_NODE_SCORE;

/// Scales scores so that the greatest becomes 100; reversed, zero becomes 100.
pub fn by_maximum(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        let scaled = match most {
            0 => 0,
            most => (i128::from(MAX_NODE_SCORE) * i128::from(*score) / i128::from(most)) as i64,
        };
        *score = match (most, reverse) {
            (0, false) => *score,
            (_, true) => MAX_NODE_SCORE - scaled,
            (_, false) => scaled,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_becomes_100() {
        for (given, reverse, expected) in [
            ([1, 2, 3, 4], false, [25, 50, 75, 100]),
            ([1, 2, 3, 4], true, [75, 50, 25, 0]),
            ([1000, 10, 20, 30], true, [0, 99, 98, 97]),
            ([0, 0, 0, 0], false, [0, 0, 0, 0]),
            ([0, 0, 0, 0], true, [100, 100, 100, 100]),
        ] {
            let mut scores = given;
            by_maximum(&mut scores, reverse);
            assert_eq!(scores, expected);
        }
    }
}
