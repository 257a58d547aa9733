//! JSON laid out for people.

use bytes::Bytes;
use rest::options::Query;

/// Whether the client is a person at a terminal or asked for it.
pub fn wants_pretty(query: &Query, user_agent: &str) -> bool {
    match query.get("pretty") {
        Some(text) => !matches!(text, "false" | "0"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|agent| user_agent.starts_with(agent)),
    }
}

/// Indents JSON by two spaces. Strings are copied as they are; nothing is parsed.
pub fn pretty(json: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut at) = (0usize, 0);
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    while at < json.len() {
        match json[at] {
            b'"' => {
                let end = string_end(json, at);
                out.extend_from_slice(&json[at..end]);
                at = end;
                continue;
            }
            open @ (b'{' | b'[') => {
                out.push(open);
                if matches!(json.get(at + 1), Some(b'}' | b']')) {
                    out.push(json[at + 1]);
                    at += 2;
                    continue;
                }
                depth += 1;
                newline(&mut out, depth);
            }
            close @ (b'}' | b']') => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.push(close);
            }
            b',' => {
                out.push(b',');
                newline(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
        at += 1;
    }
    out.into()
}

fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < json.len() {
        match json[at] {
            b'\\' => at += 1,
            b'"' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let json = br#"{"a":[1,{"b":"x,\"{"}],"c":{},"d":[]}"#;
        let expect = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,\\\"{\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(pretty(json), expect);
    }
}
