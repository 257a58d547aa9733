//! Credentials of registries in files of the node: `config.json` and `.dockercfg`.
//!
//! The first file that can be read counts; a file of the new form comes before all of the old one. Files are read at
//! each pull, so that a change counts at once.

use super::keyring::Keyring;
use serde_json::Value;
use std::path::{Path, PathBuf};

const JSON_FILE: &str = "config.json";
const OLD_FILE: &str = ".dockercfg";
const JSON_DIRECTORY: &str = ".docker";

/// The files, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerConfig {
    files: Vec<PathBuf>,
}

impl DockerConfig {
    /// The files of the agent's directory, of the working directory, of the home directory and of the root.
    pub fn new(root_dir: &Path, home: Option<&Path>) -> Self {
        let new = [root_dir.to_owned(), PathBuf::new()].into_iter();
        let new = new
            .chain(home.map(|it| it.join(JSON_DIRECTORY)))
            .chain([PathBuf::from("/").join(JSON_DIRECTORY)]);
        let old = [root_dir.to_owned(), PathBuf::new()].into_iter();
        let old = old.chain(home.map(Path::to_owned)).chain([PathBuf::from("/")]);
        let files = new.map(|it| it.join(JSON_FILE)).chain(old.map(|it| it.join(OLD_FILE))).collect();
        DockerConfig { files }
    }

    /// Adds the credentials to a keyring.
    pub fn add_to(&self, keyring: &mut Keyring) {
        let parsed = self.files.iter().find_map(|file| {
            let text = std::fs::read(file).ok()?;
            match serde_json::from_slice::<Value>(&text) {
                Ok(value) => Some((value, file.ends_with(JSON_FILE))),
                Err(why) => {
                    tracing::warn!(file = %file.display(), %why, "credentials of registries cannot be read");
                    None
                }
            }
        });
        match parsed {
            Some((value, true)) => keyring.add(&value["auths"]),
            Some((value, false)) => keyring.add(&value),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("root"), dir.path().join("home"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(home.join(JSON_DIRECTORY)).unwrap();
        let users = || {
            let mut keyring = Keyring::default();
            let mut config = DockerConfig::new(&root, Some(&home));
            config.files.retain(|it| it.starts_with(dir.path()));
            config.add_to(&mut keyring);
            keyring.lookup("r.test/a").into_iter().map(|it| it.username).collect::<Vec<_>>()
        };
        assert!(users().is_empty());
        std::fs::write(root.join(OLD_FILE), r#"{"r.test":{"username":"old","password":"p"}}"#).unwrap();
        assert_eq!(users(), ["old"]);
        let file = home.join(JSON_DIRECTORY).join(JSON_FILE);
        std::fs::write(file, r#"{"auths":{"https://r.test":{"auth":"aG9tZTpw"}}}"#).unwrap();
        assert_eq!(users(), ["home"]);
        std::fs::write(root.join(JSON_FILE), "no JSON").unwrap();
        assert_eq!(users(), ["home"]);
    }
}
