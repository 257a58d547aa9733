//! Documents of images, in the forms of OCI and Docker: descriptors, manifests, indexes, configurations.

use super::digest::Digest;
use super::error::ImageError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The largest manifest, index or configuration.
pub const DOCUMENT_LIMIT: u64 = 4 * 1024 * 1024;
/// overlayfs takes no more, with paths of a usual length.
pub const LAYER_LIMIT: usize = 127;

/// The type, digest and size of content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        let media_type = media_type.to_owned();
        Descriptor { media_type, digest, size, platform: None, annotations: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl Platform {
    /// The platform of this machine, in the words of Go.
    pub fn current() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", ""),
            "x86" => ("386", ""),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Platform {
            architecture: architecture.to_owned(),
            os: "linux".to_owned(),
            variant: variant.to_owned(),
        }
    }

    /// How well an image for `other` runs here, the lowest first; `None` if it does not.
    fn rank(&self, other: &Platform) -> Option<usize> {
        let fits = self.os == other.os && self.architecture == other.architecture;
        let variants: &[&str] = match (&*self.architecture, &*self.variant) {
            ("arm64", _) => &["v8", ""],
            ("arm", "v7") => &["v7", "v6", "v5", ""],
            ("arm", "v6") => &["v6", "v5", ""],
            ("amd64", _) => &["", "v1"],
            _ => &[""],
        };
        variants.iter().position(|it| *it == other.variant).filter(|_| fits)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

impl Index {
    /// The manifest for a platform; one without a platform fits if there is no better one.
    pub fn select(&self, platform: &Platform) -> Option<&Descriptor> {
        let rank = |it: &Descriptor| match &it.platform {
            Some(other) => platform.rank(other),
            None => Some(usize::MAX),
        };
        let fitting =
            self.manifests.iter().filter(|it| is_manifest(&it.media_type) || is_index(&it.media_type));
        fitting.filter_map(|it| Some((rank(it)?, it))).min_by_key(|(rank, _)| *rank).map(|(_, it)| it)
    }
}

/// A manifest or an index, by its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Manifest(Manifest),
    Index(Index),
}

impl Document {
    pub fn parse(data: &[u8]) -> Result<Self, ImageError> {
        let bad = |why: String| ImageError::Invalid(format!("the manifest is invalid: {why}"));
        let value: serde_json::Value = serde_json::from_slice(data).map_err(|why| bad(why.to_string()))?;
        let (has_layers, has_manifests) = (value.get("layers").is_some(), value.get("manifests").is_some());
        match (value["schemaVersion"].as_u64(), has_layers, has_manifests) {
            (Some(1), ..) => Err(bad("its schema version 1 is not supported".to_owned())),
            // one reader must not see a manifest where another one sees an index
            (_, true, true) => Err(bad("it is both a manifest and an index".to_owned())),
            (_, false, true) => {
                serde_json::from_value(value).map(Document::Index).map_err(|why| bad(why.to_string()))
            }
            _ => {
                let manifest: Manifest = serde_json::from_value(value).map_err(|why| bad(why.to_string()))?;
                manifest.check()?;
                Ok(Document::Manifest(manifest))
            }
        }
    }
}

impl Manifest {
    fn check(&self) -> Result<(), ImageError> {
        if self.layers.len() > LAYER_LIMIT {
            return Err(ImageError::Invalid(format!(
                "the image has {} layers, and at most {LAYER_LIMIT} can be used",
                self.layers.len()
            )));
        }
        if self.config.size > DOCUMENT_LIMIT {
            return Err(ImageError::Invalid("the configuration of the image is too large".to_owned()));
        }
        Ok(())
    }

    /// Bytes of the configuration and the layers, as they are stored.
    pub fn content_size(&self) -> u64 {
        self.layers.iter().fold(self.config.size, |sum, layer| sum.saturating_add(layer.size))
    }
}

pub fn is_manifest(media_type: &str) -> bool {
    matches!(media_type, OCI_MANIFEST | DOCKER_MANIFEST | "")
}

pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, OCI_INDEX | DOCKER_INDEX)
}

/// The configuration of an image: what its containers run by default, and its unpacked layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    #[serde(default)]
    pub config: RunConfig,
    #[serde(default)]
    pub rootfs: RootFs,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    #[serde(deserialize_with = "or_default")]
    pub volumes: BTreeMap<String, serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RootFs {
    #[serde(deserialize_with = "or_default")]
    pub diff_ids: Vec<Digest>,
}

/// Docker writes null for what is empty.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl ImageConfig {
    pub fn parse(data: &[u8]) -> Result<Self, ImageError> {
        serde_json::from_slice(data)
            .map_err(|why| ImageError::Invalid(format!("the configuration of the image is invalid: {why}")))
    }

    /// The ids of the layers with everything below them, the lowest first.
    pub fn chain_ids(&self) -> Vec<Digest> {
        let mut chain: Vec<Digest> = Vec::new();
        for diff_id in &self.rootfs.diff_ids {
            let next = match chain.last() {
                Some(parent) => Digest::of(format!("{parent} {diff_id}").as_bytes()),
                None => diff_id.clone(),
            };
            chain.push(next);
        }
        chain
    }

    /// The user as a number or as a name; `uid:gid` has both before the colon.
    pub fn user(&self) -> (Option<i64>, String) {
        let user = self.config.user.split(':').next().unwrap_or_default();
        match user.parse::<u32>() {
            Ok(uid) => (Some(i64::from(uid)), String::new()),
            Err(_) => (None, user.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(os: &str, architecture: &str, variant: &str) -> Descriptor {
        let platform = Platform { os: os.into(), architecture: architecture.into(), variant: variant.into() };
        let digest = Digest::of(format!("{os}/{architecture}/{variant}").as_bytes());
        Descriptor { platform: Some(platform), ..Descriptor::new(OCI_MANIFEST, digest, 1) }
    }

    #[test]
    fn an_index_is_read_by_platform() {
        let manifests = vec![
            descriptor("windows", "amd64", ""),
            descriptor("linux", "arm", "v6"),
            descriptor("linux", "arm", "v7"),
            descriptor("linux", "amd64", ""),
            descriptor("unknown", "unknown", ""),
        ];
        let index = Index { schema_version: 2, media_type: OCI_INDEX.into(), manifests };
        let select = |architecture: &str, variant: &str| {
            let platform =
                Platform { os: "linux".into(), architecture: architecture.into(), variant: variant.into() };
            index.select(&platform).map(|it| it.digest.clone())
        };
        assert_eq!(select("amd64", ""), Some(index.manifests[3].digest.clone()));
        assert_eq!(select("arm", "v7"), Some(index.manifests[2].digest.clone()));
        assert_eq!(select("arm", "v6"), Some(index.manifests[1].digest.clone()));
        assert_eq!(select("s390x", ""), None);
    }

    #[test]
    fn documents_are_recognized_by_their_contents() {
        let digest = Digest::of(b"");
        let layer = format!(r#"{{"digest": "{digest}", "size": 0}}"#);
        let manifest = format!(r#"{{"schemaVersion": 2, "config": {layer}, "layers": [{layer}]}}"#);
        assert!(matches!(Document::parse(manifest.as_bytes()), Ok(Document::Manifest(_))));
        let index = format!(r#"{{"schemaVersion": 2, "manifests": [{layer}]}}"#);
        assert!(matches!(Document::parse(index.as_bytes()), Ok(Document::Index(_))));
        let both = format!(r#"{{"schemaVersion": 2, "manifests": [], "config": {layer}, "layers": []}}"#);
        let layers = vec![layer.clone(); LAYER_LIMIT + 1].join(",");
        let many = format!(r#"{{"schemaVersion": 2, "config": {layer}, "layers": [{layers}]}}"#);
        for bad in ["", "[]", r#"{"schemaVersion": 1, "fsLayers": []}"#, &both, &many] {
            assert!(Document::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn configurations_may_have_nulls() {
        let text = format!(
            r#"{{"config": {{"Cmd": ["sh"], "Entrypoint": null, "User": "1000:1000"}}, "rootfs": {{"diff_ids": ["{a}", "{b}"]}}}}"#,
            a = Digest::of(b"a"),
            b = Digest::of(b"b"),
        );
        let config = ImageConfig::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (config.config.cmd.as_slice(), config.user()),
            (&["sh".to_owned()][..], (Some(1000), String::new()))
        );
        let chain = config.chain_ids();
        assert_eq!(chain[0], Digest::of(b"a"));
        assert_eq!(chain[1], Digest::of(format!("{} {}", chain[0], Digest::of(b"b")).as_bytes()));
        assert!(ImageConfig::parse(br#"{"config": {"Env": "x"}}"#).is_err());
    }
}
