//! The inputs of a target: its files, and mutations of them.

use std::fs;
use std::io;
use std::path::Path;

/// The longest mutation.
const MAX_LENGTH: usize = 4096;
/// The most changes of an input at once.
const MAX_CHANGES: u64 = 4;
/// Bytes at which decoders decide.
const SPECIAL: &[u8] = b"\0\x01\x7f\x80\xff \n\"'\\/:;,.-+[]{}()0129aeE";

/// See the module.
pub struct Inputs {
    files: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    random: Random,
}

impl Inputs {
    pub fn read(target: &str) -> io::Result<Self> {
        let mut files = Vec::new();
        for folder in ["regressions", "corpus"] {
            let folder = Path::new(folder).join(target);
            if folder.exists() {
                let paths = fs::read_dir(folder)?.map(|it| it.map(|it| it.path()));
                let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
                paths.sort();
                for path in paths {
                    files.push(fs::read(path)?);
                }
            }
        }
        if files.is_empty() {
            return Err(io::Error::other("it has no corpus"));
        }
        let dictionary = Path::new("dictionaries").join(target);
        let words = if dictionary.exists() { fs::read_to_string(dictionary)? } else { String::new() };
        let words = words.lines().filter_map(word).collect();
        Ok(Inputs { files, words, random: Random(digest(0, target.as_bytes())) })
    }

    /// How many are files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// An input. They are asked for in their order.
    pub fn get(&mut self, at: usize) -> Vec<u8> {
        match self.files.get(at) {
            Some(file) => file.clone(),
            None => self.mutation(),
        }
    }

    fn mutation(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut input = random.choose(&self.files).clone();
        for _ in 0..=random.below(MAX_CHANGES) {
            let at = random.index(input.len() + 1);
            match random.below(9) {
                0 if at < input.len() => input[at] ^= 1 << random.below(8),
                1 if at < input.len() => input[at] = *random.choose(SPECIAL),
                2 if at < input.len() => input[at] = random.below(256) as u8,
                3 => input.insert(at, *random.choose(SPECIAL)),
                4 => {
                    let end = at + random.index(input.len() - at + 1);
                    drop(input.drain(at..end));
                }
                5 => {
                    let part = random.part(&input).to_vec();
                    drop(input.splice(at..at, part));
                }
                6 => {
                    let part = random.choose(&self.files);
                    let part = random.part(part).to_vec();
                    let end = if random.below(2) == 0 { at } else { input.len().min(at + part.len()) };
                    drop(input.splice(at..end, part));
                }
                7 if !self.words.is_empty() => drop(input.splice(at..at, random.choose(&self.words).clone())),
                _ => input.truncate(at),
            }
        }
        input.truncate(MAX_LENGTH.max(self.files[0].len()));
        input
    }
}

/// A number by which runs with other inputs can be told apart (FNV-1a).
pub fn digest(before: u64, input: &[u8]) -> u64 {
    input.iter().chain([&0]).fold(before ^ 0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The word of a line of a dictionary: `"text"` or `name="text"`, with `\xAB` for bytes.
fn word(line: &str) -> Option<Vec<u8>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (start, end) = (line.find('"')? + 1, line.rfind('"')?);
    let (mut out, mut rest) = (Vec::new(), line.get(start..end)?.bytes());
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'\\' => match rest.next()? {
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                escaped => escaped,
            },
            plain => plain,
        };
        out.push(byte);
    }
    Some(out)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    /// A part of bytes, mostly a short one.
    fn part<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let start = self.index(bytes.len() + 1);
        let longest = (bytes.len() - start).min(if self.below(4) == 0 { usize::MAX } else { 32 });
        &bytes[start..start + self.index(longest + 1)]
    }
}
