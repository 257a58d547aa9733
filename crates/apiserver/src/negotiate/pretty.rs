//! Indented JSON.

use bytes::Bytes;
use rest::options::Query;

/// Whether to indent: the client requests it, or is a command-line tool or browser.
pub fn is_pretty_requested(query: &Query, user_agent: &str) -> bool {
    match query.get("pretty") {
        Some(text) => !matches!(text, "false" | "0"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|agent| user_agent.starts_with(agent)),
    }
}

/// Indents JSON by two spaces.
pub fn pretty(json: &[u8]) -> Bytes {
    Indenter::default().indent(json)
}

/// Indents JSON in pieces, cut anywhere. Strings are copied; nothing is parsed.
#[derive(Default)]
pub struct Indenter {
    depth: usize,
    state: State,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Between,
    /// After an opening bracket that may close at once.
    Opened,
    InString,
    /// In a string, after a backslash.
    Escaped,
}

impl Indenter {
    pub fn indent(&mut self, json: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(json.len() * 2);
        let mut rest = json;
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                State::InString => {
                    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                    let Some(end) = end else {
                        out.extend_from_slice(rest);
                        break;
                    };
                    out.extend_from_slice(&rest[..=end]);
                    self.state = if rest[end] == b'"' { State::Between } else { State::Escaped };
                    rest = &rest[end + 1..];
                    continue;
                }
                State::Escaped => {
                    out.push(byte);
                    self.state = State::InString;
                }
                State::Between | State::Opened => self.token(byte, &mut out),
            }
            rest = after;
        }
        out.into()
    }

    fn token(&mut self, byte: u8, out: &mut Vec<u8>) {
        let opened = std::mem::take(&mut self.state) == State::Opened;
        if matches!(byte, b'}' | b']') {
            self.depth = self.depth.saturating_sub(1);
            if !opened {
                self.new_line(out);
            }
            out.push(byte);
            return;
        }
        if opened {
            self.new_line(out);
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.state = State::Opened;
            }
            b'"' => self.state = State::InString,
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            _ => {}
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', self.depth * 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let json = br#"{"a":[1,{"b":"x,\"{"}],"c":{},"d":[]}"#;
        let expect = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,\\\"{\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(pretty(json), expect);
        for cut in 0..=json.len() {
            let mut indenter = Indenter::default();
            let pieces = [indenter.indent(&json[..cut]), indenter.indent(&json[cut..])];
            assert_eq!(pieces.concat(), expect.as_bytes(), "cut at {cut}");
        }
    }
}
