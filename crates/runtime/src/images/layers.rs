//! Unpacked layers, by the id of a layer with everything below it.
//!
//! ```text
//! layers/HEX/fs       the files of a layer, in the form of overlayfs
//! layers/HEX/usage    its bytes and files
//! layers/.new-*       a layer while it is unpacked
//! ```
//!
//! Invariants: a layer under its id is complete, and its archive had the digest that the image names (diff id).

use super::compression::decompress;
use super::content::ContentStore;
use super::digest::{Digest, HashingReader};
use super::error::ImageError;
use super::manifest::{Descriptor, ImageConfig, Manifest};
use super::root_dir::{remove_tree, tree_usage};
use super::unpack::{UnpackLimits, unpack};
use crate::steps::step;
use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinguishes the layers that this process unpacks at one time.
static UNPACKED: AtomicU64 = AtomicU64::new(0);
const NEW: &str = ".new-";

/// Space that files take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct LayerStore {
    root: PathBuf,
    pub(super) limits: UnpackLimits,
}

impl LayerStore {
    pub fn open(root: &Path, limits: UnpackLimits) -> Result<Self, ImageError> {
        // programs with set-user-id bits are inside
        durable_file::directory(root, 0o700).map_err(ImageError::at(root))?;
        Ok(LayerStore { root: root.to_owned(), limits })
    }

    /// The files of a layer.
    pub fn files(&self, chain_id: &Digest) -> PathBuf {
        self.root.join(chain_id.hex()).join("fs")
    }

    pub fn is_unpacked(&self, chain_id: &Digest) -> bool {
        self.files(chain_id).is_dir()
    }

    /// Unpacks a layer, if it is not there yet. `chain` are the ids of the image's layers, the lowest first, and the
    /// layers below the one at `index` are there.
    pub fn unpack(
        &self,
        content: &ContentStore,
        layer: &Descriptor,
        config: &ImageConfig,
        index: usize,
    ) -> Result<(), ImageError> {
        let chain = config.chain_ids();
        let (Some(chain_id), Some(diff_id)) = (chain.get(index), config.rootfs.diff_ids.get(index)) else {
            return Err(ImageError::Invalid("the image names fewer layers than it has".to_owned()));
        };
        if self.is_unpacked(chain_id) {
            return Ok(());
        }
        let count = UNPACKED.fetch_add(1, Ordering::Relaxed);
        let name =
            format!("{NEW}{}-{}-{count}", &chain_id.hex()[..16], rustix::process::getpid().as_raw_nonzero());
        let temporary = self.root.join(&name);
        let lower: Vec<_> = chain[..index].iter().rev().map(|it| self.files(it)).collect();
        let unpacked = self.unpack_into(&temporary, content, layer, diff_id, &lower);
        let installed = unpacked.and_then(|()| self.install(&temporary, chain_id));
        if installed.is_err() {
            // leftovers are removed with other garbage
            let _ = self.remove(&name);
        }
        installed
    }

    fn unpack_into(
        &self,
        temporary: &Path,
        content: &ContentStore,
        layer: &Descriptor,
        diff_id: &Digest,
        lower: &[PathBuf],
    ) -> Result<(), ImageError> {
        let files = temporary.join("fs");
        step("unpack a layer", &files);
        durable_file::directory(&files, 0o755).map_err(ImageError::at(&files))?;
        let blob = content.read(&layer.digest)?;
        let archive = decompress(blob).map_err(ImageError::during("read a layer"))?;
        let archive = HashingReader::new(archive, diff_id.hasher(), self.limits.bytes);
        let archive = unpack(archive, &files, lower, self.limits)?;
        let found = archive.finish().map_err(ImageError::during("read a layer"))?;
        if found != *diff_id {
            return Err(ImageError::Invalid(format!(
                "the unpacked layer {} has the digest {found}, and the image names {diff_id}",
                layer.digest
            )));
        }
        let (bytes, inodes) = tree_usage(&files).map_err(ImageError::at(&files))?;
        let usage = serde_json::to_vec(&Usage { bytes, inodes }).unwrap_or_default();
        let path = temporary.join("usage");
        step("write the usage of a layer", &path);
        fs::write(&path, usage).map_err(ImageError::at(&path))
    }

    fn install(&self, temporary: &Path, chain_id: &Digest) -> Result<(), ImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, &self.root, flags, Mode::empty());
        folder.and_then(syncfs).map_err(|why| ImageError::at(&self.root)(why.into()))?;
        let target = self.root.join(chain_id.hex());
        step("install a layer", &target);
        match fs::rename(temporary, &target) {
            // another process was faster
            Err(_) if self.is_unpacked(chain_id) => self
                .remove(&temporary.file_name().map_or(String::new(), |it| it.to_string_lossy().into_owned())),
            renamed => {
                renamed.map_err(ImageError::at(&target))?;
                durable_file::sync_directory(&self.root).map_err(ImageError::at(&self.root))
            }
        }
    }

    /// Unpacks all layers of an image.
    pub fn unpack_all(
        &self,
        content: &ContentStore,
        manifest: &Manifest,
        config: &ImageConfig,
    ) -> Result<(), ImageError> {
        if manifest.layers.len() != config.rootfs.diff_ids.len() {
            return Err(ImageError::Invalid(format!(
                "the manifest has {} layers, and the configuration names {}",
                manifest.layers.len(),
                config.rootfs.diff_ids.len()
            )));
        }
        let mut layers = manifest.layers.iter().enumerate();
        layers.try_for_each(|(index, layer)| self.unpack(content, layer, config, index))
    }

    /// The space of a layer, as it was when it was unpacked.
    pub fn usage(&self, chain_id: &Digest) -> Usage {
        let text = fs::read(self.root.join(chain_id.hex()).join("usage")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The space of all layers.
    pub fn total_usage(&self) -> Result<Usage, ImageError> {
        let mut total = Usage::default();
        for name in self.names()? {
            let text = fs::read(self.root.join(name).join("usage")).unwrap_or_default();
            let usage: Usage = serde_json::from_slice(&text).unwrap_or_default();
            total.bytes += usage.bytes;
            total.inodes += usage.inodes;
        }
        Ok(total)
    }

    /// Removes layers that are not kept, and unfinished ones. No layer may be unpacked at that time.
    pub fn retain(&self, kept: &BTreeSet<Digest>) -> Result<u64, ImageError> {
        let mut freed = 0;
        for name in self.names()? {
            if !kept.iter().any(|it| it.hex() == name) {
                let text = fs::read(self.root.join(&name).join("usage")).unwrap_or_default();
                freed += serde_json::from_slice::<Usage>(&text).map_or(0, |it| it.bytes);
                self.remove(&name)?;
            }
        }
        Ok(freed)
    }

    fn names(&self) -> Result<Vec<String>, ImageError> {
        let entries = fs::read_dir(&self.root).map_err(ImageError::at(&self.root))?;
        Ok(entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
    }

    /// A layer loses its id first, so that a crash leaves no part of it under it.
    fn remove(&self, name: &str) -> Result<(), ImageError> {
        let path = self.root.join(name);
        let doomed = match name.starts_with(NEW) {
            true => path,
            false => {
                let doomed = self.root.join(format!("{NEW}{name}"));
                // a removal before this one that was not completed, of the same layer
                remove_tree(CWD, doomed.as_os_str().as_bytes(), 0).map_err(ImageError::at(&doomed))?;
                step("remove a layer", &path);
                fs::rename(&path, &doomed).map_err(ImageError::at(&path))?;
                doomed
            }
        };
        remove_tree(CWD, doomed.as_os_str().as_bytes(), 0).map_err(ImageError::at(&doomed))
    }
}
