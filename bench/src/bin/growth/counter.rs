//! The number of steps that this process has taken: branches of its code, and bytes moved and compared.
//!
//! A build with `-Cprofile-generate` keeps a counter per branch in a section of its own, and
//! `bench/growth/memory.c` adds its counters there. They are read like a file, through `/proc/self/mem`. Loops
//! are counted wherever they were written, in the standard library too where it is generic.

use anyhow::{Context, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;

const SECTION: &[u8] = b"__llvm_prf_cnts\0";

pub struct Counter {
    memory: File,
    address: u64,
    counters: Vec<u8>,
}

/// Numbers of an ELF file with 64 bits, least significant byte first.
struct Elf(File);

impl Elf {
    fn bytes<const N: usize>(&self, at: u64) -> anyhow::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn half(&self, at: u64) -> anyhow::Result<u64> {
        Ok(u16::from_le_bytes(self.bytes(at)?).into())
    }

    fn word(&self, at: u64) -> anyhow::Result<u64> {
        Ok(u32::from_le_bytes(self.bytes(at)?).into())
    }

    fn long(&self, at: u64) -> anyhow::Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(at)?))
    }

    /// The address and length of the section with the counters.
    fn counters(&self) -> anyhow::Result<Option<(u64, u64)>> {
        let (headers, size, count) = (self.long(0x28)?, self.half(0x3a)?, self.half(0x3c)?);
        let names = self.long(headers + size * self.half(0x3e)? + 0x18)?;
        for header in (0..count).map(|nth| headers + size * nth) {
            let name = names + self.word(header)?;
            if self.bytes::<{ SECTION.len() }>(name).is_ok_and(|it| it == SECTION) {
                return Ok(Some((self.long(header + 0x10)?, self.long(header + 0x20)?)));
            }
        }
        Ok(None)
    }

    /// Whether it is loaded where it says, rather than anywhere.
    fn is_fixed(&self) -> anyhow::Result<bool> {
        Ok(self.half(0x10)? == 2)
    }
}

impl Counter {
    pub fn open() -> anyhow::Result<Self> {
        let program = std::fs::read_link("/proc/self/exe")?;
        let elf = Elf(File::open(&program)?);
        let Some((section, length)) = elf.counters()? else {
            bail!("this build counts nothing: run bench/growth/run");
        };
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let program = program.to_string_lossy();
        let first = maps.lines().find(|line| line.ends_with(&*program)).context("the program has no map")?;
        let start = first.split('-').next().unwrap_or_default();
        let base = if elf.is_fixed()? { 0 } else { u64::from_str_radix(start, 16)? };
        let memory = File::open("/proc/self/mem")?;
        Ok(Counter { memory, address: base + section, counters: vec![0; usize::try_from(length)?] })
    }

    /// All steps so far.
    pub fn steps(&mut self) -> anyhow::Result<u64> {
        self.memory.read_exact_at(&mut self.counters, self.address)?;
        let (counters, _) = self.counters.as_chunks::<8>();
        Ok(counters.iter().map(|it| u64::from_le_bytes(*it)).fold(0, u64::wrapping_add))
    }
}
