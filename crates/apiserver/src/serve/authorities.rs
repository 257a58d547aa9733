//! Certificate authorities for clients and for front proxies, reloaded when their files change.
//!
//! Invariant: an unusable bundle never replaces a usable one.

use super::error::ServeError;
use super::pem::{certificates, problem};
use arc_swap::ArcSwapOption;
use auth::x509;
use env::{Interval, Upkeep, World};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file with certificates of authorities in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFile {
    pub path: PathBuf,
    /// Authorities in PEM that are trusted in addition to those in the file.
    pub besides: Vec<u8>,
}

impl AuthorityFile {
    async fn read(&self) -> Option<Vec<u8>> {
        let content = tokio::fs::read(&self.path).await.ok()?;
        let mut pem = self.besides.clone();
        if pem.last().is_some_and(|last| *last != b'\n') {
            pem.push(b'\n');
        }
        pem.extend(content);
        Some(pem)
    }
}

/// Certificates of authorities, in PEM and parsed for verification.
pub(super) struct Bundle {
    pub(super) pem: Vec<u8>,
    pub(super) authorities: x509::Authorities,
}

impl Bundle {
    fn new(subject: &'static str, pem: Vec<u8>) -> Result<Self, ServeError> {
        let authorities = x509::Authorities::new(certificates(subject, &pem)?).map_err(problem(subject))?;
        Ok(Bundle { pem, authorities })
    }
}

/// The current bundle and the file it is read from.
pub(super) struct Source {
    subject: &'static str,
    current: ArcSwapOption<Bundle>,
    file: Option<AuthorityFile>,
}

impl Source {
    fn new(
        subject: &'static str,
        pem: &Option<Vec<u8>>,
        file: &Option<AuthorityFile>,
    ) -> Result<Self, ServeError> {
        let bundle = pem.clone().map(|pem| Bundle::new(subject, pem)).transpose()?;
        Ok(Source { subject, current: ArcSwapOption::from_pointee(bundle), file: file.clone() })
    }

    /// Whether the operator named a file.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn current(&self) -> Option<Arc<Bundle>> {
        self.current.load_full()
    }

    /// Reads the file again; returns whether the bundle changed. `refused` is the last content that could not
    /// be used.
    async fn refresh(&self, refused: &mut Option<Vec<u8>>) -> bool {
        let Some(file) = &self.file else { return false };
        // a missing file is about to be replaced
        let Some(pem) = file.read().await else { return false };
        let is_current = self.current.load().as_ref().is_some_and(|it| it.pem == pem);
        if is_current || refused.as_ref() == Some(&pem) {
            return false;
        }
        match Bundle::new(self.subject, pem.clone()) {
            Ok(bundle) => {
                self.current.store(Some(Arc::new(bundle)));
                tracing::info!(file = %file.path.display(), "reloaded the certificate authorities");
                true
            }
            Err(why) => {
                tracing::warn!(%why, file = %file.path.display(), "reloading the certificate authorities failed: the old ones stay in use");
                *refused = Some(pem);
                false
            }
        }
    }
}

/// The authorities for client certificates and for front-proxy certificates.
pub struct Authorities {
    pub(super) clients: Source,
    pub(super) proxies: Source,
    /// Counts the changes of both.
    generation: AtomicU64,
}

impl Authorities {
    /// From PEM text and the file that it was read from, for clients and for proxies.
    pub(super) fn new(
        clients: (&Option<Vec<u8>>, &Option<AuthorityFile>),
        proxies: (&Option<Vec<u8>>, &Option<AuthorityFile>),
    ) -> Result<Self, ServeError> {
        Ok(Authorities {
            clients: Source::new("client authority", clients.0, clients.1)?,
            proxies: Source::new("proxy authority", proxies.0, proxies.1)?,
            generation: AtomicU64::new(0),
        })
    }

    /// The authorities for clients, in PEM.
    pub fn clients(&self) -> Option<Vec<u8>> {
        self.clients.current().map(|it| it.pem.clone())
    }

    /// The authorities for proxies, in PEM.
    pub fn proxies(&self) -> Option<Vec<u8>> {
        self.proxies.current().map(|it| it.pem.clone())
    }

    /// Increases with each change.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether the authorities can change.
    pub(super) fn have_files(&self) -> bool {
        self.clients.has_file() || self.proxies.has_file()
    }

    pub(super) fn bundles(&self) -> impl Iterator<Item = Arc<Bundle>> {
        [&self.clients, &self.proxies].into_iter().filter_map(Source::current)
    }

    /// Reloads files when they change, without end; calls `changed` after each change.
    pub(super) async fn follow(&self, world: &World, interval: std::time::Duration, changed: impl Fn()) {
        if !self.have_files() {
            return std::future::pending().await;
        }
        let mut every = Interval::upkeep(world, Upkeep::check(interval));
        let mut refused = (None, None);
        loop {
            every.tick().await;
            let clients = self.clients.refresh(&mut refused.0).await;
            if self.proxies.refresh(&mut refused.1).await || clients {
                self.generation.fetch_add(1, Ordering::Release);
                changed();
            }
        }
    }
}
