//! Gives back the pages of the program that only its start needed.
//!
//! The kernel maps 16 pages around each one that runs, and keeps them mapped: after a start most of the program's file is
//! part of the process. [`release`] unmaps all of it; what runs later is mapped again from the page cache, in steps of
//! [`STEP`]: the kernel maps no pages beyond a mapping, so the mappings of the program are divided.
//!
//! Invariant: only mappings that cannot be written and of which no page differs from the file are unmapped, so every page
//! reads the same afterwards.

use std::fs;
use std::io;
use std::ops::Range;

/// The size of the parts into which mappings are divided: four pages of the usual size.
const STEP: usize = 16 << 10;

/// Unmaps the pages of this program's file, and returns how many bytes of it were resident.
pub fn release() -> io::Result<u64> {
    let program = fs::read_link("/proc/self/exe")?;
    let mappings = fs::read_to_string("/proc/self/smaps")?;
    let mut released = 0;
    for mapping in unmodified(&mappings, &program.to_string_lossy()) {
        unmap(mapping.addresses)?;
        released += mapping.resident_bytes;
    }
    Ok(released)
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    addresses: Range<usize>,
    resident_bytes: u64,
}

/// The mappings of a file that are private, cannot be written and have no page of their own.
fn unmodified(smaps: &str, file: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut lines = smaps.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(addresses) = addresses(line, file) else { continue };
        let (mut resident_bytes, mut is_modified) = (0, false);
        // the fields of a mapping begin with a capital letter, the next mapping with an address
        while let Some(field) = lines.next_if(|it| it.starts_with(|first: char| first.is_ascii_uppercase())) {
            let kilobytes = |rest: &str| rest.trim().trim_end_matches(" kB").parse::<u64>().ok();
            match field.split_once(':') {
                Some(("Rss", rest)) => resident_bytes = kilobytes(rest).unwrap_or(0) * 1024,
                Some(("Anonymous" | "Swap", rest)) => is_modified |= kilobytes(rest) != Some(0),
                _ => {}
            }
        }
        if !is_modified {
            found.push(Mapping { addresses, resident_bytes });
        }
    }
    found
}

/// The addresses of a mapping's first line, if it is one of the file that cannot be written.
fn addresses(line: &str, file: &str) -> Option<Range<usize>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let is_fixed = matches!(words.next()?, "r--p" | "r-xp");
    let path = words.nth(3)?.trim_start();
    let address = |text| usize::from_str_radix(text, 16).ok();
    (is_fixed && path == file).then_some(address(start)?..address(end)?)
}

/// Divides a mapping into parts of [`STEP`], and unmaps its pages.
fn unmap(addresses: Range<usize>) -> io::Result<()> {
    // Neighbours with different advice are two mappings. A core dump leaves out pages of files anyway.
    for part in every_second_part(&addresses) {
        // there is a limit of mappings: larger ones are as good
        if advise(part, libc::MADV_DONTDUMP).is_err() {
            break;
        }
    }
    advise(addresses, libc::MADV_DONTNEED)
}

/// Every second part of a range. They are the same parts of a range that was divided before.
fn every_second_part(addresses: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let Range { start, end } = *addresses;
    (start - start % (2 * STEP)..end)
        .step_by(2 * STEP)
        .map(move |part| part.max(start)..(part + STEP).min(end))
        .filter(|part| !part.is_empty())
}

#[allow(unsafe_code, reason = "see the decision; the pages are equal to those of the file before and after")]
fn advise(addresses: Range<usize>, advice: libc::c_int) -> io::Result<()> {
    let start = std::ptr::without_provenance_mut(addresses.start);
    // SAFETY: the mapping is private, cannot be written, and has no page that differs from its file, so the kernel reads
    // the same bytes again when they are used. Without MADV_DONTNEED nothing is unmapped.
    match unsafe { libc::madvise(start, addresses.len(), advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_without_modified_pages_are_found() {
        let smaps = "\
55d0c0000000-55d0c0400000 r--p 00000000 fe:00 1 /usr/bin/pintle
Rss:                1024 kB
Anonymous:             0 kB
Swap:                  0 kB
55d0c0400000-55d0c0800000 r-xp 00400000 fe:00 1    /usr/bin/pintle
Rss:                2048 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
55d0c0800000-55d0c0900000 r--p 00800000 fe:00 1 /usr/bin/pintle
Rss:                 512 kB
Anonymous:           512 kB
55d0c0900000-55d0c0a00000 rw-p 00900000 fe:00 1 /usr/bin/pintle
Rss:                 512 kB
Anonymous:             0 kB
7f0000000000-7f0000400000 r-xp 00000000 fe:00 2 /usr/lib/libc.so.6
Rss:                 512 kB
Anonymous:             0 kB
7f0000400000-7f0000401000 r--p 00000000 00:00 0
Rss:                   4 kB
";
        let expected = [
            Mapping { addresses: 0x55d0_c000_0000..0x55d0_c040_0000, resident_bytes: 1 << 20 },
            Mapping { addresses: 0x55d0_c040_0000..0x55d0_c080_0000, resident_bytes: 2 << 20 },
        ];
        assert_eq!(unmodified(smaps, "/usr/bin/pintle"), expected);
    }

    #[test]
    fn the_program_goes_on_with_fewer_pages() {
        let before = release().unwrap();
        assert!(before > 0);
        // this ran again, and only its surroundings are resident
        assert!(release().unwrap() < before);
        let program = fs::read_link("/proc/self/exe").unwrap();
        let mappings = fs::read_to_string("/proc/self/smaps").unwrap();
        let divided = unmodified(&mappings, &program.to_string_lossy());
        assert!(divided.len() > 2, "{divided:?}");
        assert!(divided.iter().all(|it| it.addresses.len() <= STEP), "{divided:?}");
    }

    #[test]
    fn the_parts_of_a_part_are_the_same() {
        let parts = |addresses: Range<usize>| every_second_part(&addresses).collect::<Vec<_>>();
        let at = |part: usize| part * STEP..(part + 1) * STEP;
        assert_eq!(parts(2 * STEP..7 * STEP), [at(2), at(4), at(6)]);
        assert_eq!(parts(3 * STEP..4 * STEP), [], "the second of two");
        assert_eq!(parts(at(4)), [at(4)]);
        let end_of_one = 2 * STEP + 4096..3 * STEP;
        assert_eq!(parts(end_of_one.clone()), [end_of_one]);
        let begin_of_one = 6 * STEP..6 * STEP + 4096;
        assert_eq!(parts(5 * STEP..begin_of_one.end), [begin_of_one]);
    }
}
