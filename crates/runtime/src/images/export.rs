//! Exports images as an archive that is an OCI layout and that `docker load` reads too.

use super::copy_progress::{CopyProgress, CountingReader};
use super::error::ImageError;
use super::manifest::{DOCUMENT_LIMIT, Descriptor, Document, Index, Manifest, OCI_INDEX, OCI_MANIFEST};
use super::reference::ImageReference;
use super::store::ImageStore;
use super::tar::EntryKind;
use super::tar_writer::{TarWriter, entry};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;

/// Writes images with the content for this platform.
pub fn export(
    store: &ImageStore,
    images: &[String],
    output: impl Write,
    progress: CopyProgress,
) -> Result<(), ImageError> {
    let _use = store.begin_use()?;
    let output = TarWriter::new(output);
    let mut archive = Exporter { store, output, written: BTreeSet::new(), progress, done: 0 };
    archive.small("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let (mut manifests, mut docker) = (Vec::new(), Vec::new());
    for image in images {
        let name = ImageReference::parse(image)?.to_string();
        let records = store.records.list()?;
        let record = records.iter().find(|it| it.name == name);
        let target = record.ok_or_else(|| ImageError::NotFound(format!("image {name}")))?.target.clone();
        let (mut descriptor, manifest) = store.manifest(&target)?;
        archive.manifest(&descriptor, &manifest)?;
        descriptor.annotations.insert("io.containerd.image.name".to_owned(), name.clone());
        descriptor.platform = Some(store.platform.clone());
        if descriptor.media_type.is_empty() {
            descriptor.media_type = OCI_MANIFEST.to_owned();
        }
        manifests.push(descriptor);
        let tags: Vec<_> = Some(&name).filter(|it| !it.contains('@')).into_iter().collect();
        let layers: Vec<_> = manifest.layers.iter().map(blob_path).collect();
        docker.push(json!({"Config": blob_path(&manifest.config), "RepoTags": tags, "Layers": layers}));
    }
    let index = Index { schema_version: 2, media_type: OCI_INDEX.to_owned(), manifests };
    let index = serde_json::to_vec(&index).map_err(|why| ImageError::Invalid(why.to_string()))?;
    archive.small("index.json", &index)?;
    archive.small("manifest.json", json!(docker).to_string().as_bytes())?;
    archive.output.finish().map_err(ImageError::during("write the archive"))?;
    Ok(())
}

struct Exporter<'a, W> {
    store: &'a ImageStore,
    output: TarWriter<W>,
    written: BTreeSet<String>,
    progress: CopyProgress,
    /// Bytes of blobs that were written.
    done: u64,
}

fn blob_path(descriptor: &Descriptor) -> String {
    format!("blobs/{}/{}", descriptor.digest.algorithm(), descriptor.digest.hex())
}

impl<W: Write> Exporter<'_, W> {
    fn small(&mut self, path: &str, data: &[u8]) -> Result<(), ImageError> {
        let written = self.output.append(&mut entry(EntryKind::File, path), data);
        written.map_err(ImageError::during("write the archive"))
    }

    fn manifest(&mut self, target: &Descriptor, manifest: &Manifest) -> Result<(), ImageError> {
        let text = self.store.content.read_small(target, DOCUMENT_LIMIT)?;
        debug_assert!(Document::parse(&text).is_ok());
        for part in manifest.layers.iter().chain([&manifest.config, target]) {
            if self.written.insert(blob_path(part)) {
                self.blob(part)?;
            }
        }
        Ok(())
    }

    fn blob(&mut self, part: &Descriptor) -> Result<(), ImageError> {
        let file = self.store.content.read(&part.digest)?;
        let size = file.metadata().map_err(ImageError::during("read content"))?.len();
        let entry = super::tar::Entry { size, ..entry(EntryKind::File, &blob_path(part)) };
        let file =
            CountingReader { input: file, done: self.done, all: None, progress: self.progress.clone() };
        self.done += size;
        self.output.append_from(&entry, file).map_err(ImageError::during("write the archive"))
    }
}
