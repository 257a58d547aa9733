//! The files of certificates, laid out as upstream's agent does.
//!
//! ```text
//! kubelet-client-2023-11-14-22-13-20.pem   a certificate and its key
//! kubelet-client-current.pem               a link to the newest one
//! ```
//!
//! Without a link the pair of two other files is current: those of the configuration, or `<prefix>.crt` and
//! `<prefix>.key`. Invariant: the link leads to a whole file at all times.

use super::certificate::{PemPair, invalid};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const CURRENT: &str = "current";

/// See the module.
#[derive(Debug, Clone)]
pub struct CertificateStore {
    directory: PathBuf,
    /// The first part of the names: `kubelet-client`.
    prefix: &'static str,
    /// The files of certificate and key while there is no link.
    others: (PathBuf, PathBuf),
}

impl CertificateStore {
    pub fn new(directory: &Path, prefix: &'static str, others: Option<(PathBuf, PathBuf)>) -> Self {
        let beside = || (directory.join(format!("{prefix}.crt")), directory.join(format!("{prefix}.key")));
        CertificateStore { directory: directory.to_owned(), prefix, others: others.unwrap_or_else(beside) }
    }

    /// The link to the newest certificate.
    pub fn current_path(&self) -> PathBuf {
        self.path(CURRENT)
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}-{suffix}.pem", self.prefix))
    }

    /// The current certificate. `None` if there are no files, an error if they cannot be used.
    pub fn current(&self) -> io::Result<Option<PemPair>> {
        let link = self.current_path();
        let (certificate, key) = match std::fs::symlink_metadata(&link) {
            Ok(_) => (link.clone(), link),
            Err(_) => self.others.clone(),
        };
        let absent = |why: io::Error| match why.kind() {
            io::ErrorKind::NotFound => Ok(None),
            _ => Err(why),
        };
        let pair = match std::fs::read(&certificate) {
            Ok(text) if certificate == key => PemPair { certificate: text.clone(), key: text },
            Ok(text) => match std::fs::read(&key) {
                Ok(key) => PemPair { certificate: text, key },
                Err(why) => return absent(why),
            },
            Err(why) => return absent(why),
        };
        let named = |why: io::Error| invalid(format!("{}: {why}", certificate.display()));
        pair.certified().map_err(named)?;
        Ok(Some(pair))
    }

    /// Writes a certificate and makes it the current one.
    pub fn update(&self, pair: &PemPair, now: SystemTime) -> io::Result<()> {
        pair.certified()?;
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = schema::time::format_time(i64::try_from(seconds).unwrap_or(0));
        let time = time.trim_end_matches('Z').replace(['T', ':'], "-");
        let file = self.path(&time);
        let mut text = pair.certificate.clone();
        if text.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(&pair.key);
        // certificates of the same second have the same name
        durable_file::replace(&file, text, durable_file::PRIVATE)?;
        durable_file::replace_link(&self.current_path(), &file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::testing::self_signed;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_link_leads_to_the_newest_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("pki");
        let store = CertificateStore::new(&directory, "kubelet-client", None);
        assert_eq!(store.current().unwrap(), None);
        let (first, second) = (self_signed("a"), self_signed("b"));
        store.update(&first, at(1_700_000_000)).unwrap();
        store.update(&second, at(1_700_000_001)).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "kubelet-client-2023-11-14-22-13-20.pem",
                "kubelet-client-2023-11-14-22-13-21.pem",
                "kubelet-client-current.pem"
            ]
        );
        let current = store.current().unwrap().unwrap();
        assert_eq!(current.facts().unwrap().names.into_iter().collect::<Vec<_>>(), ["b"]);
        let mode = std::fs::metadata(store.current_path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mixed = PemPair { certificate: first.certificate, key: second.key };
        assert!(store.update(&mixed, at(1_700_000_002)).is_err());
        std::fs::write(store.current_path(), "no certificate").unwrap();
        assert!(store.current().is_err());
    }

    #[test]
    fn other_files_are_current_until_there_is_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let files = (folder.path().join("c"), folder.path().join("k"));
        let store = CertificateStore::new(folder.path(), "kubelet-server", Some(files.clone()));
        let pair = self_signed("a");
        std::fs::write(&files.0, &pair.certificate).unwrap();
        assert_eq!(store.current().unwrap(), None, "there is no key");
        std::fs::write(&files.1, &pair.key).unwrap();
        assert_eq!(store.current().unwrap(), Some(pair));
        store.update(&self_signed("b"), at(0)).unwrap();
        let names = store.current().unwrap().unwrap().facts().unwrap().names;
        assert!(names.contains("b"), "{names:?}");
    }
}
