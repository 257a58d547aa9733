//! Writes a file of bbolt, the database of etcd, in one pass.
//!
//! ```text
//! page 0, 1   meta: magic, root bucket, checksum; the one with the larger transaction id counts
//! page 2      the list of free pages, empty
//! page 3...   leaves of the first bucket, its branches up to the root, those of the next bucket, ...
//! last        the root bucket: a leaf with the root page of each bucket
//! ```
//!
//! A page has a header (id, flags, number of elements, number of further pages that it takes), then its elements with
//! offsets from themselves, then keys and values. Keys must come in order.

use std::io::{self, Seek, SeekFrom, Write};

const PAGE: usize = 4096;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
const FREE_LIST: u16 = 0x10;
/// The flag of an element whose value is a bucket.
const IS_BUCKET: u32 = 1;
const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
const FREE_LIST_PAGE: u64 = 2;

/// The writer of a file.
pub struct BoltWriter<W> {
    out: W,
    next_page: u64,
    buckets: Vec<(Vec<u8>, u64)>,
}

/// The first key of a page, and its id.
type Child = (Vec<u8>, u64);

impl<W: Write + Seek> BoltWriter<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0; 2 * PAGE])?;
        let mut writer = Self { out, next_page: FREE_LIST_PAGE, buckets: Vec::new() };
        writer.write_page(FREE_LIST, 0, &[])?;
        Ok(writer)
    }

    /// Begins a bucket. Buckets are in the order of their names.
    pub fn bucket(&mut self, name: &str) -> BucketWriter<'_, W> {
        debug_assert!(self.buckets.last().is_none_or(|(last, _)| last.as_slice() < name.as_bytes()));
        BucketWriter { file: self, name: name.into(), leaf: Node::default(), children: Vec::new() }
    }

    /// Writes the root bucket and the meta pages, and returns the file.
    pub fn finish(mut self) -> io::Result<W> {
        let mut node = Node::default();
        for (name, root) in std::mem::take(&mut self.buckets) {
            let value: Vec<u8> = [root.to_le_bytes(), 0u64.to_le_bytes()].concat();
            node.push(IS_BUCKET, &name, &value);
        }
        let root = self.write_page(LEAF, node.count, &node.encode_leaf())?;
        for page in [0u64, 1] {
            let mut meta = Vec::new();
            for number in [MAGIC, VERSION, PAGE as u32, 0] {
                meta.extend(number.to_le_bytes());
            }
            // the last number of a bucket is that of its sequence
            for number in [root, 0, FREE_LIST_PAGE, self.next_page, page] {
                meta.extend(number.to_le_bytes());
            }
            let sum = checksum(&meta);
            meta.extend(sum.to_le_bytes());
            self.out.seek(SeekFrom::Start(page * PAGE as u64))?;
            self.out.write_all(&header(page, META, 0, 0))?;
            self.out.write_all(&meta)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a page, and those that its contents take beyond it. Returns its id.
    fn write_page(&mut self, flags: u16, count: u16, contents: &[u8]) -> io::Result<u64> {
        let id = self.next_page;
        let pages = (HEADER + contents.len()).div_ceil(PAGE);
        self.out.write_all(&header(id, flags, count, pages as u32 - 1))?;
        self.out.write_all(contents)?;
        let padding = pages * PAGE - HEADER - contents.len();
        self.out.write_all(&vec![0; padding])?;
        self.next_page += pages as u64;
        Ok(id)
    }
}

/// The writer of a bucket.
pub struct BucketWriter<'f, W> {
    file: &'f mut BoltWriter<W>,
    name: Vec<u8>,
    leaf: Node,
    children: Vec<Child>,
}

impl<W: Write + Seek> BucketWriter<'_, W> {
    /// Adds a key, which is after all before it.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.leaf.count > 0 && self.leaf.bytes() + ELEMENT + key.len() + value.len() > PAGE - HEADER {
            self.end_leaf()?;
        }
        self.leaf.push(0, key, value);
        Ok(())
    }

    fn end_leaf(&mut self) -> io::Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        let id = self.file.write_page(LEAF, leaf.count, &leaf.encode_leaf())?;
        self.children.push((leaf.first_key().to_vec(), id));
        Ok(())
    }

    /// Writes the branches above the leaves.
    pub fn finish(mut self) -> io::Result<()> {
        if self.leaf.count > 0 || self.children.is_empty() {
            self.end_leaf()?;
        }
        while self.children.len() > 1 {
            let mut level = Vec::new();
            let mut children = std::mem::take(&mut self.children).into_iter().peekable();
            while children.peek().is_some() {
                let (mut branch, mut bytes) = (Vec::new(), 0);
                while let Some((key, _)) = children.peek() {
                    bytes += ELEMENT + key.len();
                    // a branch has two children at least
                    if bytes > PAGE - HEADER && branch.len() > 1 {
                        break;
                    }
                    branch.extend(children.next());
                }
                let first = branch.first().map(|(key, _): &Child| key.clone()).unwrap_or_default();
                let id = self.file.write_page(BRANCH, branch.len() as u16, &encode_branch(&branch))?;
                level.push((first, id));
            }
            self.children = level;
        }
        let root = self.children.first().map_or(0, |(_, id)| *id);
        self.file.buckets.push((self.name, root));
        Ok(())
    }
}

/// The elements of a leaf.
#[derive(Default)]
struct Node {
    count: u16,
    /// Flags, length of the key, length of the value.
    elements: Vec<(u32, u32, u32)>,
    data: Vec<u8>,
}

impl Node {
    fn push(&mut self, flags: u32, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.elements.push((flags, key.len() as u32, value.len() as u32));
        self.data.extend(key);
        self.data.extend(value);
    }

    fn bytes(&self) -> usize {
        self.elements.len() * ELEMENT + self.data.len()
    }

    fn first_key(&self) -> &[u8] {
        self.elements.first().map_or(&[], |(_, key, _)| &self.data[..*key as usize])
    }

    fn encode_leaf(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes());
        let mut offset = self.elements.len() * ELEMENT;
        for (at, (flags, key, value)) in self.elements.iter().enumerate() {
            for number in [*flags, (offset - at * ELEMENT) as u32, *key, *value] {
                out.extend(number.to_le_bytes());
            }
            offset += (*key + *value) as usize;
        }
        out.extend(&self.data);
        out
    }
}

fn encode_branch(children: &[Child]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut offset = children.len() * ELEMENT;
    for (at, (key, id)) in children.iter().enumerate() {
        for number in [(offset - at * ELEMENT) as u32, key.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(id.to_le_bytes());
        offset += key.len();
    }
    children.iter().for_each(|(key, _)| out.extend(key));
    out
}

fn header(id: u64, flags: u16, count: u16, overflow: u32) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..8].copy_from_slice(&id.to_le_bytes());
    out[8..10].copy_from_slice(&flags.to_le_bytes());
    out[10..12].copy_from_slice(&count.to_le_bytes());
    out[12..].copy_from_slice(&overflow.to_le_bytes());
    out
}

/// FNV-1a of 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
        bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// Reads all pairs below a page.
    fn read(file: &[u8], page: u64, pairs: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        let page = page as usize * PAGE;
        let (flags, count) = (number(file, page + 8, 2) as u16, number(file, page + 10, 2) as usize);
        for at in (0..count).map(|at| page + HEADER + at * ELEMENT) {
            if flags == BRANCH {
                read(file, number(file, at + 8, 8), pairs);
                continue;
            }
            assert_eq!(flags, LEAF);
            let start = at + number(file, at + 4, 4) as usize;
            let (key, value) = (number(file, at + 8, 4) as usize, number(file, at + 12, 4) as usize);
            pairs.push((file[start..start + key].to_vec(), file[start + key..start + key + value].to_vec()));
        }
    }

    #[test]
    fn a_tree_of_several_levels_is_read_back() {
        let mut file = BoltWriter::new(io::Cursor::new(Vec::new())).unwrap();
        file.bucket("a").finish().unwrap();
        let mut expected = Vec::new();
        let mut bucket = file.bucket("b");
        for at in 0..40_000u64 {
            // some values take several pages
            let length = if at % 1000 == 0 { 3 * PAGE } else { 40 };
            let pair = (at.to_be_bytes().to_vec(), vec![at as u8; length]);
            bucket.put(&pair.0, &pair.1).unwrap();
            expected.push(pair);
        }
        bucket.finish().unwrap();
        let file = file.finish().unwrap().into_inner();
        assert_eq!(file.len() % PAGE, 0);
        let meta = &file[PAGE + HEADER..];
        assert_eq!((number(meta, 0, 4) as u32, number(meta, 40, 8)), (MAGIC, (file.len() / PAGE) as u64));
        assert_eq!(number(meta, 56, 8), checksum(&meta[..56]));
        let mut buckets = Vec::new();
        read(&file, number(meta, 16, 8), &mut buckets);
        assert_eq!(buckets.iter().map(|it| it.0.as_slice()).collect::<Vec<_>>(), [b"a", b"b"]);
        let mut pairs = Vec::new();
        read(&file, number(&buckets[0].1, 0, 8), &mut pairs);
        assert!(pairs.is_empty());
        read(&file, number(&buckets[1].1, 0, 8), &mut pairs);
        assert!(pairs == expected, "{} of {}", pairs.len(), expected.len());
    }
}
