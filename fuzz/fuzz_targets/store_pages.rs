//! Pages of a store's file: a changed file is refused, or has exactly the records that were written.

#![no_main]

use env::{Simulated, World};
use fuzz::duplex::run;
use libfuzzer_sys::fuzz_target;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use store::{
    Backend, Expect, OpenFile, Options, RecoveredRecord, StorageBackend, Store, StoreError, Write, embedded,
};

fuzz_target!(
    // the engine is read behind catch_unwind
    init: fuzz::forgive_panics_in("redb"),
    |data: &[u8]| {
        let mut image = CLOSED.0.clone();
        let Some((choice, edits)) = fuzz::choice(data) else { return };
        for edit in edits.chunks_exact(5) {
            let at = u32::from_le_bytes([edit[0], edit[1], edit[2], edit[3]]) as usize % image.len();
            image[at] ^= edit[4];
        }
        if choice & 1 == 1 {
            image.truncate(image.len() / 256 * (choice >> 1) * 2);
        }
        match open(&Disk::holding(image)) {
            Ok((recovered, _)) => assert!(recovered == CLOSED.1, "{} other records", recovered.len()),
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::Format { .. }), "{error:?}")
            }
        }
    }
);

/// A file that was closed, and its records.
static CLOSED: LazyLock<(Vec<u8>, Vec<RecoveredRecord>)> = LazyLock::new(|| {
    let disk = Disk::default();
    run(async {
        let (_, store) = open(&disk).expect("a new store");
        store.start(Box::new(|_| {})).expect("a subscriber");
        for n in 0..40_usize {
            let value = vec![n as u8; [20, 700, 3000, 9000][n % 4]];
            store
                .write(Write::put(format!("/registry/{}", n % 30), Expect::Any, value))
                .await
                .expect("a write");
        }
        store.write(Write::delete("/registry/3", Expect::Any)).await.expect("a write");
        store.close().await;
    });
    let image = disk.bytes.lock().expect("no panic").clone();
    let (recovered, _) = open(&disk).expect("the closed store");
    (image, recovered)
});

fn open(disk: &Disk) -> Result<(Vec<RecoveredRecord>, store::Engine), StoreError> {
    let world: World = Simulated::new(1_700_000_000, 7);
    let options = Options { reserve_bytes: 0, ..Options::default() };
    let mut recovered = Vec::new();
    let engine = embedded::open_on(Box::new(disk.clone()), &options, world, &mut |it| recovered.push(it))?;
    Ok((recovered, engine))
}

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Whether it was there before, and be it empty.
    exists: bool,
}

impl Disk {
    fn holding(image: Vec<u8>) -> Self {
        Disk { bytes: Arc::new(Mutex::new(image)), exists: true }
    }
}

impl Backend for Disk {
    fn path(&self) -> &Path {
        Path::new("/store.redb")
    }

    fn open(&self) -> io::Result<OpenFile> {
        let fresh = !self.exists && self.bytes.lock().expect("no panic").is_empty();
        Ok(OpenFile { storage: Box::new(self.clone()), fresh })
    }

    fn install(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_aside(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn aside(&self) -> io::Result<u64> {
        Ok(0)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().expect("no panic").len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.bytes.lock().expect("no panic");
        let end = usize::try_from(offset).ok().and_then(|at| at.checked_add(out.len()));
        let part = end.and_then(|end| disk.get(offset as usize..end)).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > 256 << 20 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.lock().expect("no panic").resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.bytes.lock().expect("no panic");
        let at = offset as usize;
        disk.get_mut(at..at + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}
