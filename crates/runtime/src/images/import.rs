//! Imports images from archives: OCI layouts and those of `docker save`, as a file (also compressed) or a directory.
//!
//! Every blob is stored as it comes by, and verified; documents that name blobs are read at the end. Names of an archive
//! are only keys: no path of it is opened. A blob is as large as a layer may be at most, and so is the uncompressed archive,
//! unless its file is larger: a small archive fills no disk.

use super::compression::decompress;
use super::copy_progress::{CopyProgress, CountingReader};
use super::digest::Digest;
use super::error::ImageError;
use super::manifest::{DOCUMENT_LIMIT, Descriptor, Index, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use super::reference::ImageReference;
use super::store::ImageStore;
use super::tar::{EntryKind, TarReader};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

const NAME_ANNOTATIONS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
const LINK_LIMIT: usize = 10;
/// Files and links of an archive; their names are kept until its end.
const ENTRY_LIMIT: usize = 1 << 17;

/// An image of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Imports all images of an archive or a directory. `name` is that of images without one. Returns their names.
pub fn import(store: &ImageStore, path: &Path, name: Option<&str>) -> Result<Vec<String>, ImageError> {
    import_with_progress(store, path, name, Arc::new(|_, _| {}))
}

/// As [`import`], and reports what was read.
pub fn import_with_progress(
    store: &ImageStore,
    path: &Path,
    name: Option<&str>,
    progress: CopyProgress,
) -> Result<Vec<String>, ImageError> {
    let _use = store.begin_use()?;
    let mut importer = Importer {
        store,
        progress,
        done: 0,
        files: BTreeMap::new(),
        links: BTreeMap::new(),
        documents: BTreeMap::new(),
    };
    match path.is_dir() {
        true => importer.read_directory(path)?,
        false => {
            let file = std::fs::File::open(path).map_err(ImageError::at(path))?;
            importer.read_archive(file)?;
        }
    }
    importer.finish(name)
}

/// Fails once more bytes are read than the limit.
struct LimitedReader<R> {
    input: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| {
            io::Error::other(format!("the archive unpacks to more than the limit of {} bytes", self.limit))
        })?;
        Ok(count)
    }
}

struct Importer<'a> {
    store: &'a ImageStore,
    progress: CopyProgress,
    /// Bytes of the files of a directory that were read.
    done: u64,
    /// Stored files by their path.
    files: BTreeMap<String, Descriptor>,
    links: BTreeMap<String, String>,
    documents: BTreeMap<String, Vec<u8>>,
}

/// A path without `.` and `..`.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

impl Importer<'_> {
    fn read_archive(&mut self, file: std::fs::File) -> Result<(), ImageError> {
        let failed = || ImageError::during::<io::Error>("read the archive");
        let size = file.metadata().map_err(failed())?.len();
        let limit = self.store.layers.limits.bytes.max(size);
        let progress = self.progress.clone();
        let file = CountingReader { input: file, done: 0, all: Some(size), progress };
        let archive = decompress(file).map_err(failed())?;
        let mut reader = TarReader::new(LimitedReader { input: archive, left: limit, limit });
        while let Some(entry) = reader.next_entry()? {
            if self.files.len() + self.links.len() >= ENTRY_LIMIT {
                return Err(ImageError::Invalid(format!("the archive has more than {ENTRY_LIMIT} files")));
            }
            let path = clean(&String::from_utf8_lossy(&entry.path));
            let link = String::from_utf8_lossy(&entry.link).into_owned();
            match entry.kind {
                EntryKind::File => self.add(path, entry.size, &mut reader)?,
                EntryKind::HardLink => drop(self.links.insert(path, clean(&link))),
                EntryKind::Symlink => {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    self.links.insert(path.clone(), clean(&format!("{folder}/{link}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_directory(&mut self, folder: &Path) -> Result<(), ImageError> {
        for name in ["index.json", "manifest.json"] {
            if let Ok(file) = std::fs::File::open(folder.join(name)) {
                self.add(name.to_owned(), 0, file)?;
            }
        }
        for algorithm in ["sha256", "sha512"] {
            let Ok(entries) = std::fs::read_dir(folder.join("blobs").join(algorithm)) else { continue };
            for entry in entries.flatten() {
                let path = entry.path();
                let file = std::fs::File::open(&path).map_err(ImageError::at(&path))?;
                let size = file.metadata().map_err(ImageError::at(&path))?.len();
                let name = entry.file_name().to_string_lossy().into_owned();
                let progress = self.progress.clone();
                let file = CountingReader { input: file, done: self.done, all: None, progress };
                self.add(format!("blobs/{algorithm}/{name}"), size, file)?;
                self.done += size;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, size: u64, mut data: impl Read) -> Result<(), ImageError> {
        if matches!(&*path, "index.json" | "manifest.json" | "repositories" | "oci-layout") {
            let mut document = Vec::new();
            let read = data.take(DOCUMENT_LIMIT + 1).read_to_end(&mut document);
            read.map_err(ImageError::during("read the archive"))?;
            if document.len() as u64 > DOCUMENT_LIMIT {
                return Err(ImageError::Invalid(format!("{path} of the archive is too large")));
            }
            self.documents.insert(path, document);
            return Ok(());
        }
        let limit = self.store.layers.limits.bytes;
        if size > limit {
            return Err(ImageError::Invalid(format!("{path} of the archive is larger than {limit} bytes")));
        }
        let of_layout = path.strip_prefix("blobs/").map(|it| Digest::parse(&it.replacen('/', ":", 1)));
        let descriptor = match of_layout {
            Some(digest) => {
                let descriptor = Descriptor::new("", digest?, size);
                self.store.content.store_as(&descriptor, &mut data)?;
                descriptor
            }
            None => self.store.content.store_unknown(&mut data)?,
        };
        self.files.insert(path, descriptor);
        Ok(())
    }

    fn finish(self, name: Option<&str>) -> Result<Vec<String>, ImageError> {
        let bad = |file: &str| {
            let file = file.to_owned();
            move |why: serde_json::Error| {
                ImageError::Invalid(format!("{file} of the archive is invalid: {why}"))
            }
        };
        let mut targets: Vec<(Vec<String>, Descriptor)> = Vec::new();
        if let Some(text) = self.documents.get("index.json") {
            let index: Index = serde_json::from_slice(text).map_err(bad("index.json"))?;
            for target in index.manifests {
                let named = NAME_ANNOTATIONS.iter().find_map(|it| target.annotations.get(*it));
                let named = named.map(|it| full_name(it, name)).transpose()?;
                targets.push((
                    named.into_iter().collect(),
                    Descriptor { annotations: BTreeMap::new(), ..target },
                ));
            }
        }
        let is_named = targets.iter().any(|(names, _)| !names.is_empty());
        if let Some(text) = self.documents.get("manifest.json").filter(|_| !is_named) {
            let images: Vec<DockerImage> = serde_json::from_slice(text).map_err(bad("manifest.json"))?;
            targets.clear();
            for image in images {
                targets.push(self.docker_image(&image)?);
            }
        }
        if targets.is_empty() {
            return Err(ImageError::Invalid(
                "the archive has no index.json and no manifest.json with images".to_owned(),
            ));
        }
        let mut imported = Vec::new();
        for (mut names, target) in targets {
            if names.is_empty() {
                let Some(name) = name else {
                    return Err(ImageError::Invalid(
                        "an image of the archive has no name; give it one".to_owned(),
                    ));
                };
                names.push(ImageReference::parse(name)?.to_string());
            }
            let parsed = self.store.name(&names, &target)?;
            self.store.unpacked_layers(&parsed)?;
            imported.extend(names);
        }
        Ok(imported)
    }

    /// Makes a manifest for an image of `docker save`.
    fn docker_image(&self, image: &DockerImage) -> Result<(Vec<String>, Descriptor), ImageError> {
        let typed = |path: &str, media_type: &str| {
            Ok::<_, ImageError>(Descriptor { media_type: media_type.to_owned(), ..self.file(path)?.clone() })
        };
        let layers = image.layers.iter().map(|it| typed(it, OCI_LAYER)).collect::<Result<Vec<_>, _>>()?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST.to_owned(),
            config: typed(&image.config, OCI_CONFIG)?,
            layers,
        };
        let text = serde_json::to_vec(&manifest).map_err(|why| ImageError::Invalid(why.to_string()))?;
        let target = self.store.content.store(&text, OCI_MANIFEST)?;
        let tags = image.repo_tags.iter().flatten();
        let names =
            tags.map(|it| Ok(ImageReference::parse(it)?.to_string())).collect::<Result<_, ImageError>>()?;
        Ok((names, target))
    }

    /// A stored file, by its path or that of a link to it.
    fn file(&self, path: &str) -> Result<&Descriptor, ImageError> {
        let mut path = clean(path);
        for _ in 0..LINK_LIMIT {
            match (self.files.get(&path), self.links.get(&path)) {
                (Some(found), _) => return Ok(found),
                (None, Some(target)) => path = target.clone(),
                (None, None) => break,
            }
        }
        Err(ImageError::Invalid(format!("the archive does not have the file {path:?} that it names")))
    }
}

/// The annotation of a layout may be a tag only: then it belongs to the given name.
fn full_name(annotation: &str, name: Option<&str>) -> Result<String, ImageError> {
    let whole = match name {
        Some(name) if !annotation.contains([':', '/']) => {
            format!("{}:{annotation}", name.split([':', '@']).next().unwrap_or(name))
        }
        _ => annotation.to_owned(),
    };
    Ok(ImageReference::parse(&whole)?.to_string())
}
