//! Mirrors and certificate authorities of registries, from files `HOST/hosts.toml` in the form of containerd.
//!
//! ```toml
//! server = "https://registry.example.org"
//!
//! [host."https://mirror.example.org"]
//! capabilities = ["pull", "resolve"]
//! ca = "mirror.crt"
//! ```

use super::super::error::ImageError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A server that has the images of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Without a slash at the end, with the path of the API (`/v2`).
    pub url: String,
    pub can_resolve: bool,
    pub can_pull: bool,
    /// Certificate authorities in PEM.
    pub authorities: Option<Vec<u8>>,
    /// Client certificate and key in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    pub skip_verify: bool,
    pub headers: Vec<(String, String)>,
    /// The registry itself; only it gets credentials.
    pub is_registry: bool,
}

#[derive(Deserialize, Default)]
struct HostsFile {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    own: HostSettings,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HostSettings {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMore<String>>,
    client: Option<ClientFiles>,
    skip_verify: bool,
    override_path: bool,
    header: BTreeMap<String, OneOrMore<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn list(&self) -> &[T] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(more) => more,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ClientFiles {
    /// Certificate and key in one file.
    One(String),
    Pairs(Vec<(String, String)>),
}

/// The servers of a registry in the order in which they are tried; the registry itself is the last.
pub fn endpoints(folder: &Path, registry: &str) -> Result<Vec<Endpoint>, ImageError> {
    // the name has been parsed, so it is no path
    let own = folder.join(registry.replace(':', "_"));
    let candidates = [folder.join(registry), own, folder.join("_default")];
    for directory in candidates {
        let path = directory.join("hosts.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                return parse(&text, &directory, registry)
                    .map_err(|why| ImageError::Invalid(format!("{}: {why}", path.display())));
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(ImageError::at(&path)(why)),
        }
    }
    Ok(vec![registry_endpoint(registry)])
}

fn registry_endpoint(registry: &str) -> Endpoint {
    Endpoint {
        url: format!("{}/v2", server_url(registry)),
        can_resolve: true,
        can_pull: true,
        is_registry: true,
        ..Endpoint::default()
    }
}

/// A registry on this machine needs no certificate.
fn server_url(registry: &str) -> String {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host).trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback());
    match registry {
        "docker.io" => "https://registry-1.docker.io".to_owned(),
        _ if is_local => format!("http://{registry}"),
        _ => format!("https://{registry}"),
    }
}

fn parse(text: &str, directory: &Path, registry: &str) -> Result<Vec<Endpoint>, String> {
    let file: HostsFile = toml::from_str(text).map_err(|why| why.to_string())?;
    let mut found = Vec::new();
    // the order of the file is the order of the attempts
    for (url, settings) in order_of(text, &file.host) {
        let settings: HostSettings =
            settings.clone().try_into().map_err(|why: toml::de::Error| why.to_string())?;
        found.push(endpoint(&url, &settings, directory)?);
    }
    let server = file.server.unwrap_or_else(|| server_url(registry));
    found.push(Endpoint { is_registry: true, ..endpoint(&server, &file.own, directory)? });
    Ok(found)
}

/// Hosts in the order in which the file names them.
fn order_of<'a>(text: &str, hosts: &'a toml::Table) -> Vec<(String, &'a toml::Value)> {
    let position =
        |url: &str| text.find(&format!("\"{url}\"")).or_else(|| text.find(url)).unwrap_or(usize::MAX);
    let mut found: Vec<_> = hosts.iter().map(|(url, settings)| (url.clone(), settings)).collect();
    found.sort_by_key(|(url, _)| position(url));
    found
}

fn endpoint(url: &str, settings: &HostSettings, directory: &Path) -> Result<Endpoint, String> {
    let url = if url.contains("://") { url.to_owned() } else { server_url(url) };
    let url = url.trim_end_matches('/');
    let url = match settings.override_path || url.ends_with("/v2") {
        true => url.to_owned(),
        false => format!("{url}/v2"),
    };
    let read = |file: &str| {
        let path: PathBuf = directory.join(file);
        std::fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))
    };
    let mut authorities = Vec::new();
    for file in settings.ca.iter().flat_map(OneOrMore::list) {
        authorities.extend(read(file)?);
        authorities.push(b'\n');
    }
    let identity = match &settings.client {
        Some(ClientFiles::One(file)) => Some((read(file)?, read(file)?)),
        Some(ClientFiles::Pairs(pairs)) => match pairs.first() {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        },
        None => None,
    };
    let can = |capability: &str| {
        settings.capabilities.as_ref().is_none_or(|it| it.iter().any(|it| it == capability))
    };
    let header = |(name, values): (&String, &OneOrMore<String>)| {
        values.list().iter().map(|value| (name.clone(), value.clone())).collect::<Vec<_>>()
    };
    Ok(Endpoint {
        url,
        can_resolve: can("resolve"),
        can_pull: can("pull"),
        authorities: (!authorities.is_empty()).then_some(authorities),
        identity,
        skip_verify: settings.skip_verify,
        headers: settings.header.iter().flat_map(header).collect(),
        is_registry: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_without_a_file_are_called_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let url = |registry: &str| endpoints(folder.path(), registry).unwrap()[0].url.clone();
        assert_eq!(url("docker.io"), "https://registry-1.docker.io/v2");
        assert_eq!(url("r.test:5000"), "https://r.test:5000/v2");
        assert_eq!(url("127.0.0.1:5000"), "http://127.0.0.1:5000/v2");
        assert_eq!(url("[::1]:5000"), "http://[::1]:5000/v2");
        assert_eq!(url("localhost"), "http://localhost/v2");
    }

    #[test]
    fn mirrors_are_tried_in_their_order_before_the_registry() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("r.test");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("a.crt"), "PEM").unwrap();
        let text = r#"
            server = "https://r.test"
            [host."https://z.test"]
            capabilities = ["pull"]
            ca = "a.crt"
            [host."http://a.test/mirror/v2"]
            override_path = true
            skip_verify = true
            [host."http://a.test/mirror/v2".header]
            x-team = ["one", "two"]
        "#;
        std::fs::write(own.join("hosts.toml"), text).unwrap();
        let found = endpoints(folder.path(), "r.test").unwrap();
        let urls: Vec<_> = found.iter().map(|it| &*it.url).collect();
        assert_eq!(urls, ["https://z.test/v2", "http://a.test/mirror/v2", "https://r.test/v2"]);
        assert_eq!((found[0].can_resolve, found[0].can_pull, found[0].is_registry), (false, true, false));
        assert_eq!(found[0].authorities.as_deref(), Some(&b"PEM\n"[..]));
        assert!(found[1].skip_verify && found[1].can_resolve);
        assert_eq!(found[1].headers.len(), 2);
        assert!(found[2].is_registry && found[2].can_resolve);
        std::fs::write(own.join("hosts.toml"), "server = [").unwrap();
        assert!(endpoints(folder.path(), "r.test").is_err());
    }
}
