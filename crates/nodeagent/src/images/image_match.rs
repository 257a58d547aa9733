//! Whether the key of credentials covers an image: `*.registry.test:5000/team`.
//!
//! Both are URLs without a scheme. Ports are the same, the host has the same number of parts, each of which the key's
//! part matches as a shell pattern, and the path of the key is a prefix. Errors have the words of Go's URL parser.

/// Host, port and path of an image or a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUrl {
    host: String,
    port: String,
    path: String,
}

/// Whether `pattern` covers `image`.
pub fn is_match(pattern: &str, image: &str) -> Result<bool, String> {
    let (pattern, image) = (parse(pattern)?, parse(image)?);
    let parts = |url: &ImageUrl| url.host.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (globs, texts) = (parts(&pattern), parts(&image));
    if pattern.port != image.port || globs.len() != texts.len() || !image.path.starts_with(&pattern.path) {
        return Ok(false);
    }
    for (glob, text) in globs.iter().zip(&texts) {
        if !is_glob_match(&compile(glob)?, text) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Parses a URL without a scheme.
pub fn parse(text: &str) -> Result<ImageUrl, String> {
    let text = text.split('#').next().unwrap_or_default();
    let fail = |why: String| format!("parse {:?}: {why}", format!("https://{text}"));
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(fail("net/url: invalid control character in URL".to_owned()));
    }
    let rest = text.split('?').next().unwrap_or_default();
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    check_host(host).map_err(fail)?;
    let (host, port) = split_port(host);
    Ok(ImageUrl { host: host.to_owned(), port: port.to_owned(), path: unescape(path).map_err(fail)? })
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let (_, after) = host.rsplit_once(']').ok_or("missing ']' in host")?;
        after
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let is_port =
        port.strip_prefix(':').map_or(port.is_empty(), |it| it.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some(at) = host.find('%') {
        let end = host.len().min(at + 3);
        return Err(format!("invalid URL escape {:?}", host.get(at..end).unwrap_or("%")));
    }
    let is_allowed =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~".contains(c);
    match host.chars().find(|&c| !is_allowed(c)) {
        Some(bad) => Err(format!("invalid character {:?} in host name", bad.to_string())),
        None => Ok(()),
    }
}

/// Host and port; a host that cannot be split is whole.
fn split_port(host: &str) -> (&str, &str) {
    if let Some(rest) = host.strip_prefix('[') {
        return match rest.split_once("]:") {
            Some((name, port)) if !port.contains(':') => (name, port),
            _ => (host, ""),
        };
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, port),
        _ => (host, ""),
    }
}

/// Decodes the escapes of a path.
fn unescape(path: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let is_hex = |it: &&str| it.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = digits.filter(is_hex).and_then(|it| u8::from_str_radix(it, 16).ok());
        let Some(code) = code else {
            let shown = String::from_utf8_lossy(&after[..after.len().min(2)]).into_owned();
            return Err(format!("invalid URL escape {:?}", format!("%{shown}")));
        };
        bytes.push(code);
        rest = &after[2..];
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A part of a shell pattern.
#[derive(Debug, PartialEq)]
enum Token {
    Star,
    Any,
    Literal(char),
    Class { is_negated: bool, ranges: Vec<(char, char)> },
}

fn compile(glob: &str) -> Result<Vec<Token>, String> {
    let bad = || "syntax error in pattern".to_owned();
    let mut chars = glob.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Star,
            '?' => Token::Any,
            '\\' => Token::Literal(chars.next().ok_or_else(bad)?),
            '[' => {
                let is_negated = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                loop {
                    if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
                        break;
                    }
                    let mut escaped = || match chars.next().ok_or_else(bad)? {
                        '-' | ']' => Err(bad()),
                        '\\' => chars.next().ok_or_else(bad),
                        c => Ok(c),
                    };
                    let low = escaped()?;
                    let high = match chars.next_if_eq(&'-') {
                        Some(_) => match chars.next().ok_or_else(bad)? {
                            '-' | ']' => return Err(bad()),
                            '\\' => chars.next().ok_or_else(bad)?,
                            c => c,
                        },
                        None => low,
                    };
                    ranges.push((low, high));
                }
                Token::Class { is_negated, ranges }
            }
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

/// Works in time of pattern times text: after a mismatch only the last star takes one character more.
fn is_glob_match(tokens: &[Token], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut position, mut star) = (0, 0, None);
    while position < text.len() {
        let is_matched = match tokens.get(at) {
            Some(Token::Star) => {
                star = Some((at, position));
                at += 1;
                continue;
            }
            Some(Token::Any) => true,
            Some(Token::Literal(c)) => *c == text[position],
            Some(Token::Class { is_negated, ranges }) => {
                let c = text[position];
                ranges.iter().any(|&(low, high)| low <= c && c <= high) != *is_negated
            }
            None => false,
        };
        match (&mut star, is_matched) {
            (_, true) => (at, position) = (at + 1, position + 1),
            (Some((after, from)), false) => {
                *from += 1;
                (at, position) = (*after + 1, *from);
            }
            (None, false) => return false,
        }
    }
    tokens[at..].iter().all(|token| *token == Token::Star)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_matches_are_ours() {
        let Some(path) = testdata::find("recorded-node/config/match-images.table") else { return };
        let text = std::fs::read_to_string(path).unwrap();
        let table: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = table["rows"].as_array().unwrap();
        assert!(rows.len() > 500);
        for row in rows {
            let column = |index: usize| row[index].as_str().unwrap_or_default();
            let (is_matched, error) = match is_match(column(0), column(1)) {
                Ok(is_matched) => (is_matched, String::new()),
                Err(error) => (false, error),
            };
            assert_eq!((is_matched, &*error), (row[2].as_bool().unwrap(), column(3)), "{row}");
        }
    }

    #[test]
    fn patterns_have_classes() {
        let check = |glob: &str, text: &str, expected: bool| {
            assert_eq!(is_glob_match(&compile(glob).unwrap(), text), expected, "{glob} {text}");
        };
        check("a*c*e", "abcde", true);
        check("a*c*f", "abcde", false);
        check("[a-c]?", "bz", true);
        check("[^a-c]", "b", false);
        check("\\*", "*", true);
        check("", "", true);
        assert!(compile("[").is_err() && compile("[]").is_err() && compile("a\\").is_err());
    }
}
