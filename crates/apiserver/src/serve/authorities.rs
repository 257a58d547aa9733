//! The authorities that vouch for clients and for proxies, read again when their files change.
//!
//! What always holds: a bundle that cannot be used never replaces one that can.

use super::error::ServeError;
use super::pem::{certificates, problem};
use arc_swap::ArcSwapOption;
use auth::x509;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file with certificates of authorities in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFile {
    pub path: PathBuf,
    /// Authorities, in PEM, that are trusted besides those in the file.
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

/// Certificates of authorities, and what verifies chains by them.
pub(super) struct Bundle {
    pub(super) pem: Vec<u8>,
    pub(super) authorities: x509::Authorities,
}

impl Bundle {
    fn new(what: &'static str, pem: Vec<u8>) -> Result<Self, ServeError> {
        let authorities = x509::Authorities::new(certificates(what, &pem)?).map_err(problem(what))?;
        Ok(Bundle { pem, authorities })
    }
}

/// The bundle of the moment, and where it comes from.
pub(super) struct Source {
    what: &'static str,
    current: ArcSwapOption<Bundle>,
    file: Option<AuthorityFile>,
}

impl Source {
    fn new(
        what: &'static str,
        pem: &Option<Vec<u8>>,
        file: &Option<AuthorityFile>,
    ) -> Result<Self, ServeError> {
        let bundle = pem.clone().map(|pem| Bundle::new(what, pem)).transpose()?;
        Ok(Source { what, current: ArcSwapOption::from_pointee(bundle), file: file.clone() })
    }

    /// Whether an operator named a file.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn current(&self) -> Option<Arc<Bundle>> {
        self.current.load_full()
    }

    /// Reads the file again; says whether the bundle changed. `refused` is the last content that could not be used.
    async fn refresh(&self, refused: &mut Option<Vec<u8>>) -> bool {
        let Some(file) = &self.file else { return false };
        // a file that is gone for the moment is about to be replaced
        let Some(pem) = file.read().await else { return false };
        let is_current = self.current.load().as_ref().is_some_and(|it| it.pem == pem);
        if is_current || refused.as_ref() == Some(&pem) {
            return false;
        }
        match Bundle::new(self.what, pem.clone()) {
            Ok(bundle) => {
                self.current.store(Some(Arc::new(bundle)));
                tracing::info!(file = %file.path.display(), "authorities were read anew");
                true
            }
            Err(why) => {
                tracing::warn!(%why, file = %file.path.display(), "a changed file of authorities cannot be used: the last one stays");
                *refused = Some(pem);
                false
            }
        }
    }
}

/// Whose certificates are accepted.
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

    /// Grows with each change.
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

    /// Reads files again when they change, without end; calls `changed` after each change.
    pub(super) async fn follow(&self, interval: std::time::Duration, changed: impl Fn()) {
        let mut every = tokio::time::interval(interval);
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
