//! The images of a machine: content, unpacked layers and names, in one directory.
//!
//! Several processes may use it. A process that adds content holds a shared lock until a name keeps it, and one that makes a
//! container until its record names the layers ([`ImageStore::begin_use`]); the removal of garbage holds the lock alone, from
//! before it looks at what is in use.

use super::content::ContentStore;
use super::digest::Digest;
use super::error::ImageError;
use super::layers::{LayerStore, Usage};
use super::manifest::{
    DOCUMENT_LIMIT, Descriptor, Document, ImageConfig, Index, Manifest, Platform, is_index, is_manifest,
};
use super::records::{ImageRecord, ImageRecords, lock};
use super::reference::ImageReference;
use super::unpack::UnpackLimits;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Indexes within indexes; more are refused.
const INDEX_DEPTH: usize = 3;

/// Reads which layers containers use.
pub trait UsedLayers: FnOnce() -> io::Result<BTreeSet<Digest>> {}

impl<T: FnOnce() -> io::Result<BTreeSet<Digest>>> UsedLayers for T {}

/// See the module.
pub struct ImageStore {
    root: PathBuf,
    pub content: ContentStore,
    pub layers: LayerStore,
    pub records: ImageRecords,
    pub platform: Platform,
    /// Parsed images by the digest of their target.
    parsed: Mutex<HashMap<Digest, Arc<ParsedImage>>>,
}

/// The documents of an image for this platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedImage {
    pub manifest: Manifest,
    pub config: ImageConfig,
}

/// An image with all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The digest of the configuration.
    pub id: Digest,
    /// Names with a tag, and names with a digest.
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    /// Bytes of the content.
    pub size: u64,
    pub parsed: Arc<ParsedImage>,
}

impl ImageStore {
    pub fn open(root: &Path, limits: UnpackLimits) -> Result<Self, ImageError> {
        durable_file::directory(root, 0o700).map_err(ImageError::at(root))?;
        Ok(ImageStore {
            root: root.to_owned(),
            content: ContentStore::open(&root.join("content"))?,
            layers: LayerStore::open(&root.join("layers"), limits)?,
            records: ImageRecords::open(root),
            platform: Platform::current(),
            parsed: Mutex::new(HashMap::new()),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Keeps content and layers from being removed as garbage, until the guard is dropped.
    pub fn begin_use(&self) -> Result<File, ImageError> {
        let path = self.root.join("use.lock");
        lock(&path, FlockOperation::LockShared).map_err(ImageError::at(&path))
    }

    /// All images, by id.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        let mut images: BTreeMap<Digest, Image> = BTreeMap::new();
        for record in self.records.list()?.iter().cloned() {
            // an image with missing content can be pulled again
            let Ok(parsed) = self.parse(&record.target) else { continue };
            let id = parsed.manifest.config.digest.clone();
            let image = images.entry(id.clone()).or_insert_with(|| Image {
                id,
                tags: Vec::new(),
                digests: Vec::new(),
                size: parsed.manifest.content_size(),
                parsed,
            });
            match record.name.contains('@') {
                true => image.digests.push(record.name),
                false => image.tags.push(record.name),
            }
        }
        Ok(images.into_values().collect())
    }

    /// An image by name, by id, or by the beginning of its id.
    pub fn find(&self, image: &str) -> Result<Option<Image>, ImageError> {
        let images = self.list()?;
        let hex = image.strip_prefix("sha256:").unwrap_or(image);
        let is_hex = hex.len() >= 8 && hex.bytes().all(|it| it.is_ascii_hexdigit());
        let of_id: Vec<_> = images.iter().filter(|it| is_hex && it.id.hex().starts_with(hex)).collect();
        if let [found] = of_id[..] {
            return Ok(Some(found.clone()));
        }
        let Ok(reference) = ImageReference::parse(image) else { return Ok(None) };
        // a digest says more than the tag beside it
        let name = match &reference.digest {
            Some(digest) => reference.by_digest(digest),
            None => reference.to_string(),
        };
        Ok(images.into_iter().find(|it| it.tags.contains(&name) || it.digests.contains(&name)))
    }

    /// The documents of what a name names.
    pub fn parse(&self, target: &Descriptor) -> Result<Arc<ParsedImage>, ImageError> {
        if let Some(found) = self.parsed.lock().get(&target.digest) {
            return Ok(found.clone());
        }
        let (_, manifest) = self.manifest(target)?;
        let config = ImageConfig::parse(&self.content.read_small(&manifest.config, DOCUMENT_LIMIT)?)?;
        let parsed = Arc::new(ParsedImage { manifest, config });
        self.parsed.lock().insert(target.digest.clone(), parsed.clone());
        Ok(parsed)
    }

    /// The manifest for this platform.
    pub fn manifest(&self, target: &Descriptor) -> Result<(Descriptor, Manifest), ImageError> {
        let mut target = target.clone();
        for _ in 0..=INDEX_DEPTH {
            match Document::parse(&self.content.read_small(&target, DOCUMENT_LIMIT)?)? {
                Document::Manifest(manifest) => return Ok((target, manifest)),
                Document::Index(index) => target = select(&index, &self.platform)?,
            }
        }
        Err(ImageError::Invalid("the image has indexes within indexes".to_owned()))
    }

    /// Gives a target its names, if its content for this platform is complete.
    pub fn name(&self, names: &[String], target: &Descriptor) -> Result<Arc<ParsedImage>, ImageError> {
        let parsed = self.parse(target)?;
        for part in parsed.manifest.layers.iter().chain([&parsed.manifest.config]) {
            if self.content.size(&part.digest) != Some(part.size) {
                return Err(ImageError::NotFound(format!("content {}", part.digest)));
            }
        }
        let record = |name: &String| ImageRecord { name: name.clone(), target: target.clone() };
        self.records.set(&names.iter().map(record).collect::<Vec<_>>())?;
        Ok(parsed)
    }

    /// The layers of an image, unpacked, the topmost first.
    pub fn unpacked_layers(&self, parsed: &ParsedImage) -> Result<Vec<Digest>, ImageError> {
        self.layers.unpack_all(&self.content, &parsed.manifest, &parsed.config)?;
        Ok(parsed.config.chain_ids().into_iter().rev().collect())
    }

    /// Removes a name, or by its id an image with all its names. Its content goes with the next removal of garbage.
    pub fn remove(&self, image: &str) -> Result<bool, ImageError> {
        let Some(found) = self.find(image)? else { return Ok(false) };
        let of_id = found.id.as_str() == image
            || !image.contains([':', '/', '@']) && found.id.hex().starts_with(image);
        let all = [&found.tags[..], &found.digests[..]].concat();
        let name = ImageReference::parse(image).map(|it| it.to_string()).unwrap_or_default();
        let mut names = if of_id { all } else { vec![name] };
        // the last tag takes the names by digest with it
        if found.tags.iter().all(|it| names.contains(it)) && !names.iter().any(|it| it.contains('@')) {
            names.extend(found.digests);
        }
        self.records.remove(&names)?;
        Ok(true)
    }

    /// Removes content that no image names, and layers that no image and no container uses, with what unfinished pulls have
    /// left. `used_layers` is called while nothing can come into use. Returns the bytes that became free, or `None` without a
    /// change while the store is in use.
    pub fn collect_garbage(&self, used_layers: impl UsedLayers) -> Result<Option<u64>, ImageError> {
        let path = self.root.join("use.lock");
        match lock(&path, FlockOperation::NonBlockingLockExclusive) {
            Ok(_alone) => self.collect_alone(used_layers).map(Some),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(ImageError::at(&path)(why)),
        }
    }

    /// As [`ImageStore::collect_garbage`], once the store is not in use.
    pub fn wait_and_collect_garbage(&self, used_layers: impl UsedLayers) -> Result<u64, ImageError> {
        let path = self.root.join("use.lock");
        let _alone = lock(&path, FlockOperation::LockExclusive).map_err(ImageError::at(&path))?;
        self.collect_alone(used_layers)
    }

    fn collect_alone(&self, used_layers: impl UsedLayers) -> Result<u64, ImageError> {
        let mut content = BTreeSet::new();
        let mut layers = used_layers().map_err(ImageError::during("read which layers are in use"))?;
        for record in self.records.list()?.iter() {
            self.mark(&record.target, &mut content, INDEX_DEPTH);
            if let Ok(parsed) = self.parse(&record.target) {
                layers.extend(parsed.config.chain_ids());
            }
        }
        self.parsed.lock().retain(|digest, _| content.contains(digest));
        let freed = self.content.retain(|digest| content.contains(digest))?;
        Ok(freed + self.layers.retain(&layers)?)
    }

    /// Adds the digests of a document and everything that it names.
    fn mark(&self, target: &Descriptor, content: &mut BTreeSet<Digest>, depth: usize) {
        content.insert(target.digest.clone());
        let document = self.content.read_small(target, DOCUMENT_LIMIT).and_then(|it| Document::parse(&it));
        match document {
            Ok(Document::Manifest(manifest)) => {
                content.extend(manifest.layers.into_iter().chain([manifest.config]).map(|it| it.digest));
            }
            Ok(Document::Index(index)) if depth > 0 => {
                index.manifests.iter().for_each(|it| self.mark(it, content, depth - 1));
            }
            _ => {}
        }
    }

    /// The space of unpacked layers.
    pub fn usage(&self) -> Result<Usage, ImageError> {
        self.layers.total_usage()
    }
}

/// The manifest or index for a platform.
pub fn select(index: &Index, platform: &Platform) -> Result<Descriptor, ImageError> {
    let Platform { os, architecture, .. } = platform;
    let missing = || ImageError::NotFound(format!("an image for {os}/{architecture}"));
    index
        .select(platform)
        .filter(|it| is_manifest(&it.media_type) || is_index(&it.media_type))
        .cloned()
        .ok_or_else(missing)
}
