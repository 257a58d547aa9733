//! Addresses, taken apart the way clients of the API are used to, with the same complaints.
//!
//! Only what checks look at is kept: scheme, host, user, query and fragment. Nothing is resolved or normalized
//! beyond that, and no address that parses is promised to be reachable.

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
    let complain = |shown: &str, why: String| format!("parse {}: {why}", quoted(shown));
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
            let shown = &text[at..end.unwrap_or(text.len()).min(text.len())];
            return Err(format!("invalid URL escape {}", quoted(shown)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_apart() {
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
    fn refused_with_the_known_complaints() {
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
