//! A minimal lexer for Rust: splits a source into code, string literals and comments.
//!
//! The three views have the same length and the same lines as the source; the rest of a view is blank. So a
//! position in a view is a position in the file.

/// A source text in its three views.
pub struct Views {
    /// Code, without the insides of literals and without comments.
    pub code: String,
    /// Only the insides of string literals, quotes included.
    pub strings: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Code,
    Text,
    Comment,
}

/// Splits a source text.
pub fn split(source: &str) -> Views {
    let bytes = source.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (end, class) = piece(bytes, at);
        classes[at..end].fill(class);
        at = end;
    }
    let view = |wanted: Class| {
        let kept = bytes.iter().zip(&classes).map(|(byte, class)| match *byte {
            b'\n' => '\n',
            byte if *class == wanted && byte.is_ascii() => byte as char,
            _ => ' ',
        });
        kept.collect()
    };
    Views { code: view(Class::Code), strings: view(Class::Text) }
}

/// The end and class of the piece that begins at `at`.
fn piece(bytes: &[u8], at: usize) -> (usize, Class) {
    let rest = &bytes[at..];
    let after_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return (at + end, Class::Comment);
    }
    if rest.starts_with(b"/*") {
        return (at + block_comment(rest), Class::Comment);
    }
    if rest[0] == b'"' {
        return (at + quoted(rest, b'"'), Class::Text);
    }
    if rest[0] == b'r' && (!after_name || bytes[at - 1] == b'b') {
        let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            return (at + raw(rest, hashes), Class::Text);
        }
    }
    if rest[0] == b'\'' {
        // 'a' and '\n' are characters, 'a alone is a lifetime; either way no quote in it may open a string
        let character = rest.get(1) == Some(&b'\\') || char_length(rest).is_some();
        return if character { (at + quoted(rest, b'\''), Class::Text) } else { (at + 1, Class::Code) };
    }
    (at + 1, Class::Code)
}

fn char_length(rest: &[u8]) -> Option<usize> {
    let width = match rest.get(1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw(rest: &[u8], hashes: usize) -> usize {
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let open = 2 + hashes;
    let inside = &rest[open..];
    inside.windows(close.len()).position(|it| it == close).map_or(rest.len(), |it| open + it + close.len())
}

/// The byte ranges of test-only items in a code view.
pub fn test_ranges(code: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = code[from..].find("#[cfg(test)]").map(|it| it + from) {
        let end = item_end(code, start + "#[cfg(test)]".len());
        found.push(start..end);
        from = end;
    }
    found
}

/// The end of the item that follows an attribute: its semicolon or closing brace.
fn item_end(code: &str, from: usize) -> usize {
    let (mut brackets, mut braces) = (0i32, 0i32);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return at + 1;
                }
            }
            b';' if braces == 0 && brackets == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// `text` with the given ranges blank; line breaks stay.
pub fn blanked(text: &str, ranges: &[std::ops::Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        bytes[range.clone()].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(bytes).unwrap()
}

/// Identifiers in a text, with their positions.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(inside)?;
        let end = text[start..].find(|c| !inside(c)).map_or(text.len(), |it| it + start);
        at = end;
        Some((start, &text[start..end]))
    })
}

/// The line, from 1, of a position.
pub fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_distinguished() {
        let source = "let a = \"x // no\"; // \"yes\"\nlet b = r#\"q\"r\"#; /* /* */ \"c\" */ f('\"', '\\'', 'a', &'a d)";
        let views = split(source);
        assert_eq!(views.code.len(), source.len());
        assert_eq!(
            words(&views.code).map(|(_, word)| word).collect::<Vec<_>>(),
            ["let", "a", "let", "b", "f", "a", "d"]
        );
        assert!(views.strings.contains("\"x // no\"") && views.strings.contains("r#\"q\"r\"#"));
        assert!(!views.strings.contains("yes") && !views.strings.contains("\"c\""));
    }

    #[test]
    fn test_items_end_at_their_brace() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { {} } }\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}";
        let left = blanked(code, &test_ranges(code));
        assert_eq!(words(&left).map(|(_, word)| word).collect::<Vec<_>>(), ["fn", "a", "fn", "c", "fn", "e"]);
        assert_eq!(line(&left, left.find("fn e").unwrap()), 7);
    }
}
