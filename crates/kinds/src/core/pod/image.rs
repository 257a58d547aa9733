//! Names of images, as far as the default pull policy depends on them.
//!
//! `[domain[:port]/]path[:tag][@digest]`; other names are left to the node to reject.

/// Whether the image may change under its name: its tag is `latest`, or nothing fixes it.
pub(super) fn is_latest(image: &str) -> bool {
    match parse(image) {
        Some((Some(tag), _)) => tag == "latest",
        Some((None, has_digest)) => !has_digest,
        None => false,
    }
}

/// The tag and whether there is a digest; nothing when the name is not one.
fn parse(image: &str) -> Option<(Option<&str>, bool)> {
    let is_identifier = image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return None;
    }
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    if !digest.is_none_or(is_digest) {
        return None;
    }
    let (domain, rest) = match named.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (Some(first), rest),
        _ => (None, named),
    };
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    let fits = domain.is_none_or(is_domain) && path.split('/').all(is_component) && tag.is_none_or(is_tag);
    (fits && full_length(domain, path) <= MOST_CHARACTERS).then_some((tag, digest.is_some()))
}

const MOST_CHARACTERS: usize = 255;

/// The length of a name with the parts that are left out of short ones.
fn full_length(domain: Option<&str>, path: &str) -> usize {
    match domain {
        Some(domain) => domain.len() + 1 + path.len(),
        None if path.contains('/') => "docker.io/".len() + path.len(),
        None => "docker.io/library/".len() + path.len(),
    }
}

fn is_domain_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let numeric = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    port.is_none_or(numeric) && host.split('.').all(part)
}

/// Lower-case words joined by one dot, one or two underscores, or dashes.
fn is_component(text: &str) -> bool {
    let mut joint = 0;
    let mut last = b'/';
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => joint = 0,
            b'.' | b'_' | b'-' => {
                joint += 1;
                let fits = match (joint, byte) {
                    (1, _) => last != b'/',
                    (2, b'_') => last == b'_',
                    (_, b'-') => last == b'-',
                    _ => false,
                };
                if !fits {
                    return false;
                }
            }
            _ => return false,
        }
        last = byte;
    }
    last != b'/' && joint == 0
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length_fits = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => false,
    };
    length_fits && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_fixed_tag_are_latest() {
        let check = |image: &str, expected: bool| assert_eq!(is_latest(image), expected, "{image}");
        check("nginx", true);
        check("nginx:latest", true);
        check("nginx:1.2", false);
        check("localhost:5000/a/b", true);
        check("localhost:5000/a/b:1", false);
        check(
            "registry.example.com/app@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            false,
        );
        check("a__b/c--d/e.f", true);
        check("", false);
        check("In valid", false);
        check("Upper", false);
        check("a..b", false);
        check("a/:x", false);
        check("-a", false);
        check("0000000000000000000000000000000000000000000000000000000000000000", false);
        check(&"a".repeat(237), true);
        check(&"a".repeat(238), false);
    }
}
