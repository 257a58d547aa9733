//! URLs, parsed by the rules of Go's `net/url`, with its error texts.
//!
//! [`parse`] keeps the parts that checks need: scheme, host, user, path, query and fragment. [`base`], [`clean_path`] and
//! [`canonical_query`] give the form in which clients of the API send an address. No address that parses is promised
//! to be reachable.

use crate::problem::quoted;

/// The parts of an address; a part that is not there is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Url<'t> {
    pub scheme: String,
    pub user: Option<&'t str>,
    pub host: &'t str,
    pub path: &'t str,
    pub query: &'t str,
    pub fragment: &'t str,
}

/// Takes an address apart; the error is the whole complaint.
pub fn parse(text: &str) -> Result<Url<'_>, String> {
    let (start, fragment) = text.split_once('#').unwrap_or((text, ""));
    let complain = |formatted: &str, why: String| format!("parse {}: {why}", quoted(formatted));
    let mut url = parts(start).map_err(|why| complain(start, why))?;
    escapes(fragment).map_err(|why| complain(text, why))?;
    url.fragment = fragment;
    Ok(url)
}

fn parts(text: &str) -> Result<Url<'_>, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    let (scheme, rest) = scheme(text)?;
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), ..Url::default() };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query;
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    url.path = rest;
    if let Some(rest) = rest.strip_prefix("//")
        && (!scheme.is_empty() || !rest.starts_with('/'))
    {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (url.user, url.host) = authority_parts(authority)?;
        url.path = path;
    }
    escapes(url.path)?;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".into()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn authority_parts(authority: &str) -> Result<(Option<&str>, &str), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    check_host(host)?;
    if let Some(user) = user {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(fits) {
            return Err("net/url: invalid userinfo".into());
        }
        escapes(user)?;
    }
    Ok((user, host))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = match host.strip_prefix('[') {
        Some(_) => match host.rfind(']') {
            Some(end) => &host[end + 1..],
            None => return Err("missing ']' in host".into()),
        },
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let fits = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if !fits {
        return Err(format!("invalid port {} after host", quoted(port)));
    }
    escapes(host)?;
    let fits = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    match host.chars().find(|c| !fits(*c)) {
        Some(c) => Err(format!("invalid character {} in host name", quoted(c.encode_utf8(&mut [0; 4])))),
        None => Ok(()),
    }
}

/// Every `%` must be followed by two digits.
fn escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for at in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at) {
        let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            let end = (at + 3..).find(|end| text.is_char_boundary((*end).min(text.len())));
            let formatted = &text[at..end.unwrap_or(text.len()).min(text.len())];
            return Err(format!("invalid URL escape {}", quoted(formatted)));
        }
    }
    Ok(())
}

/// An address below which requests are sent: its path is decoded, cleaned and escaped again, and there is no query.
pub fn base(text: &str) -> Result<String, String> {
    let url = parse(text)?;
    let user = url.user.map(|user| format!("{user}@")).unwrap_or_default();
    let path = escape_path(&clean_path(&unescape_path(url.path)));
    Ok(format!("{}://{user}{}{path}", url.scheme, url.host))
}

/// The shortest path that means the same: no empty segments, no `.` and `..`, and no slash at its end. It begins with
/// a slash, which `..` does not go beyond.
pub fn clean_path(path: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(path.len() + 1);
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => clean.truncate(clean.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            _ => {
                clean.push(b'/');
                clean.extend_from_slice(segment);
            }
        }
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    clean
}

/// A path without escapes. A `%` that begins none stays.
pub fn unescape_path(path: &str) -> Vec<u8> {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = (*byte == b'%').then(|| escape_at(bytes, at)).flatten();
        plain.push(escape.unwrap_or(*byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    plain
}

/// A path with escapes for whatever cannot stand in one.
pub fn escape_path(path: &[u8]) -> String {
    escape(path, b"$&+,/:;=@", "%20")
}

/// A query whose pairs are in the order of their keys and escaped in one way. Pairs that cannot be read are left out.
pub fn canonical_query(query: &str) -> String {
    let read = |text: &str| {
        escapes(text).ok()?;
        Some(unescape_path(&text.replace('+', "%20")))
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<_> = pairs.filter_map(|(key, value)| Some((read(key)?, read(value)?))).collect();
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let escape = |text: &[u8]| escape(text, b"", "+");
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
    pairs.join("&")
}

fn escape(text: &[u8], besides: &[u8], space: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte))
            }
            b' ' => out.push_str(space),
            _ if besides.contains(byte) => out.push(char::from(*byte)),
            _ => {
                out.push('%');
                out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                out.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
    out
}

/// The byte that an escape stands for.
fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_have_one_form() {
        for (path, sent) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("//mutate", "/mutate"),
            ("/mutate/", "/mutate"),
            ("/a//b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../a", "/a"),
            ("/a/..", "/"),
            ("/a%2Fb", "/a/b"),
            ("/a%2fb/", "/a/b"),
            ("/a%20b", "/a%20b"),
            ("/a%2E%2E/b", "/a../b"),
            ("/%2e%2e/a", "/a"),
            ("/a%25b", "/a%25b"),
            ("/a%3Fb", "/a%3Fb"),
            ("/ä", "/%C3%A4"),
            ("/a%C3%A4", "/a%C3%A4"),
            ("/a;b:c@d+e~f", "/a;b:c@d+e~f"),
            ("/a!$&'()*,=b", "/a%21$&%27%28%29%2A,=b"),
            ("/a\"<b>[c]|^`{d}\\e", "/a%22%3Cb%3E%5Bc%5D%7C%5E%60%7Bd%7D%5Ce"),
            ("/%41", "/A"),
            ("/a?b=c", "/a"),
            ("/a#b", "/a"),
        ] {
            assert_eq!(base(&format!("https://h:1{path}")), Ok(format!("https://h:1{sent}")), "{path}");
        }
        assert_eq!(base("HTTP://u:p@h").as_deref(), Ok("http://u:p@h/"));
        assert!(base("https://h/%zz").is_err());
    }

    #[test]
    fn queries_have_one_form() {
        for (query, sent) in [
            ("", ""),
            ("b=c", "b=c"),
            ("z=1&a=2&a=1", "a=2&a=1&z=1"),
            ("b", "b="),
            ("x=%41+b%20c", "x=A+b+c"),
            ("x=1;y=2", ""),
            ("x=%zz&y=1", "y=1"),
            ("&&a", "a="),
            ("a=b=c", "a=b%3Dc"),
            ("=x", "=x"),
            ("fieldSelector=a%3Db,c!=d&watch=0", "fieldSelector=a%3Db%2Cc%21%3Dd&watch=0"),
        ] {
            assert_eq!(canonical_query(query), sent, "{query}");
        }
    }

    #[test]
    fn urls_are_parsed() {
        let check =
            |text: &str, scheme: &str, user: Option<&str>, host: &str, query: &str, fragment: &str| {
                let url = parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
                assert_eq!(
                    (&*url.scheme, url.user, url.host, url.query, url.fragment),
                    (scheme, user, host, query, fragment)
                );
            };
        check("https://a:1/b", "https", None, "a:1", "", "");
        check("HTTP://u:p@a/b?x=y#z", "http", Some("u:p"), "a", "x=y", "z");
        check("https:a", "https", None, "", "", "");
        check("https://[::1]:2/x", "https", None, "[::1]:2", "", "");
        check("a/b", "", None, "", "", "");
        check("", "", None, "", "", "");
    }

    #[test]
    fn invalid_urls_have_upstream_errors() {
        for (text, why) in [
            ("://", "missing protocol scheme"),
            ("1https://a", "first path segment in URL cannot contain colon"),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://[::1", "missing ']' in host"),
            ("https://a:port/", "invalid port \":port\" after host"),
            ("https://a/%zz", "invalid URL escape \"%zz\""),
            ("%z", "invalid URL escape \"%z\""),
            ("%é", "invalid URL escape \"%é\""),
        ] {
            assert_eq!(parse(text), Err(format!("parse {}: {why}", quoted(text))), "{text}");
        }
    }
}
