//! Challenges of a registry: the header `WWW-Authenticate`.

use std::collections::BTreeMap;

/// How a registry wants to know its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The challenges of one header value; unknown schemes are left out.
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for part in split_outside_quotes(header) {
        let part = part.trim();
        // a scheme comes before the first of its parameters
        let (scheme, parameter) = match part.split_once(' ') {
            Some((scheme, rest)) if !scheme.contains('=') => (Some(scheme), rest.trim()),
            None if !part.contains('=') => (Some(part), ""),
            _ => (None, part),
        };
        if let Some(scheme) = scheme {
            found.push((scheme.to_ascii_lowercase(), BTreeMap::new()));
        }
        if let (Some((_, parameters)), Some((key, value))) = (found.last_mut(), parameter.split_once('=')) {
            parameters.insert(key.trim().to_ascii_lowercase(), unquote(value.trim()));
        }
    }
    let challenge = |(scheme, mut parameters): (String, BTreeMap<String, String>)| match &*scheme {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        }),
        _ => None,
    };
    found.into_iter().filter_map(challenge).collect()
}

fn split_outside_quotes(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut plain = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        let text = r#"Bearer realm="https://a.test/token",service="r.test",scope="repository:a/b:pull,push""#;
        let expected = bearer("https://a.test/token", Some("r.test"), Some("repository:a/b:pull,push"));
        assert_eq!(parse(text), [expected]);
        let both = r#"Negotiate, Basic realm="x, \"y\"", bearer realm=https://t"#;
        assert_eq!(parse(both), [Challenge::Basic, bearer("https://t", None, None)]);
        assert_eq!(parse("Bearer service=\"x\""), []);
        assert_eq!(parse(""), []);
    }
}
