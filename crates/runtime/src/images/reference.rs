//! Names of images: their grammar, the default registry and the default tag.

use super::digest::Digest;
use super::error::ImageError;
use schema::problem::quoted;
use std::fmt;

/// The registry of names without one.
const DEFAULT_REGISTRY: &str = "docker.io";

/// A whole name: `docker.io/library/busybox:1`, with a tag, a digest or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    /// Host and port.
    pub registry: String,
    /// The repository in the registry.
    pub path: String,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

impl ImageReference {
    /// Parses a name as Docker does: without a registry it is one of Docker Hub, without tag and digest it is `latest`.
    pub fn parse(image: &str) -> Result<Self, ImageError> {
        let image = with_default_tag(image).map_err(ImageError::Invalid)?;
        let (named, digest) = match image.split_once('@') {
            Some((named, digest)) => (named, Some(Digest::parse(digest)?)),
            None => (&*image, None),
        };
        let repository = repository(&image);
        let (registry, path) = repository.split_once('/').unwrap_or((DEFAULT_REGISTRY, &repository));
        let after_path = named.rsplit('/').next().unwrap_or_default();
        let tag = after_path.split_once(':').map(|(_, tag)| tag.to_owned());
        Ok(ImageReference { registry: registry.to_owned(), path: path.to_owned(), tag, digest })
    }

    /// The name without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.registry, self.path)
    }

    /// The name of the image with a digest only.
    pub fn by_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.repository())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Adds the tag `latest` to a name without tag and digest. The error is the text that events quote.
pub fn with_default_tag(image: &str) -> Result<String, String> {
    match parse(image) {
        Ok(true) => Ok(image.to_owned()),
        Ok(false) => Ok(format!("{image}:latest")),
        Err(why) => Err(format!("couldn't parse image reference {}: {why}", quoted(image))),
    }
}

/// The name of a valid image without tag and digest, with its registry: `docker.io/library/busybox`.
pub fn repository(image: &str) -> String {
    let (domain, rest) = split_domain(image);
    let rest = rest.split('@').next().unwrap_or_default();
    let path = rest.rsplit_once(':').map_or(rest, |(path, _)| path);
    match domain {
        Some(domain) if !matches!(domain, DEFAULT_REGISTRY | "index.docker.io") => format!("{domain}/{path}"),
        _ if path.contains('/') => format!("{DEFAULT_REGISTRY}/{path}"),
        _ => format!("{DEFAULT_REGISTRY}/library/{path}"),
    }
}

/// Whether a valid name has a tag or a digest.
fn parse(image: &str) -> Result<bool, &'static str> {
    const INVALID: &str = "invalid reference format";
    const UPPERCASE: &str = "invalid reference format: repository name must be lowercase";
    if image.len() == 64 && image.bytes().all(|it| it.is_ascii_hexdigit() && !it.is_ascii_uppercase()) {
        return Err("invalid repository name, cannot specify 64-byte hexadecimal strings");
    }
    let (domain, rest) = split_domain(image);
    let name = rest.split(':').next().unwrap_or_default();
    if name.chars().any(char::is_uppercase) {
        return Err(UPPERCASE);
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    let is_valid = domain.is_none_or(is_domain)
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !is_valid {
        return Err(INVALID);
    }
    if domain.map_or(0, |it| it.len() + 1) + path.len() > 255 {
        return Err("repository name must not be more than 255 characters");
    }
    Ok(tag.is_some() || digest.is_some())
}

fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.chars().any(char::is_uppercase) =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !host.contains('[') || host.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let is_label = |label: &str| {
        let inner = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    let is_host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(address) => address.bytes().all(|it| it.is_ascii_hexdigit() || it == b':'),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

/// Lower-case letters and digits, separated by one dot, one or two underscores, or dashes.
fn is_component(component: &str) -> bool {
    let mut rest = component;
    loop {
        let word = rest.bytes().take_while(|it| it.is_ascii_lowercase() || it.is_ascii_digit()).count();
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        if rest.is_empty() {
            return true;
        }
        let dashes = rest.bytes().take_while(|it| *it == b'-').count();
        let separator = match rest.as_bytes() {
            [b'_', b'_', ..] => 2,
            [b'_' | b'.', ..] => 1,
            _ => dashes,
        };
        if separator == 0 {
            return false;
        }
        rest = &rest[separator..];
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|it| word(it) || it == b'.' || it == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(|it| it.is_ascii_alphabetic())
            && part.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    let length = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => hex.len() >= 32,
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && length
        && hex.bytes().all(|it| it.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_their_registry() {
        let check = |image: &str, expected: &str| assert_eq!(repository(image), expected, "{image}");
        check("busybox", "docker.io/library/busybox");
        check("busybox:1@sha256:abc", "docker.io/library/busybox");
        check("team/app:1", "docker.io/team/app");
        check("index.docker.io/team/app", "docker.io/team/app");
        check("127.0.0.1:5555/a/b:t", "127.0.0.1:5555/a/b");
        check("localhost/b@sha256:abc", "localhost/b");
    }

    #[test]
    fn references_have_all_parts() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let check = |image: &str, expected: &str| {
            assert_eq!(ImageReference::parse(image).unwrap().to_string(), expected, "{image}");
        };
        check("busybox", "docker.io/library/busybox:latest");
        check("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b:1");
        check("localhost:5000/b", "localhost:5000/b:latest");
        check(&format!("a/b@{digest}"), &format!("docker.io/a/b@{digest}"));
        check(&format!("r.test/b:1@{digest}"), &format!("r.test/b:1@{digest}"));
        assert!(ImageReference::parse("Upper").is_err());
        assert!(ImageReference::parse(&format!("x@sha384:{}", "0".repeat(96))).is_err());
        let parsed = ImageReference::parse("r.test:1/x").unwrap();
        assert_eq!(
            (&*parsed.registry, &*parsed.path, parsed.tag.as_deref()),
            ("r.test:1", "x", Some("latest"))
        );
    }

    #[test]
    fn names_get_a_tag_or_are_refused() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, expected) in [
            ("busybox", Ok("busybox:latest")),
            ("registry.test/busybox:1", Ok("registry.test/busybox:1")),
            ("127.0.0.1:5555/lib/busybox", Ok("127.0.0.1:5555/lib/busybox:latest")),
            ("a/b__c/d-e.f", Ok("a/b__c/d-e.f:latest")),
            ("registry.test/bb@@x", Err("invalid reference format")),
            ("a:b:c:d", Err("invalid reference format")),
            ("registry.test/busybox@sha256:abc", Err("invalid reference format")),
            ("registry.test/busybox:", Err("invalid reference format")),
            ("registry.test/busybox:a b", Err("invalid reference format")),
            ("registry.test/Busybox:1", Err("invalid reference format: repository name must be lowercase")),
        ] {
            let expected = expected
                .map(str::to_owned)
                .map_err(|why| format!("couldn't parse image reference \"{image}\": {why}"));
            assert_eq!(with_default_tag(image), expected);
        }
        let pinned = format!("r.test/x:t@{digest}");
        assert_eq!(with_default_tag(&pinned), Ok(pinned));
    }
}
