//! Which version of an API is better: stable before beta before alpha, then the greater number, then any other
//! name in the order of the alphabet: `v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > a1 > b1`.

use std::cmp::Reverse;

/// How good a version is; greater is better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u8, u32, u32, Reverse<String>);

pub fn rank(version: &str) -> Rank {
    let (level, major, minor) = numbered(version).unwrap_or((0, 0, 0));
    Rank(level, major, minor, Reverse(if level == 0 { version.to_owned() } else { String::new() }))
}

/// Level, number and number within the level of a name such as `v1beta2`.
fn numbered(version: &str) -> Option<(u8, u32, u32)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|it| it.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok())?
    };
    let rest = version.strip_prefix('v')?;
    for (track, level) in [("beta", 2), ("alpha", 1)] {
        if let Some((major, minor)) = rest.split_once(track) {
            return Some((level, number(major)?, number(minor)?));
        }
    }
    Some((3, number(rest)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability() {
        let mut versions =
            ["foo10", "v1alpha1", "v10", "v1beta2", "v1", "foo1", "v1beta10", "v2", "v0", "V1"];
        versions.sort_by_key(|version| Reverse(rank(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "V1", "foo1", "foo10", "v0"]
        );
    }
}
