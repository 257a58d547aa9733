//! Reads tar archives: ustar, PAX and GNU names; entries as a stream.
//!
//! Invariants: an extended header is read no further than [`EXTENSION_LIMIT`], so a hostile archive cannot take memory;
//! a checksum that is wrong ends the archive with an error. Sparse files are refused, as layers have none. Paths are
//! those of the archive: `unpack` decides where they lead.

use super::error::ImageError;
use std::io::{self, Read};

const BLOCK: usize = 512;
/// The largest extended header.
const EXTENSION_LIMIT: u64 = 1024 * 1024;
const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

/// The header of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: EntryKind,
    pub path: Vec<u8>,
    /// Target of a link.
    pub link: Vec<u8>,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub size: u64,
    /// Seconds and nanoseconds since the epoch.
    pub modified: (i64, u32),
    pub device: (u32, u32),
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Values of an extended header.
#[derive(Debug, Clone, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    uid: Option<u64>,
    gid: Option<u64>,
    size: Option<u64>,
    modified: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// See the module. Reading from it reads the data of the last entry.
pub struct TarReader<R> {
    input: R,
    /// Data of the current entry that was not read yet, and the padding after it.
    left: u64,
    padding: u64,
}

fn invalid(message: impl Into<String>) -> ImageError {
    ImageError::Invalid(format!("the archive is invalid: {}", message.into()))
}

fn broken(why: io::Error) -> ImageError {
    match why.kind() {
        io::ErrorKind::UnexpectedEof => invalid("it ends early"),
        _ => ImageError::Io("read the archive".to_owned(), why),
    }
}

impl<R: Read> TarReader<R> {
    pub fn new(input: R) -> Self {
        TarReader { input, left: 0, padding: 0 }
    }

    pub fn into_inner(self) -> R {
        self.input
    }

    /// The next entry; what was not read of the last one is skipped.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut extension = Extension::default();
        loop {
            self.skip(self.left + self.padding).map_err(broken)?;
            (self.left, self.padding) = (0, 0);
            let Some(block) = self.read_block().map_err(broken)? else { return Ok(None) };
            let header = Header(&block);
            header.check()?;
            let size = header.number(124..136)?;
            match block[156] {
                b'x' => extension.read_pax(&self.read_extension(size)?)?,
                b'g' => drop(self.read_extension(size)?),
                b'L' => extension.path = Some(until_nul(&self.read_extension(size)?).to_vec()),
                b'K' => extension.link = Some(until_nul(&self.read_extension(size)?).to_vec()),
                kind => {
                    let entry = header.entry(kind, size, extension)?;
                    let size = if entry.kind == EntryKind::File { entry.size } else { 0 };
                    self.expect_data(size);
                    return Ok(Some(entry));
                }
            }
        }
    }

    fn expect_data(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    /// The next header; `None` at the end, which is a block of zeros or the end of the input.
    fn read_block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(block.iter().any(|it| *it != 0).then_some(block))
    }

    fn read_extension(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        if size > EXTENSION_LIMIT {
            return Err(invalid(format!("an extended header has {size} bytes")));
        }
        self.expect_data(size);
        let mut data = vec![0; size as usize];
        self.read_exact(&mut data).map_err(broken)?;
        Ok(data)
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        match io::copy(&mut (&mut self.input).take(count), &mut io::sink())? == count {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

struct Header<'a>(&'a [u8; BLOCK]);

impl Header<'_> {
    fn check(&self) -> Result<(), ImageError> {
        let expected = self.number(148..156)?;
        let sum = |byte: fn(u8) -> i64| -> i64 {
            let counted = |(at, it): (usize, &u8)| {
                if (148..156).contains(&at) { byte(b' ') } else { byte(*it) }
            };
            self.0.iter().enumerate().map(counted).sum()
        };
        // old programs add signed bytes
        let sums = [sum(i64::from), sum(|it| i64::from(it as i8))];
        match sums.iter().any(|sum| u64::try_from(*sum) == Ok(expected)) {
            true => Ok(()),
            false => Err(invalid("the checksum of a header is wrong")),
        }
    }

    /// A number in octal, or in base 256 if the first bit is set.
    fn number(&self, range: std::ops::Range<usize>) -> Result<u64, ImageError> {
        let field = &self.0[range];
        if field[0] & 0x80 != 0 {
            if field[0] & 0x40 != 0 {
                return Err(invalid("a number is negative"));
            }
            let rest = field[1..].iter();
            return rest
                .clone()
                .try_fold(u64::from(field[0] & 0x3f), |sum, byte| {
                    sum.checked_mul(256)?.checked_add(u64::from(*byte))
                })
                .ok_or_else(|| invalid("a number is too large"));
        }
        let text = field.iter().skip_while(|it| **it == b' ').take_while(|it| !matches!(it, 0 | b' '));
        text.copied()
            .try_fold(0u64, |sum, digit| match digit {
                b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
                _ => None,
            })
            .ok_or_else(|| invalid("a number of a header cannot be read"))
    }

    fn entry(&self, kind: u8, size: u64, extension: Extension) -> Result<Entry, ImageError> {
        let kind = match kind {
            b'0' | 0 | b'7' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' => EntryKind::CharDevice,
            b'4' => EntryKind::BlockDevice,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            b'S' => return Err(invalid("sparse files are not supported")),
            other => return Err(invalid(format!("an entry has the unknown type {:?}", char::from(other)))),
        };
        let path = extension.path.unwrap_or_else(|| self.path());
        // old archives mark folders by a slash
        let is_old_directory = kind == EntryKind::File && self.0[156] == 0 && path.ends_with(b"/");
        let device = |range| -> Result<u32, ImageError> {
            match kind {
                EntryKind::CharDevice | EntryKind::BlockDevice => {
                    u32::try_from(self.number(range)?).map_err(|_| invalid("a device number is too large"))
                }
                _ => Ok(0),
            }
        };
        let modified = match extension.modified {
            Some(time) => time,
            None => (i64::try_from(self.number(136..148)?).unwrap_or(i64::MAX), 0),
        };
        Ok(Entry {
            kind: if is_old_directory { EntryKind::Directory } else { kind },
            link: extension.link.unwrap_or_else(|| until_nul(&self.0[157..257]).to_vec()),
            mode: (self.number(100..108)? & 0o7777) as u32,
            uid: extension.uid.map_or_else(|| self.number(108..116), Ok)?,
            gid: extension.gid.map_or_else(|| self.number(116..124), Ok)?,
            size: extension.size.unwrap_or(size),
            modified,
            device: (device(329..337)?, device(337..345)?),
            xattrs: extension.xattrs,
            path,
        })
    }

    /// The name, with the prefix of ustar before it.
    fn path(&self) -> Vec<u8> {
        let name = until_nul(&self.0[0..100]);
        let prefix = match &self.0[257..263] {
            b"ustar\0" => until_nul(&self.0[345..500]),
            _ => b"",
        };
        match prefix.is_empty() {
            true => name.to_vec(),
            false => [prefix, b"/", name].concat(),
        }
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|it| *it == 0).next().unwrap_or_default()
}

impl Extension {
    /// Reads records of the form `LENGTH KEY=VALUE\n`.
    fn read_pax(&mut self, mut data: &[u8]) -> Result<(), ImageError> {
        let bad = || invalid("a PAX record cannot be read");
        while !data.is_empty() {
            let space = data.iter().position(|it| *it == b' ').ok_or_else(bad)?;
            let length = std::str::from_utf8(&data[..space]).ok().and_then(|it| it.parse::<usize>().ok());
            let length = length.filter(|it| (space + 2..=data.len()).contains(it)).ok_or_else(bad)?;
            let record = data[space + 1..length].strip_suffix(b"\n").ok_or_else(bad)?;
            let equals = record.iter().position(|it| *it == b'=').ok_or_else(bad)?;
            self.set(&record[..equals], &record[equals + 1..])?;
            data = &data[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        let bad = || invalid(format!("the PAX value {:?} cannot be read", String::from_utf8_lossy(key)));
        let number = || std::str::from_utf8(value).ok().and_then(|it| it.parse::<u64>().ok()).ok_or_else(bad);
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"size" => self.size = Some(number()?),
            b"mtime" => self.modified = Some(parse_time(value).ok_or_else(bad)?),
            _ if key.starts_with(b"GNU.sparse.") => return Err(invalid("sparse files are not supported")),
            _ => {
                if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// `SECONDS` or `SECONDS.FRACTION`, with a sign.
fn parse_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos = if fraction.chars().all(|it| it.is_ascii_digit()) {
        digits.parse::<u32>().ok()?
    } else {
        return None;
    };
    let whole: i64 = seconds.parse().ok()?;
    match seconds.starts_with('-') && nanos > 0 {
        true => Some((whole.checked_sub(1)?, 1_000_000_000 - nanos)),
        false => Some((whole, nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tar_writer::{TarWriter, entry};
    use super::*;

    fn names(archive: &[u8]) -> Result<Vec<String>, ImageError> {
        let mut reader = TarReader::new(archive);
        let mut names = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            names.push(String::from_utf8_lossy(&entry.path).into_owned());
        }
        Ok(names)
    }

    #[test]
    fn entries_are_read_back_as_they_were_written() {
        let long = format!("{}/file", "a".repeat(300));
        let mut writer = TarWriter::new(Vec::new());
        let mut file = entry(EntryKind::File, &long);
        file.xattrs = vec![(b"user.x".to_vec(), b"a\n=b".to_vec())];
        (file.uid, file.modified) = (3_000_000, (17, 5));
        writer.append(&mut file, b"data").unwrap();
        let mut link = entry(EntryKind::Symlink, "link");
        link.link = b"/etc".to_vec();
        writer.append(&mut link, b"").unwrap();
        let archive = writer.finish().unwrap();
        let mut reader = TarReader::new(&archive[..]);
        assert_eq!(reader.next_entry().unwrap().unwrap(), file);
        let mut data = Vec::new();
        reader.read_to_end(&mut data).unwrap();
        assert_eq!(data, b"data");
        assert_eq!(reader.next_entry().unwrap().unwrap(), link);
        assert_eq!(reader.next_entry().unwrap(), None);
    }

    #[test]
    fn a_header_with_a_wrong_checksum_is_refused() {
        let mut writer = TarWriter::new(Vec::new());
        writer.append(&mut entry(EntryKind::File, "a"), b"x").unwrap();
        let mut archive = writer.finish().unwrap();
        assert_eq!(names(&archive).unwrap(), ["a"]);
        archive[0] = b'b';
        assert!(names(&archive).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn an_archive_that_ends_early_is_refused() {
        let mut writer = TarWriter::new(Vec::new());
        writer.append(&mut entry(EntryKind::File, "a"), &[7; 2000]).unwrap();
        let archive = writer.finish().unwrap();
        assert!(names(&archive[..1000]).unwrap_err().to_string().contains("ends early"));
        assert!(names(&archive[..100]).unwrap_err().to_string().contains("ends early"));
    }

    #[test]
    fn an_endless_extended_header_is_refused() {
        let mut writer = TarWriter::new(Vec::new());
        writer.append_raw(b'L', "././@LongLink", 1 << 40).unwrap();
        let archive = writer.finish().unwrap();
        assert!(names(&archive).unwrap_err().to_string().contains("extended header"));
    }

    #[test]
    fn times_have_fractions_and_signs() {
        assert_eq!(parse_time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(parse_time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(parse_time(b"1.x"), None);
        assert_eq!(parse_time(b"99999999999999999999"), None);
    }
}
