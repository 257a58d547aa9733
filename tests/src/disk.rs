//! A disk in memory for the embedded store: it can be full, and its syncs can be blocked.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use env::World;
use store::{Backend, Engine, OpenFile, Options, RecoveredRecord, StorageBackend, embedded};

const BLOCK: u64 = 4096;

/// A disk; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    platter: Arc<Mutex<Platter>>,
    changed: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct Platter {
    bytes: Vec<u8>,
    /// Blocks that take space: those ever written.
    blocks: HashSet<u64>,
    /// Blocks that are set aside.
    reserved: u64,
    /// Blocks that fit, if that is bounded.
    capacity: Option<u64>,
    is_installed: bool,
    is_held: bool,
    /// Syncs that wait.
    waiting: usize,
}

impl Platter {
    fn used(&self) -> u64 {
        self.blocks.len() as u64 + self.reserved
    }

    fn has_space(&self, blocks: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if self.used() + blocks > capacity => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl Disk {
    /// Opens the store on it; returns the recovered records.
    pub fn open(&self, world: World) -> (Arc<Engine>, Vec<RecoveredRecord>) {
        let mut recovered = Vec::new();
        let mut visit = |record| recovered.push(record);
        let engine = embedded::open_on(Box::new(self.clone()), &Options::default(), world, &mut visit);
        (Arc::new(engine.unwrap()), recovered)
    }

    /// Leaves space for this many more bytes.
    pub fn leave_space(&self, bytes: u64) {
        let mut platter = self.platter.lock().unwrap();
        platter.capacity = Some(platter.used() + bytes.div_ceil(BLOCK));
    }

    /// Blocks syncs.
    pub fn hold(&self) {
        self.platter.lock().unwrap().is_held = true;
    }

    pub fn release(&self) {
        self.platter.lock().unwrap().is_held = false;
        self.changed.notify_all();
    }

    /// Whether a sync is blocked.
    pub fn is_waited_for(&self) -> bool {
        self.platter.lock().unwrap().waiting > 0
    }
}

impl Backend for Disk {
    fn path(&self) -> &Path {
        Path::new("/data/store.redb")
    }

    fn open(&self) -> io::Result<OpenFile> {
        let fresh = !self.platter.lock().unwrap().is_installed;
        Ok(OpenFile { storage: Box::new(self.clone()), fresh })
    }

    fn install(&self) -> io::Result<()> {
        self.platter.lock().unwrap().is_installed = true;
        Ok(())
    }

    fn set_aside(&self, bytes: u64) -> io::Result<()> {
        let mut platter = self.platter.lock().unwrap();
        let blocks = bytes.div_ceil(BLOCK);
        if blocks > platter.reserved {
            platter.has_space(blocks - platter.reserved)?;
        }
        platter.reserved = blocks;
        Ok(())
    }

    fn aside(&self) -> io::Result<u64> {
        Ok(self.platter.lock().unwrap().reserved * BLOCK)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter.lock().unwrap();
        let part = platter.bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.platter.lock().unwrap();
        platter.bytes.resize(len as usize, 0);
        platter.blocks.retain(|block| *block < len.div_ceil(BLOCK));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.platter.lock().unwrap();
        platter.waiting += 1;
        let mut platter = self.changed.wait_while(platter, |it| it.is_held).unwrap();
        platter.waiting -= 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.platter.lock().unwrap();
        let blocks = offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK);
        let new = blocks.clone().filter(|block| !platter.blocks.contains(block)).count();
        platter.has_space(new as u64)?;
        platter.blocks.extend(blocks);
        platter.bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
}
