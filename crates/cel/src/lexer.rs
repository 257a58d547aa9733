//! The lexer: splits an expression into tokens.
//!
//! The longest match wins. Where no token matches, everything up to the offending character is one issue, and
//! lexing continues behind it.

use crate::source::Source;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    End,
}

impl Word {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Word::Equals => "'=='",
            Word::NotEquals => "'!='",
            Word::In => "'in'",
            Word::Less => "'<'",
            Word::LessEquals => "'<='",
            Word::GreaterEquals => "'>='",
            Word::Greater => "'>'",
            Word::And => "'&&'",
            Word::Or => "'||'",
            Word::LeftBracket => "'['",
            Word::RightBracket => "']'",
            Word::LeftBrace => "'{'",
            Word::RightBrace => "'}'",
            Word::LeftParen => "'('",
            Word::RightParen => "')'",
            Word::Dot => "'.'",
            Word::Comma => "','",
            Word::Minus => "'-'",
            Word::Not => "'!'",
            Word::Question => "'?'",
            Word::Colon => "':'",
            Word::Plus => "'+'",
            Word::Star => "'*'",
            Word::Slash => "'/'",
            Word::Percent => "'%'",
            Word::True => "'true'",
            Word::False => "'false'",
            Word::Null => "'null'",
            Word::Float => "NUM_FLOAT",
            Word::Int => "NUM_INT",
            Word::Uint => "NUM_UINT",
            Word::String => "STRING",
            Word::Bytes => "BYTES",
            Word::Ident => "IDENTIFIER",
            Word::End => "<EOF>",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'t> {
    pub word: Word,
    pub text: &'t str,
    /// The start, in characters.
    pub at: usize,
    /// The end, in bytes.
    pub end: usize,
}

impl Token<'_> {
    /// The token as messages show it.
    pub fn quoted(&self) -> String {
        format!("'{}'", visible(self.text))
    }
}

pub(crate) fn visible(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// All words, and the end.
pub(crate) fn words<'t>(source: &mut Source<'t>) -> Vec<Token<'t>> {
    let text = source.text();
    let mut rest = text;
    let mut at = 0;
    let mut out = Vec::new();
    while let Some(first) = rest.chars().next() {
        let step = match first {
            '\t' | ' ' | '\r' | '\n' | '\u{c}' => first.len_utf8(),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ => match word(rest, first) {
                Ok((word, length)) => {
                    let end = text.len() - rest.len() + length;
                    out.push(Token { word, text: &rest[..length], at, end });
                    length
                }
                Err(length) => {
                    let formatted = &rest[..length];
                    let location = source.location(at);
                    source
                        .report(location, format!("Syntax error: token recognition error at: '{formatted}'"));
                    length
                }
            },
        };
        at += rest[..step].chars().count();
        rest = &rest[step..];
    }
    out.push(Token { word: Word::End, text: "<EOF>", at, end: text.len() });
    out
}

/// The first token and its length, or the length of an invalid piece.
fn word(rest: &str, first: char) -> Result<(Word, usize), usize> {
    let two = |second: char, both: Word, one: Option<Word>| {
        let next = rest[1..].chars().next();
        match (next, one) {
            (Some(c), _) if c == second => Ok((both, 2)),
            (_, Some(one)) => Ok((one, 1)),
            (next, None) => Err(1 + next.map_or(0, char::len_utf8)),
        }
    };
    let single = |word| Ok((word, 1));
    match first {
        '=' => two('=', Word::Equals, None),
        '!' => two('=', Word::NotEquals, Some(Word::Not)),
        '<' => two('=', Word::LessEquals, Some(Word::Less)),
        '>' => two('=', Word::GreaterEquals, Some(Word::Greater)),
        '&' => two('&', Word::And, None),
        '|' => two('|', Word::Or, None),
        '[' => single(Word::LeftBracket),
        ']' => single(Word::RightBracket),
        '{' => single(Word::LeftBrace),
        '}' => single(Word::RightBrace),
        '(' => single(Word::LeftParen),
        ')' => single(Word::RightParen),
        ',' => single(Word::Comma),
        '-' => single(Word::Minus),
        '?' => single(Word::Question),
        ':' => single(Word::Colon),
        '+' => single(Word::Plus),
        '*' => single(Word::Star),
        '/' => single(Word::Slash),
        '%' => single(Word::Percent),
        '.' if !rest[1..].starts_with(|c: char| c.is_ascii_digit()) => single(Word::Dot),
        '.' | '0'..='9' => Ok(number(rest.as_bytes())),
        '"' | '\'' => string(rest).map(|length| (Word::String, length)),
        'a'..='z' | 'A'..='Z' | '_' => Ok(quoted_with_prefix(rest).unwrap_or_else(|| name(rest))),
        other => Err(other.len_utf8()),
    }
}

fn digits(bytes: &[u8], from: usize, hex: bool) -> usize {
    let fits = |b: &&u8| if hex { b.is_ascii_hexdigit() } else { b.is_ascii_digit() };
    bytes[from..].iter().take_while(fits).count()
}

fn number(bytes: &[u8]) -> (Word, usize) {
    let unsigned = |length: usize| match bytes.get(length) {
        Some(b'u' | b'U') => (Word::Uint, length + 1),
        _ => (Word::Int, length),
    };
    if bytes.starts_with(b"0x") && digits(bytes, 2, true) > 0 {
        return unsigned(2 + digits(bytes, 2, true));
    }
    let whole = digits(bytes, 0, false);
    let mut length = whole;
    let mut float = false;
    if bytes.get(length) == Some(&b'.') && digits(bytes, length + 1, false) > 0 {
        float = true;
        length += 1 + digits(bytes, length + 1, false);
    }
    if let Some(b'e' | b'E') = bytes.get(length) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let from = length + 1 + sign;
        if from <= bytes.len() && digits(bytes, from, false) > 0 {
            float = true;
            length = from + digits(bytes, from, false);
        }
    }
    if float { (Word::Float, length) } else { unsigned(length) }
}

fn name(rest: &str) -> (Word, usize) {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let word = match &rest[..end] {
        "in" => Word::In,
        "true" => Word::True,
        "false" => Word::False,
        "null" => Word::Null,
        _ => Word::Ident,
    };
    (word, end)
}

/// `r'...'`, `b'...'`, `br'...'`; where the quotes do not fit, the letters are a name.
fn quoted_with_prefix(rest: &str) -> Option<(Word, usize)> {
    let bytes = rest.as_bytes();
    let is_bytes = matches!(bytes[0], b'b' | b'B');
    let raw = matches!(bytes.get(usize::from(is_bytes)), Some(b'r' | b'R'));
    let prefix = usize::from(is_bytes) + usize::from(raw);
    let quoted = rest.get(prefix..).filter(|it| prefix > 0 && it.starts_with(['"', '\'']))?;
    let length = if raw { raw_string(quoted)? } else { string(quoted).ok()? };
    Some((if is_bytes { Word::Bytes } else { Word::String }, prefix + length))
}

fn raw_string(quoted: &str) -> Option<usize> {
    let quote = &quoted[..1];
    let three = quote.repeat(3);
    if let Some(inside) = quoted.strip_prefix(&three)
        && let Some(end) = inside.find(&three)
    {
        return Some(end + 6);
    }
    let end = quoted[1..].find(|c: char| quote.starts_with(c) || c == '\n' || c == '\r')?;
    quoted[1 + end..].starts_with(quote).then_some(end + 2)
}

/// The length of a string literal, or of an invalid one.
fn string(quoted: &str) -> Result<usize, usize> {
    let quote = &quoted[..1];
    let three = quote.repeat(3);
    if quoted.starts_with(&three)
        && let Ok(length) = closed(quoted, &three)
    {
        return Ok(length);
    }
    closed(quoted, quote)
}

fn closed(quoted: &str, mark: &str) -> Result<usize, usize> {
    let mut at = mark.len();
    loop {
        let rest = &quoted[at..];
        if rest.starts_with(mark) {
            return Ok(at + mark.len());
        }
        match rest.chars().next() {
            None => return Err(at),
            Some('\\') => at += escape(rest).map_err(|length| at + length)?,
            Some(c @ ('\n' | '\r')) if mark.len() == 1 => return Err(at + c.len_utf8()),
            Some(c) => at += c.len_utf8(),
        }
    }
}

/// The length of an escape sequence, or of an invalid one.
fn escape(rest: &str) -> Result<usize, usize> {
    let mut chars = rest.chars().skip(1);
    let mut length = 1;
    let Some(first) = chars.next() else { return Err(length) };
    length += first.len_utf8();
    let (count, fits): (usize, fn(&char) -> bool) = match first {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => return Ok(length),
        '0'..='3' => (2, |c| ('0'..='7').contains(c)),
        'x' | 'X' => (2, char::is_ascii_hexdigit),
        'u' => (4, char::is_ascii_hexdigit),
        'U' => (8, char::is_ascii_hexdigit),
        _ => return Err(length),
    };
    for _ in 0..count {
        let Some(c) = chars.next() else { return Err(length) };
        length += c.len_utf8();
        if !fits(&c) {
            return Err(length);
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Word, &str)]) {
        let mut source = Source::new(text);
        let found: Vec<_> = words(&mut source).iter().map(|it| (it.word, it.text)).collect();
        assert_eq!(found[..found.len() - 1], *expected, "{text}");
    }

    #[test]
    fn the_longest_word_is_taken() {
        check("1.5e3 .5 1e2", &[(Word::Float, "1.5e3"), (Word::Float, ".5"), (Word::Float, "1e2")]);
        check("1.a", &[(Word::Int, "1"), (Word::Dot, "."), (Word::Ident, "a")]);
        check(
            "0xFFu 12U 0x",
            &[(Word::Uint, "0xFFu"), (Word::Uint, "12U"), (Word::Int, "0"), (Word::Ident, "x")],
        );
        check("1e", &[(Word::Int, "1"), (Word::Ident, "e")]);
        check("'''a'b''' \"\"", &[(Word::String, "'''a'b'''"), (Word::String, "\"\"")]);
        check(
            "r'\\' b'a' bR\"\"\"x\"\"\"",
            &[(Word::String, "r'\\'"), (Word::Bytes, "b'a'"), (Word::Bytes, "bR\"\"\"x\"\"\"")],
        );
        check("in inner true", &[(Word::In, "in"), (Word::Ident, "inner"), (Word::True, "true")]);
        check("a // b\n/ c", &[(Word::Ident, "a"), (Word::Slash, "/"), (Word::Ident, "c")]);
        check(
            "!=!<=<",
            &[(Word::NotEquals, "!="), (Word::Not, "!"), (Word::LessEquals, "<="), (Word::Less, "<")],
        );
    }

    #[test]
    fn invalid_tokens_are_reported() {
        for (text, expected) in [
            ("'abc", "1:1: Syntax error: token recognition error at: ''abc'"),
            ("a & b", "1:3: Syntax error: token recognition error at: '& '"),
            ("#", "1:1: Syntax error: token recognition error at: '#'"),
            ("'a\\q'", "1:1: Syntax error: token recognition error at: ''a\\q'"),
            ("'a\nb", "1:1: Syntax error: token recognition error at: ''a\n'"),
        ] {
            let mut source = Source::new(text);
            words(&mut source);
            let issues = source.into_issues().to_string();
            assert!(issues.starts_with(&format!("ERROR: <input>:{expected}")), "{text}: {issues}");
        }
    }
}
