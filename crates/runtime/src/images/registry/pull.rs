//! Pulls an image: its documents, then its layers, several at once, unpacked in their order.

use super::super::content::{BlobWriter, ContentStore, Ingest};
use super::super::digest::Digest;
use super::super::error::ImageError;
use super::super::manifest::{
    DOCKER_INDEX, DOCKER_MANIFEST, DOCUMENT_LIMIT, Descriptor, Document, ImageConfig, Manifest, OCI_INDEX,
    OCI_MANIFEST,
};
use super::super::reference::ImageReference;
use super::super::store::{ImageStore, select};
use super::client::{ContentRequest, RegistryClient, STALL, read_body};
use super::credentials::RegistryCredentials;
use super::hosts::{Endpoint, endpoints};
use crate::RegistryAuth;
use bytes::Bytes;
use env::World;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};

/// Layers that are downloaded at once.
const PARALLEL: usize = 4;
/// Attempts of one blob without a byte of progress.
const ATTEMPTS: u32 = 4;
const RETRY: Duration = Duration::from_millis(500);
/// Pieces between the connection and the disk.
const QUEUE: usize = 32;
const INDEX_DEPTH: usize = 3;

/// Progress of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullEvent {
    Downloaded { digest: Digest, bytes: u64, size: u64 },
    Unpacked { digest: Digest },
}

pub type PullProgress = Arc<dyn Fn(PullEvent) + Send + Sync>;

/// Pulls images into a store.
pub struct Puller {
    pub store: Arc<ImageStore>,
    /// The folder of `HOST/hosts.toml`.
    pub hosts: PathBuf,
    pub agent: String,
    pub world: World,
}

/// A pulled image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledImage {
    /// The digest of the configuration.
    pub id: Digest,
    /// The name with the digest that the tag had.
    pub by_digest: String,
}

impl Puller {
    pub async fn pull(
        &self,
        image: &str,
        auth: Option<&RegistryAuth>,
        progress: PullProgress,
    ) -> Result<PulledImage, ImageError> {
        let reference = ImageReference::parse(image)?;
        let in_use = self.blocking(|store| store.begin_use()).await?;
        let hosts = endpoints(&self.hosts, &reference.registry)?;
        let credentials = RegistryCredentials::of(auth, &reference.registry);
        let client = RegistryClient::new(&self.agent, credentials);
        let source = Arc::new(Source {
            client,
            endpoints: hosts,
            reference: reference.clone(),
            world: self.world.clone(),
        });
        let (target, manifest) = self.documents(&source).await?;
        check_sizes(&manifest.layers, self.store.layers.limits.bytes)?;
        let config = self.config(&source, &manifest).await?;
        self.layers(&source, manifest, config, progress).await?;
        let by_digest = reference.by_digest(&target.digest);
        let mut names = vec![by_digest.clone()];
        names.extend(reference.digest.is_none().then(|| reference.to_string()));
        let parsed = self.blocking(move |store| store.name(&names, &target)).await?;
        drop(in_use);
        Ok(PulledImage { id: parsed.manifest.config.digest.clone(), by_digest })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ImageStore) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let store = self.store.clone();
        spawn_blocking(move || work(&store)).await.map_err(ended)?
    }

    /// The target of the name, and the manifest for this platform; both are stored.
    async fn documents(&self, source: &Arc<Source>) -> Result<(Descriptor, Manifest), ImageError> {
        let named = match (&source.reference.digest, &source.reference.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_default(),
        };
        let resolved = source.document(&named, source.reference.digest.as_ref()).await;
        let (target, mut text) = resolved.map_err(|why| {
            why.within(&format!("failed to resolve reference {:?}", source.reference.to_string()))
        })?;
        let mut current = target.clone();
        for _ in 0..=INDEX_DEPTH {
            let stored = (current.clone(), text.clone());
            self.blocking(move |store| store.content.store_as(&stored.0, &stored.1[..])).await?;
            match Document::parse(&text)? {
                Document::Manifest(manifest) => return Ok((target, manifest)),
                Document::Index(index) => {
                    let digest = select(&index, &self.store.platform)?.digest;
                    (current, text) = source.document(digest.as_str(), Some(&digest)).await?;
                }
            }
        }
        Err(ImageError::Invalid("the image has indexes within indexes".to_owned()))
    }

    async fn config(&self, source: &Arc<Source>, manifest: &Manifest) -> Result<ImageConfig, ImageError> {
        let descriptor = manifest.config.clone();
        source.blob(&self.store.content, &descriptor, &|_| {}).await?;
        let config =
            self.blocking(move |store| store.content.read_small(&descriptor, DOCUMENT_LIMIT)).await?;
        let config = ImageConfig::parse(&config)?;
        match config.rootfs.diff_ids.len() == manifest.layers.len() {
            true => Ok(config),
            false => Err(ImageError::Invalid("the configuration of the image names other layers".to_owned())),
        }
    }

    async fn layers(
        &self,
        source: &Arc<Source>,
        manifest: Manifest,
        config: ImageConfig,
        progress: PullProgress,
    ) -> Result<(), ImageError> {
        let permits = Arc::new(Semaphore::new(PARALLEL));
        let download = |layer: &Descriptor| {
            let (source, layer, permits) = (source.clone(), layer.clone(), permits.clone());
            let (content, progress) = (self.store.content.clone(), progress.clone());
            Download(tokio::spawn(async move {
                let _permit = permits.acquire().await;
                let Descriptor { digest, size, .. } = &layer;
                let report =
                    |bytes| progress(PullEvent::Downloaded { digest: digest.clone(), bytes, size: *size });
                source.blob(&content, &layer, &report).await
            }))
        };
        // the downloads end with the list
        let downloads: Vec<_> = manifest.layers.iter().map(download).collect();
        let config = Arc::new(config);
        for (index, (mut download, layer)) in downloads.into_iter().zip(manifest.layers).enumerate() {
            (&mut download.0).await.map_err(ended)??;
            let (config, digest) = (config.clone(), layer.digest.clone());
            self.blocking(move |store| store.layers.unpack(&store.content, &layer, &config, index)).await?;
            progress(PullEvent::Unpacked { digest });
        }
        Ok(())
    }
}

/// Refuses layers that would be too large once they were downloaded: they must not fill the disk before.
fn check_sizes(layers: &[Descriptor], limit: u64) -> Result<(), ImageError> {
    match layers.iter().find(|it| it.size > limit) {
        Some(layer) => Err(ImageError::Invalid(format!("{} is larger than {limit} bytes", layer.digest))),
        None => Ok(()),
    }
}

/// A download that ends when nothing waits for it any more.
struct Download(JoinHandle<Result<(), ImageError>>);

impl Drop for Download {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ended(why: tokio::task::JoinError) -> ImageError {
    ImageError::Registry(format!("the pull ended: {why}"))
}

/// A repository and the servers that have it.
struct Source {
    client: RegistryClient,
    endpoints: Vec<Endpoint>,
    reference: ImageReference,
    world: World,
}

impl Source {
    fn request(&self, kind: &str, name: &str) -> ContentRequest {
        let path = &self.reference.path;
        ContentRequest {
            path: format!("/{path}/{kind}/{name}"),
            scope: format!("repository:{path}:pull"),
            ..ContentRequest::default()
        }
    }

    /// A manifest or an index by tag or digest. With a digest every server may answer, as the answer is verified.
    async fn document(
        &self,
        name: &str,
        expected: Option<&Digest>,
    ) -> Result<(Descriptor, Bytes), ImageError> {
        let accept = vec![OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX];
        let request = ContentRequest { accept, ..self.request("manifests", name) };
        let mut last = ImageError::NotFound(self.reference.to_string());
        for endpoint in self.endpoints.iter().filter(|it| expected.is_some() || it.can_resolve) {
            match self.document_of(endpoint, &request, expected).await {
                Ok(found) => return Ok(found),
                Err(why) => last = self.reject(endpoint, why, last),
            }
        }
        Err(last)
    }

    async fn document_of(
        &self,
        endpoint: &Endpoint,
        request: &ContentRequest,
        expected: Option<&Digest>,
    ) -> Result<(Descriptor, Bytes), ImageError> {
        let response = self.client.get(endpoint, request).await.map_err(|why| match why {
            ImageError::NotFound(_) => ImageError::NotFound(self.reference.to_string()),
            other => other,
        })?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default().to_owned();
        let read = read_body(response, DOCUMENT_LIMIT as usize).await;
        let text = read.map_err(|why| ImageError::Registry(format!("{}: {why}", self.reference)))?;
        let mut hasher = expected.map_or_else(|| Digest::of(b"").hasher(), Digest::hasher);
        hasher.update(&text);
        let digest = hasher.finish();
        match expected {
            Some(expected) if *expected != digest => Err(ImageError::Invalid(format!(
                "{}: the manifest {expected} has the digest {digest}",
                self.reference
            ))),
            _ => Ok((Descriptor::new(&media_type, digest, text.len() as u64), text)),
        }
    }

    /// Keeps the error of the registry itself; those of mirrors are logged.
    fn reject(&self, endpoint: &Endpoint, why: ImageError, last: ImageError) -> ImageError {
        if endpoint.is_registry {
            return why;
        }
        tracing::info!(mirror = endpoint.url, image = %self.reference, %why, "a mirror does not have the image");
        last
    }

    /// Downloads a blob; a part that is there already is continued. `report` gets the bytes that are there.
    async fn blob(
        &self,
        content: &ContentStore,
        blob: &Descriptor,
        report: &(impl Fn(u64) + Sync),
    ) -> Result<(), ImageError> {
        let mut attempts = 0;
        let mut written = 0;
        loop {
            let mut last = ImageError::NotFound(self.reference.to_string());
            for endpoint in self.endpoints.iter().filter(|it| it.can_pull || it.is_registry) {
                let (content, blob) = (content.clone(), blob.clone());
                let ingest = spawn_blocking({
                    let blob = blob.clone();
                    move || content.ingest(&blob)
                });
                let writer = match ingest.await.map_err(ended)?? {
                    Ingest::Present => {
                        report(blob.size);
                        return Ok(());
                    }
                    Ingest::Write(writer) => *writer,
                };
                if writer.written() > written {
                    (written, attempts) = (writer.written(), 0);
                }
                match self.download(endpoint, &blob, writer, report).await {
                    Ok(()) => return Ok(()),
                    Err(why) => last = self.reject(endpoint, why, last),
                }
            }
            attempts += 1;
            let is_final = !matches!(last, ImageError::Registry(_)) || attempts >= ATTEMPTS;
            if is_final {
                return Err(last);
            }
            tracing::info!(digest = %blob.digest, why = %last, "a download is tried again");
            env::sleep(&self.world, RETRY * attempts).await;
        }
    }

    async fn download(
        &self,
        endpoint: &Endpoint,
        blob: &Descriptor,
        mut writer: BlobWriter,
        report: &(impl Fn(u64) + Sync),
    ) -> Result<(), ImageError> {
        let request =
            ContentRequest { offset: writer.written(), ..self.request("blobs", blob.digest.as_str()) };
        // a part that is whole needs no request
        if writer.written() == blob.size && blob.size > 0 {
            return spawn_blocking(move || writer.commit()).await.map_err(ended)?;
        }
        let response = self.client.get(endpoint, &request).await?;
        if response.status() == StatusCode::OK && writer.written() > 0 {
            // the server does not continue
            writer.restart().map_err(ImageError::during("write content"))?;
        }
        let mut written = writer.written();
        let (sender, mut receiver) = mpsc::channel::<Bytes>(QUEUE);
        let writing = spawn_blocking(move || {
            while let Some(data) = receiver.blocking_recv() {
                writer.write(&data)?;
            }
            Ok::<_, ImageError>(writer)
        });
        let mut body = response.into_body();
        let mut failure = None;
        loop {
            let frame = match env::io::timeout(STALL, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(why))) => {
                    failure = Some(why);
                    break;
                }
                Err(_) => {
                    failure = Some("the server stopped sending".to_owned());
                    break;
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            written += data.len() as u64;
            // the writer ended: its error comes below
            if sender.send(data).await.is_err() {
                break;
            }
            report(written);
        }
        drop(sender);
        let writer = writing.await.map_err(ended)??;
        match failure {
            Some(why) => {
                Err(ImageError::Registry(format!("the download of {} broke off: {why}", blob.digest)))
            }
            None => spawn_blocking(move || writer.commit()).await.map_err(ended)?,
        }
    }
}
