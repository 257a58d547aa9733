//! URLs and their parts.

use schema::problem::quoted;
use std::fmt;

/// A parsed URL.
#[derive(Debug)]
pub struct Url {
    scheme: String,
    user: Option<String>,
    host: String,
    path: String,
    query: Option<String>,
    fragment: String,
    /// The part after the scheme if it is not a path.
    opaque: Option<String>,
}

/// Parses an absolute URL or path; the error has its text.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    // the rules of request URIs: no relative reference, no fragment
    let refuse = |why: &str| Err(format!("parse {}: {why}", quoted(text)));
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return refuse("net/url: invalid control character in URL");
    }
    if text.is_empty() {
        return refuse("empty url");
    }
    let (start, fragment) = text.split_once('#').unwrap_or((text, ""));
    let whole = |why: String| match why.split_once(": ") {
        Some((_, reason)) => format!("parse {}: {reason}", quoted(text)),
        None => why,
    };
    // a path may begin with two slashes there
    let parsed = schema::url::parse(start).map_err(whole)?;
    if parsed.scheme.is_empty() && !start.starts_with('/') && text != "*" {
        return refuse("invalid URI for request");
    }
    let mut url = Url {
        host: decoded(parsed.host, false),
        user: parsed.user.map(str::to_owned),
        path: parsed.path.to_owned(),
        query: start.split_once('?').map(|_| parsed.query.to_owned()),
        fragment: fragment.to_owned(),
        opaque: None,
        scheme: parsed.scheme,
    };
    let after = start.get(url.scheme.len() + 1..).unwrap_or_default();
    if !url.scheme.is_empty() && !after.starts_with('/') {
        url.opaque = Some(after.split('?').next().unwrap_or_default().to_owned());
    }
    Ok(url)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if let Some(opaque) = &self.opaque {
            f.write_str(opaque)?;
        } else {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                f.write_str("//")?;
                self.user.iter().try_for_each(|user| write!(f, "{user}@"))?;
                f.write_str(&self.host)?;
            }
            f.write_str(&self.escaped_path())?;
        }
        self.query.iter().try_for_each(|query| write!(f, "?{query}"))?;
        if self.fragment.is_empty() { Ok(()) } else { write!(f, "#{}", self.fragment) }
    }
}

impl Url {
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Host and port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The host without port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let name = self.host_and_port().0;
        name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name)
    }

    /// The port; empty if there is none.
    pub(crate) fn port(&self) -> &str {
        self.host_and_port().1
    }

    fn host_and_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => (name, port),
            _ => (&self.host, ""),
        }
    }

    /// The path as written if its encoding is valid, else encoded anew.
    pub(crate) fn escaped_path(&self) -> String {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
        if self.path.bytes().all(valid) {
            return self.path.clone();
        }
        let mut out = String::new();
        for byte in decoded_bytes(&self.path, false) {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        out
    }

    /// The parameters of the query, each with all its values.
    pub(crate) fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut entries: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.as_deref().unwrap_or_default().split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if pair.is_empty() || pair.contains(';') || !is_valid_escape(key) || !is_valid_escape(value) {
                continue;
            }
            let (key, value) = (decoded(key, true), decoded(value, true));
            match entries.iter_mut().find(|(name, _)| *name == key) {
                Some((_, values)) => values.push(value),
                None => entries.push((key, vec![value])),
            }
        }
        entries
    }
}

fn is_valid_escape(text: &str) -> bool {
    text.split('%').skip(1).all(|it| it.get(..2).is_some_and(|it| it.bytes().all(|b| b.is_ascii_hexdigit())))
}

fn decoded(text: &str, plus: bool) -> String {
    String::from_utf8_lossy(&decoded_bytes(text, plus)).into_owned()
}

fn decoded_bytes(text: &str, plus: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|it| u8::from_str_radix(it, 16).ok());
        match (byte, hex) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 2;
            }
            (b'+', _) if plus => out.push(b' '),
            (byte, _) => out.push(*byte),
        }
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let url = |text: &str| parse(text).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(url("https://example.com:80/path?query=val#fragment").host(), "example.com:80");
        let user = url("https://user:pass@example.com:80/path?query=val#fragment");
        assert_eq!(user.hostname(), "example.com");
        assert_eq!(url("https://[::1]:80/").hostname(), "::1");
        assert_eq!(url("https://[::1]/").host(), "[::1]");
        assert_eq!(url("https://[::1]:80/").port(), "80");
        assert_eq!(url("/path").scheme(), "");
        let spaces = url("https://example.com/path with spaces/");
        assert_eq!(spaces.escaped_path(), "/path%20with%20spaces/");
        assert_eq!(url("https://example.com").escaped_path(), "");
    }

    #[test]
    fn relative_addresses_are_refused() {
        for (text, why) in [
            ("", "parse \"\": empty url"),
            ("../path", "parse \"../path\": invalid URI for request"),
            ("https://a:b:c/", "parse \"https://a:b:c/\": invalid port \":c\" after host"),
        ] {
            assert_eq!(parse(text).err().as_deref(), Some(why));
        }
    }
}
