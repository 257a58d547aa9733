//! Content by digest: blobs that are complete, verified and durable, or absent.
//!
//! ```text
//! blobs/sha256/HEX     complete blobs
//! ingest/sha256-HEX    parts of blobs; a later write goes on where one ended
//! ```
//!
//! Invariants: a blob gets its name after its digest and size were verified and its data reached the disk. One process
//! writes a part at a time (a lock on the file); others wait for it. A part that turns out wrong is removed.

use super::digest::{Digest, Hasher};
use super::error::ImageError;
use super::manifest::Descriptor;
use crate::steps::step;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER: usize = 128 * 1024;

/// See the module.
#[derive(Debug, Clone)]
pub struct ContentStore {
    root: PathBuf,
}

/// A blob while it is written.
pub struct BlobWriter {
    file: File,
    path: PathBuf,
    target: PathBuf,
    expected: Descriptor,
    hasher: Hasher,
    written: u64,
}

/// Whether a blob must be written.
pub enum Ingest {
    Present,
    Write(Box<BlobWriter>),
}

impl ContentStore {
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        for folder in ["blobs/sha256", "blobs/sha512", "ingest"] {
            let path = root.join(folder);
            durable_file::directory(&path, 0o700).map_err(ImageError::at(&path))?;
        }
        Ok(ContentStore { root: root.to_owned() })
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.algorithm()).join(digest.hex())
    }

    /// The size of a blob that is present.
    pub fn size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.path(digest)).ok().filter(fs::Metadata::is_file).map(|it| it.len())
    }

    /// Opens a blob. It was verified when it was written.
    pub fn read(&self, digest: &Digest) -> Result<File, ImageError> {
        let path = self.path(digest);
        File::open(&path).map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => ImageError::NotFound(format!("content {digest}")),
            _ => ImageError::at(&path)(why),
        })
    }

    /// Reads a small blob, such as a manifest, and verifies it again.
    pub fn read_small(&self, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>, ImageError> {
        let mut data = Vec::new();
        let file = self.read(&descriptor.digest)?;
        file.take(limit + 1)
            .read_to_end(&mut data)
            .map_err(ImageError::at(&self.path(&descriptor.digest)))?;
        if data.len() as u64 > limit {
            return Err(ImageError::Invalid(format!("{} is larger than {limit} bytes", descriptor.digest)));
        }
        let mut hasher = descriptor.digest.hasher();
        hasher.update(&data);
        match hasher.finish() == descriptor.digest {
            true => Ok(data),
            false => Err(ImageError::Invalid(format!("the stored content {} is damaged", descriptor.digest))),
        }
    }

    /// Begins a blob, or goes on with a part of it. Waits for another writer of the same blob.
    pub fn ingest(&self, expected: &Descriptor) -> Result<Ingest, ImageError> {
        let digest = &expected.digest;
        let name = format!("{}-{}", digest.algorithm(), digest.hex());
        let path = self.root.join("ingest").join(name);
        loop {
            if self.size(digest) == Some(expected.size) {
                return Ok(Ingest::Present);
            }
            let options = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            let file = options.map_err(ImageError::at(&path))?;
            flock(&file, FlockOperation::LockExclusive).map_err(|why| ImageError::at(&path)(why.into()))?;
            // the writer before may have moved or removed the file
            let own = file.metadata().map_err(ImageError::at(&path))?;
            if fs::metadata(&path).is_ok_and(|it| it.ino() == own.ino()) {
                let target = self.path(digest);
                let hasher = digest.hasher();
                let mut writer =
                    BlobWriter { file, path, target, expected: expected.clone(), hasher, written: 0 };
                writer.resume().map_err(ImageError::at(&writer.path))?;
                return Ok(Ingest::Write(Box::new(writer)));
            }
        }
    }

    /// Stores bytes; their digest is computed.
    pub fn store(&self, data: &[u8], media_type: &str) -> Result<Descriptor, ImageError> {
        let descriptor = Descriptor::new(media_type, Digest::of(data), data.len() as u64);
        self.store_as(&descriptor, data)?;
        Ok(descriptor)
    }

    /// Stores content with a descriptor that it must fit.
    pub fn store_as(&self, descriptor: &Descriptor, mut data: impl Read) -> Result<(), ImageError> {
        let Ingest::Write(mut writer) = self.ingest(descriptor)? else { return Ok(()) };
        writer.restart().map_err(ImageError::at(&writer.path))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match data.read(&mut buffer) {
                Ok(0) => return writer.commit(),
                Ok(count) => writer.write(&buffer[..count])?,
                Err(why) => {
                    // the next attempt begins anew
                    let _ = durable_file::remove(&writer.path);
                    return Err(ImageError::during("read the content")(why));
                }
            }
        }
    }

    /// Stores content whose digest is not known before.
    pub fn store_unknown(&self, mut data: impl Read) -> Result<Descriptor, ImageError> {
        let folder = self.root.join("ingest");
        let mut temporary = tempfile_in(&folder).map_err(ImageError::at(&folder))?;
        let stored = self.hash_into(&mut temporary, &mut data);
        if stored.is_err() {
            let _ = durable_file::remove(&temporary.1);
        }
        stored
    }

    fn hash_into(
        &self,
        (file, path): &mut (File, PathBuf),
        data: &mut impl Read,
    ) -> Result<Descriptor, ImageError> {
        let mut hasher = Hasher::sha256();
        let mut size = 0;
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = data.read(&mut buffer).map_err(ImageError::during("read the content"))?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            file.write_all(&buffer[..count]).map_err(ImageError::at(path))?;
            size += count as u64;
        }
        let descriptor = Descriptor::new("", hasher.finish(), size);
        file.sync_all().map_err(ImageError::at(path))?;
        let target = self.path(&descriptor.digest);
        step("install a blob", &target);
        fs::rename(&*path, &target).map_err(ImageError::at(&target))?;
        let folder = durable_file::directory_of(&target);
        durable_file::sync_directory(folder).map_err(ImageError::at(folder))?;
        Ok(descriptor)
    }

    /// Removes the blobs that are not kept, and parts that no process writes. Returns the bytes that became free.
    pub fn retain(&self, is_kept: impl Fn(&Digest) -> bool) -> Result<u64, ImageError> {
        let mut freed = 0;
        for algorithm in ["sha256", "sha512"] {
            let folder = self.root.join("blobs").join(algorithm);
            for name in file_names(&folder)? {
                let digest = Digest::parse(&format!("{algorithm}:{name}"));
                if !digest.is_ok_and(|it| is_kept(&it)) {
                    freed += remove(&folder.join(name))?;
                }
            }
        }
        let folder = self.root.join("ingest");
        for name in file_names(&folder)? {
            let path = folder.join(name);
            let is_free = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
            // the lock is held until the file is gone
            if let Some(_file) = File::open(&path).ok().filter(is_free) {
                freed += remove(&path)?;
            }
        }
        Ok(freed)
    }
}

/// A new file that no other process uses; it is locked as a part is.
fn tempfile_in(folder: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "new-{}-{}",
        rustix::process::getpid().as_raw_nonzero(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let path = folder.join(name);
    // one of a process that was killed and had this id
    durable_file::remove(&path)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok((file, path))
}

fn file_names(folder: &Path) -> Result<Vec<String>, ImageError> {
    let entries = fs::read_dir(folder).map_err(ImageError::at(folder))?;
    Ok(entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
}

fn remove(path: &Path) -> Result<u64, ImageError> {
    let size = fs::metadata(path).map_or(0, |it| it.len());
    step("remove a blob", path);
    durable_file::remove(path).map_err(ImageError::at(path))?;
    Ok(size)
}

impl BlobWriter {
    /// Bytes that are there already.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Reads the part that is there.
    fn resume(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() > self.expected.size {
            return self.restart();
        }
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(()),
                count => {
                    self.hasher.update(&buffer[..count]);
                    self.written += count as u64;
                }
            }
        }
    }

    /// Drops the part that is there.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = self.expected.digest.hasher();
        self.written = 0;
        Ok(())
    }

    /// Appends data; more than the expected size is refused.
    pub fn write(&mut self, data: &[u8]) -> Result<(), ImageError> {
        self.written += data.len() as u64;
        if self.written > self.expected.size {
            let Descriptor { digest, size, .. } = &self.expected;
            return Err(self.discard(format!("the content of {digest} is longer than its {size} bytes")));
        }
        self.hasher.update(data);
        step("write a part of a blob", &self.path);
        self.file.write_all(data).map_err(ImageError::at(&self.path))
    }

    /// Verifies the blob, makes it durable and gives it its name.
    pub fn commit(mut self) -> Result<(), ImageError> {
        let Descriptor { digest, size, .. } = self.expected.clone();
        if self.written < size {
            // the part stays, so that the next attempt goes on
            return Err(ImageError::Registry(format!(
                "the content of {digest} ended after {} of {size} bytes",
                self.written
            )));
        }
        let found = std::mem::replace(&mut self.hasher, Hasher::sha256()).finish();
        if found != digest {
            return Err(self.discard(format!("the content of {digest} has the digest {found}")));
        }
        self.file.sync_all().map_err(ImageError::at(&self.path))?;
        step("install a blob", &self.target);
        fs::rename(&self.path, &self.target).map_err(ImageError::at(&self.target))?;
        let folder = durable_file::directory_of(&self.target);
        durable_file::sync_directory(folder).map_err(ImageError::at(folder))
    }

    /// Removes a part that can never become the blob.
    fn discard(&mut self, why: String) -> ImageError {
        // leftovers are checked again by the next writer
        let _ = durable_file::remove(&self.path);
        ImageError::Invalid(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ContentStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = ContentStore::open(folder.path()).unwrap();
        (folder, store)
    }

    fn ingest_files(folder: &tempfile::TempDir) -> usize {
        fs::read_dir(folder.path().join("ingest")).unwrap().count()
    }

    #[test]
    fn content_is_found_by_its_digest() {
        let (folder, store) = store();
        let descriptor = store.store(b"hello", "text/plain").unwrap();
        assert_eq!(store.size(&descriptor.digest), Some(5));
        assert_eq!(store.read_small(&descriptor, 5).unwrap(), b"hello");
        assert!(store.read_small(&descriptor, 4).is_err());
        assert!(matches!(store.ingest(&descriptor).unwrap(), Ingest::Present));
        assert_eq!(ingest_files(&folder), 0);
        assert!(matches!(store.read(&Digest::of(b"other")), Err(ImageError::NotFound(_))));
    }

    #[test]
    fn a_digest_that_lies_leaves_nothing() {
        let (folder, store) = store();
        let wrong = Descriptor::new("x", Digest::of(b"hello"), 5);
        let refused = store.store_as(&wrong, &b"HELLO"[..]).unwrap_err();
        assert!(refused.to_string().contains("has the digest"), "{refused}");
        let longer = store.store_as(&wrong, &b"hello, and more"[..]).unwrap_err();
        assert!(longer.to_string().contains("longer"), "{longer}");
        assert_eq!((store.size(&wrong.digest), ingest_files(&folder)), (None, 0));
    }

    #[test]
    fn a_part_is_continued() {
        let (folder, store) = store();
        let descriptor = Descriptor::new("x", Digest::of(b"hello"), 5);
        let Ingest::Write(mut writer) = store.ingest(&descriptor).unwrap() else { panic!("present") };
        writer.write(b"hel").unwrap();
        assert!(writer.commit().unwrap_err().to_string().contains("ended after 3 of 5"));
        let Ingest::Write(mut writer) = store.ingest(&descriptor).unwrap() else { panic!("present") };
        assert_eq!(writer.written(), 3);
        writer.write(b"lo").unwrap();
        writer.commit().unwrap();
        assert_eq!(store.read_small(&descriptor, 9).unwrap(), b"hello");
        assert_eq!(ingest_files(&folder), 0);
    }

    #[test]
    fn a_second_writer_waits_and_finds_the_blob() {
        let (_folder, store) = store();
        let descriptor = Descriptor::new("x", Digest::of(b"hello"), 5);
        let Ingest::Write(mut writer) = store.ingest(&descriptor).unwrap() else { panic!("present") };
        let second = std::thread::spawn({
            let (store, descriptor) = (store.clone(), descriptor.clone());
            move || matches!(store.ingest(&descriptor).unwrap(), Ingest::Present)
        });
        writer.write(b"hello").unwrap();
        writer.commit().unwrap();
        assert!(second.join().unwrap());
    }

    #[test]
    fn damaged_content_is_noticed() {
        let (_folder, store) = store();
        let descriptor = store.store(b"hello", "x").unwrap();
        fs::write(store.path(&descriptor.digest), "HELLO").unwrap();
        assert!(store.read_small(&descriptor, 9).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn unused_content_and_parts_are_removed() {
        let (folder, store) = store();
        let kept = store.store(b"kept", "x").unwrap();
        let unused = store.store(b"unused!", "x").unwrap();
        let part = Descriptor::new("x", Digest::of(b"part"), 4);
        let other = Descriptor::new("x", Digest::of(b"other"), 5);
        let Ingest::Write(mut open) = store.ingest(&other).unwrap() else { panic!("present") };
        if let Ingest::Write(mut writer) = store.ingest(&part).unwrap() {
            writer.write(b"pa").unwrap();
        }
        assert_eq!(store.retain(|it| *it == kept.digest).unwrap(), 9);
        assert_eq!((store.size(&kept.digest), store.size(&unused.digest)), (Some(4), None));
        assert_eq!(ingest_files(&folder), 1, "a part that is written stays");
        open.write(b"other").unwrap();
        open.commit().unwrap();
    }
}
