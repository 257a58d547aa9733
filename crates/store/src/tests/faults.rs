//! A disk that can be full, fail, tear writes and lose unsynced data.
//!
//! It keeps what the system would show (`shown`) apart from what is certainly on the platter (`synced`) and
//! remembers, in order, what lies between. A failed sync behaves as badly as real ones: what it should have
//! written is still shown, but counts as written and will not be tried again.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::Rng;
use crate::backend::{Backend, OpenFile};

const BLOCK: u64 = 4096;
const SECTOR: usize = 512;

/// A disk; clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    platter: Arc<Mutex<Platter>>,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Platter {
    formatted: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
    /// Blocks that take space: those ever written.
    blocks: HashSet<u64>,
    /// Blocks that are set aside.
    reserved: usize,
    /// Blocks that fit, if that is bounded.
    capacity: Option<usize>,
    /// The injected faults, and the writes and syncs before each.
    fault: Option<(u64, Fault)>,
    installed: bool,
    open: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Writes fail halfway.
    Write,
    /// Syncs fail.
    Sync,
    /// Nothing works any more.
    Power,
}

#[derive(Debug)]
enum Unsynced {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self { platter: Arc::default(), path: "/data/store.redb".into() }
    }

    /// A disk that holds this file and nothing else.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let disk = Self::new();
        let platter =
            Platter { synced: bytes.clone(), formatted: bytes, installed: true, ..Platter::default() };
        *disk.platter.lock() = platter;
        disk
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.platter.lock().formatted.clone()
    }

    pub(super) fn break_after(&self, operations: u64, fault: Fault) {
        self.platter.lock().fault = Some((operations, fault));
    }

    pub(super) fn heal(&self) {
        self.platter.lock().fault = None;
    }

    /// Leaves space for this many more blocks.
    pub(super) fn leave_space(&self, blocks: usize) {
        let mut platter = self.platter.lock();
        platter.capacity = Some(platter.used() + blocks);
    }

    pub(super) fn free_space(&self) {
        self.platter.lock().capacity = None;
    }

    /// The disk after a power failure: the synced data, and a random part of the unsynced data,
    /// in any order and possibly in part.
    pub(super) fn after_power_loss(&self, rng: &mut Rng) -> Disk {
        let platter = self.platter.lock();
        let mut left = platter.synced.clone();
        let lengths_kept = rng.chance(50);
        let percent = [0, 10, 50, 90, 100][rng.below(5)];
        for change in &platter.unsynced {
            match change {
                Unsynced::Length(len) if lengths_kept => left.resize(*len as usize, 0),
                Unsynced::Length(_) => (),
                Unsynced::Write(offset, data) => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        let at = *offset as usize + index * SECTOR;
                        if rng.chance(percent) && at + sector.len() <= left.len() {
                            left[at..at + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        let installed = platter.installed;
        drop(platter);
        let disk = Disk::holding(left);
        disk.platter.lock().installed = installed;
        disk
    }
}

impl Backend for Disk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> io::Result<OpenFile> {
        let mut platter = self.platter.lock();
        if platter.open {
            return Err(io::Error::other("opened twice"));
        }
        if platter.powerless() {
            return Err(io::Error::other("no power"));
        }
        platter.open = true;
        let fresh = !platter.installed;
        if fresh {
            platter.formatted.clear();
            platter.synced.clear();
            platter.unsynced.clear();
        }
        drop(platter);
        Ok(OpenFile { storage: Box::new(Handle(self.platter.clone())), fresh })
    }

    fn install(&self) -> io::Result<()> {
        let mut platter = self.platter.lock();
        if platter.powerless() {
            return Err(io::Error::other("no power"));
        }
        platter.installed = true;
        Ok(())
    }

    fn set_aside(&self, bytes: u64) -> io::Result<()> {
        let mut platter = self.platter.lock();
        let blocks = bytes.div_ceil(BLOCK) as usize;
        let grows = blocks.saturating_sub(platter.reserved);
        if platter.capacity.is_some_and(|capacity| platter.used() + grows > capacity) && grows > 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        platter.reserved = blocks;
        Ok(())
    }

    fn aside(&self) -> io::Result<u64> {
        Ok(self.platter.lock().reserved as u64 * BLOCK)
    }
}

impl Platter {
    fn used(&self) -> usize {
        self.blocks.len() + self.reserved
    }

    fn powerless(&self) -> bool {
        self.fault == Some((0, Fault::Power))
    }

    /// Counts one more write or sync; true if this one goes wrong with `fault`.
    fn goes_wrong(&mut self, fault: Fault) -> bool {
        match &mut self.fault {
            Some((left, _)) if *left > 0 => {
                *left -= 1;
                false
            }
            Some((_, due)) => *due == fault || *due == Fault::Power,
            None => false,
        }
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        let at = offset as usize;
        self.formatted[at..at + data.len()].copy_from_slice(data);
        self.unsynced.push(Unsynced::Write(offset, data.to_vec()));
    }

    /// How much of a write there is space for.
    fn fits(&mut self, offset: u64, len: usize) -> usize {
        for block in offset / BLOCK..(offset + len as u64).div_ceil(BLOCK) {
            let full = self.capacity.is_some_and(|capacity| self.used() >= capacity);
            if full && !self.blocks.contains(&block) {
                return (block * BLOCK).saturating_sub(offset) as usize;
            }
            self.blocks.insert(block);
        }
        len
    }
}

/// The open file. Once dropped or closed it may be opened again.
#[derive(Debug)]
struct Handle(Arc<Mutex<Platter>>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().open = false;
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().formatted.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.lock();
        let end = usize::try_from(offset).ok().and_then(|at| at.checked_add(out.len()));
        let part = end.and_then(|end| platter.formatted.get(end - out.len()..end));
        out.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.0.lock();
        if platter.powerless() {
            return Err(io::Error::other("no power"));
        }
        platter.formatted.resize(len as usize, 0);
        platter.blocks.retain(|block| *block < len.div_ceil(BLOCK));
        platter.unsynced.push(Unsynced::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.0.lock();
        let failed = platter.goes_wrong(Fault::Sync);
        if platter.powerless() {
            return Err(io::Error::other("no power"));
        }
        let unsynced = std::mem::take(&mut platter.unsynced);
        if failed {
            return Err(io::Error::other("input/output error"));
        }
        for change in unsynced {
            match change {
                Unsynced::Write(offset, data) => {
                    let (at, end) = (offset as usize, offset as usize + data.len());
                    // of a write beyond a later cut nothing is left
                    if let Some(part) = platter.synced.get_mut(at..end) {
                        part.copy_from_slice(&data);
                    }
                }
                Unsynced::Length(len) => platter.synced.resize(len as usize, 0),
            }
        }
        // a length whose sync failed is known to the journal all the same
        let len = platter.formatted.len();
        platter.synced.resize(len, 0);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.0.lock();
        if offset as usize + data.len() > platter.formatted.len() {
            return Err(io::Error::other("a write beyond the end"));
        }
        if platter.goes_wrong(Fault::Write) {
            if !platter.powerless() {
                platter.put(offset, &data[..data.len() / 2]);
            }
            return Err(io::Error::other("input/output error"));
        }
        let fits = platter.fits(offset, data.len());
        platter.put(offset, &data[..fits]);
        if fits < data.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}
