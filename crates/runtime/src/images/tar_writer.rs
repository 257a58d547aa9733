//! Writes tar archives: ustar headers, with a PAX header where a value does not fit.

#[cfg(test)]
use super::tar::EntryKind as Kind;
use super::tar::{Entry, EntryKind};
use std::io::{self, Write};

const BLOCK: usize = 512;
/// The largest number of an octal field of twelve bytes.
const OCTAL_LIMIT: u64 = 0o77_777_777_777;
const ID_LIMIT: u64 = 0o7_777_777;

/// See the module.
pub struct TarWriter<W> {
    output: W,
}

impl<W: Write> TarWriter<W> {
    pub fn new(output: W) -> Self {
        TarWriter { output }
    }

    /// Appends an entry whose data is in memory; sets its size.
    pub fn append(&mut self, entry: &mut Entry, data: &[u8]) -> io::Result<()> {
        entry.size = data.len() as u64;
        self.append_from(entry, data)
    }

    /// Appends an entry and `entry.size` bytes of data.
    pub fn append_from(&mut self, entry: &Entry, mut data: impl io::Read) -> io::Result<()> {
        let records = pax_records(entry);
        if !records.is_empty() {
            self.header(b'x', b"pax", records.len() as u64, entry)?;
            self.output.write_all(&records)?;
            self.pad(records.len() as u64)?;
        }
        let kind = match entry.kind {
            EntryKind::File => b'0',
            EntryKind::HardLink => b'1',
            EntryKind::Symlink => b'2',
            EntryKind::CharDevice => b'3',
            EntryKind::BlockDevice => b'4',
            EntryKind::Directory => b'5',
            EntryKind::Fifo => b'6',
        };
        self.header(kind, &entry.path, entry.size, entry)?;
        if io::copy(&mut io::Read::take(&mut data, entry.size), &mut self.output)? != entry.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(entry.size)
    }

    /// Ends the archive with two blocks of zeros.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[0; 2 * BLOCK])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let padding = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
        self.output.write_all(&[0; BLOCK][..padding])
    }

    fn header(&mut self, kind: u8, path: &[u8], size: u64, entry: &Entry) -> io::Result<()> {
        let mut block = [0; BLOCK];
        let mut text = |range: std::ops::Range<usize>, value: &[u8]| {
            let count = value.len().min(range.len());
            block[range.start..range.start + count].copy_from_slice(&value[..count]);
        };
        text(0..100, path);
        text(100..108, format!("{:07o}", entry.mode).as_bytes());
        text(108..116, format!("{:07o}", entry.uid.min(ID_LIMIT)).as_bytes());
        text(116..124, format!("{:07o}", entry.gid.min(ID_LIMIT)).as_bytes());
        text(124..136, format!("{:011o}", size.min(OCTAL_LIMIT)).as_bytes());
        let seconds = u64::try_from(entry.modified.0).unwrap_or(0).min(OCTAL_LIMIT);
        text(136..148, format!("{seconds:011o}").as_bytes());
        text(148..156, b"        ");
        text(156..157, &[kind]);
        text(157..257, &entry.link);
        text(257..265, b"ustar\x0000");
        text(329..337, format!("{:07o}", entry.device.0).as_bytes());
        text(337..345, format!("{:07o}", entry.device.1).as_bytes());
        let sum: u64 = block.iter().map(|it| u64::from(*it)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.output.write_all(&block)
    }

    /// A header of any type and size, without data: for tests of hostile archives.
    #[cfg(test)]
    pub fn append_raw(&mut self, kind: u8, path: &str, size: u64) -> io::Result<()> {
        self.header(kind, path.as_bytes(), size, &entry(Kind::File, path))
    }
}

/// The values that do not fit in a header.
fn pax_records(entry: &Entry) -> Vec<u8> {
    let mut records = Vec::new();
    let mut add = |key: &[u8], value: &[u8]| {
        // the length counts its own digits
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        records.extend([length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat());
    };
    if entry.path.len() > 100 {
        add(b"path", &entry.path);
    }
    if entry.link.len() > 100 {
        add(b"linkpath", &entry.link);
    }
    if entry.size > OCTAL_LIMIT {
        add(b"size", entry.size.to_string().as_bytes());
    }
    for (key, id) in [(&b"uid"[..], entry.uid), (&b"gid"[..], entry.gid)] {
        if id > ID_LIMIT {
            add(key, id.to_string().as_bytes());
        }
    }
    if entry.modified.1 != 0 && entry.modified.0 >= 0 {
        add(b"mtime", format!("{}.{:09}", entry.modified.0, entry.modified.1).as_bytes());
    }
    for (name, value) in &entry.xattrs {
        add(&[b"SCHILY.xattr.", &name[..]].concat(), value);
    }
    records
}

/// An entry with usual values.
pub fn entry(kind: EntryKind, path: &str) -> Entry {
    Entry {
        kind,
        path: path.as_bytes().to_vec(),
        link: Vec::new(),
        mode: if kind == EntryKind::Directory { 0o755 } else { 0o644 },
        uid: 0,
        gid: 0,
        size: 0,
        modified: (0, 0),
        device: (0, 0),
        xattrs: Vec::new(),
    }
}
