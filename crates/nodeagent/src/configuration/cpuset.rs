//! Lists of CPUs, such as `0-3,7`.

use std::collections::BTreeSet;

/// CPUs by number.
pub type CpuSet = BTreeSet<u32>;

/// The most CPUs of a list, more than a kernel knows.
const MAX_CPUS: u32 = 1 << 16;

/// The text of a set: ranges and numbers.
pub fn format(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

/// Parses a list; the errors are upstream's.
pub fn parse(text: &str) -> Result<CpuSet, String> {
    let number = |text: &str| {
        text.parse::<u32>().map_err(|_| {
            let why = if text.bytes().all(|it| it.is_ascii_digit()) && !text.is_empty() {
                "value out of range"
            } else {
                "invalid syntax"
            };
            format!("strconv.Atoi: parsing {text:?}: {why}")
        })
    };
    let mut all = BTreeSet::new();
    if text.is_empty() {
        return Ok(all);
    }
    let mut left = MAX_CPUS;
    for range in text.split(',') {
        let (first, last) = match range.split_once('-') {
            None => {
                let cpu = number(range)?;
                (cpu, cpu)
            }
            Some((first, last)) => (number(first)?, number(last)?),
        };
        if first > last {
            return Err(format!("invalid range {range:?} ({first} >= {last})"));
        }
        // also CPUs that are named twice: they take time
        left = (last - first)
            .checked_add(1)
            .and_then(|count| left.checked_sub(count))
            .ok_or_else(|| format!("invalid range {range:?}: too many CPUs"))?;
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_numbers_are_read() {
        assert_eq!(parse("0-2,5").unwrap(), BTreeSet::from([0, 1, 2, 5]));
        assert_eq!(format(&parse("5,0-2,7,8").unwrap()), "0-2,5,7-8");
        assert_eq!(format(&CpuSet::new()), "");
        assert_eq!(parse("3-1").unwrap_err(), "invalid range \"3-1\" (3 >= 1)");
        assert_eq!(parse("x").unwrap_err(), "strconv.Atoi: parsing \"x\": invalid syntax");
    }

    #[test]
    fn a_list_of_many_ranges_is_no_longer_than_one_range() {
        assert_eq!(parse("0-65535").unwrap().len(), 1 << 16);
        let too_many = |text: &str| parse(text).unwrap_err().ends_with("too many CPUs");
        assert!(too_many("0-65536"));
        assert!(too_many("0-40000,50000-90000"));
        assert!(too_many("0-40000,0-40000"));
        assert!(too_many("0-4294967295"));
    }
}
