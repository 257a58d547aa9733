//! Credentials of registries from pull secrets, by image.

use super::image_match;
use crate::runtime::RegistryAuth;
use api::core::v1::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;

/// The key of the default registry.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Credentials by registry and path, such as `registry.test/team`.
#[derive(Debug, Default)]
pub struct Keyring {
    entries: BTreeMap<String, Vec<RegistryAuth>>,
}

impl Keyring {
    /// Adds the credentials of pull secrets of both types; others are ignored.
    pub fn from_secrets<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut keyring = Keyring::default();
        for secret in secrets {
            let (config, path) = match &*secret.type_ {
                it if it.ends_with("/dockerconfigjson") => {
                    (secret.data.get(".dockerconfigjson"), Some("auths"))
                }
                it if it.ends_with("/dockercfg") => (secret.data.get(".dockercfg"), None),
                _ => continue,
            };
            let Some(config) = config.and_then(|it| serde_json::from_slice::<Value>(&it.0).ok()) else {
                continue;
            };
            keyring.add(path.map_or(&config, |path| &config[path]));
        }
        keyring
    }

    /// Adds a map from registries to credentials.
    pub fn add(&mut self, auths: &Value) {
        for (registry, entry) in auths.as_object().into_iter().flatten() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let mut auth =
                RegistryAuth { username: text("username"), password: text("password"), ..Default::default() };
            if let Some((username, password)) = decode(&text("auth")) {
                (auth.username, auth.password) = (username, password);
            }
            self.entries.entry(registry_key(registry)).or_default().push(auth);
        }
    }

    pub fn add_auth(&mut self, registry: &str, auth: RegistryAuth) {
        self.entries.entry(registry_key(registry)).or_default().push(auth);
    }

    /// The credentials for an image, the most specific ones first.
    pub fn lookup(&self, image: &str) -> Vec<RegistryAuth> {
        let matching = self.entries.iter().rev().filter(|(key, _)| is_match(key, image));
        let found: Vec<RegistryAuth> = matching.flat_map(|(_, auths)| auths).cloned().collect();
        let first = image.split('/').next().unwrap_or_default();
        let is_hub = matches!(first, "docker.io" | DEFAULT_REGISTRY);
        let is_default = is_hub || !image.contains('/') || !first.contains(['.', ':']);
        match self.entries.get(DEFAULT_REGISTRY) {
            Some(default) if found.is_empty() && is_default => default.clone(),
            _ => found,
        }
    }
}

fn decode(auth: &str) -> Option<(String, String)> {
    let bytes = STANDARD.decode(auth.trim_end_matches('\n')).ok().filter(|it| !it.is_empty())?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// Host and path of a registry; `/v1/` and `/v2/` are no paths.
fn registry_key(registry: &str) -> String {
    let rest =
        registry.strip_prefix("https://").or_else(|| registry.strip_prefix("http://")).unwrap_or(registry);
    let (host, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let path = path.strip_prefix("/v1").filter(|it| it.starts_with('/')).unwrap_or(path);
    let path = path.strip_prefix("/v2").filter(|it| it.starts_with('/')).unwrap_or(path);
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Whether a key of registries, whose host labels may have wildcards, covers an image.
fn is_match(key: &str, image: &str) -> bool {
    image_match::is_match(key, image) == Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_credentials_come_first() {
        let mut keyring = Keyring::default();
        keyring.add(&serde_json::json!({
            "https://r.test/v1/": {"username": "host", "password": "1"},
            "r.test/team": {"auth": "dGVhbTpzM2NyZXQ="},
            "*.wild.test:5000": {"username": "wild", "password": "2"},
            "https://index.docker.io/v1/": {"username": "hub", "password": "3"},
        }));
        let users = |image: &str| -> Vec<String> {
            keyring.lookup(image).into_iter().map(|it| it.username).collect()
        };
        assert_eq!(users("r.test/team/app:1"), ["team", "host"]);
        assert_eq!(users("r.test/other/app:1"), ["host"]);
        assert_eq!(users("a.wild.test:5000/x"), ["wild"]);
        assert_eq!(users("a.b.wild.test:5000/x"), Vec::<String>::new());
        assert_eq!(users("busybox:1"), ["hub"]);
        assert_eq!(users("team/busybox:1"), ["hub"]);
        assert_eq!(users("docker.io/library/busybox"), ["hub"]);
    }
}
