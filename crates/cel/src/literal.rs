//! The values of literals.

use crate::expr::Literal;
use crate::lexer::Word;

/// The value of a token, or why it is invalid.
pub(crate) fn read(word: Word, text: &str, negative: bool) -> Result<Literal, String> {
    let signed = |text: &str| if negative { format!("-{text}") } else { text.to_owned() };
    Ok(match word {
        Word::Int => {
            let (digits, radix) = based(text);
            let value = i64::from_str_radix(&signed(digits), radix);
            Literal::Int(value.map_err(|_| "invalid int literal")?)
        }
        Word::Uint => {
            let (digits, radix) = based(&text[..text.len() - 1]);
            Literal::Uint(u64::from_str_radix(digits, radix).map_err(|_| "invalid uint literal")?)
        }
        Word::Float => {
            let value = signed(text).parse::<f64>().ok().filter(|it| it.is_finite());
            Literal::Double(value.ok_or("invalid double literal")?)
        }
        Word::String => {
            let bytes = unquoted(text, false)?;
            Literal::String(String::from_utf8_lossy(&bytes).into_owned())
        }
        Word::Bytes => Literal::Bytes(unquoted(&text[1..], true)?),
        Word::True => Literal::Bool(true),
        Word::False => Literal::Bool(false),
        _ => Literal::Null,
    })
}

fn based(text: &str) -> (&str, u32) {
    text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16))
}

/// The contents of a string literal.
fn unquoted(text: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let raw = text.starts_with(['r', 'R']);
    let quoted = if raw { &text[1..] } else { &text[..] };
    let three = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let mark = if three { 3 } else { 1 };
    let inside = quoted.get(mark..quoted.len() - mark).unwrap_or_default();
    if raw || !inside.contains('\\') {
        return Ok(inside.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        rest = escaped(rest, bytes, &mut out)?;
    }
    Ok(out)
}

/// Appends the character of an escape sequence, and returns the rest.
fn escaped<'t>(rest: &'t str, bytes: bool, out: &mut Vec<u8>) -> Result<&'t str, String> {
    const UNABLE: &str = "unable to unescape string";
    let kind = rest.chars().next().ok_or("unable to unescape string, found '\\' as last character")?;
    let after = &rest[kind.len_utf8()..];
    let plain = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => kind as u8,
        _ => 0,
    };
    if plain != 0 {
        out.push(plain);
        return Ok(after);
    }
    let (digits, radix) = match kind {
        'x' | 'X' => (2, 16),
        'u' if !bytes => (4, 16),
        'U' if !bytes => (8, 16),
        '0'..='3' => (2, 8),
        _ => return Err(UNABLE.to_owned()),
    };
    let number = after.get(..digits).and_then(|it| u32::from_str_radix(it, radix).ok()).ok_or(UNABLE)?;
    let value = if radix == 8 { (kind as u32 - '0' as u32) * 64 + number } else { number };
    if bytes {
        out.push(value as u8);
    } else if value > 0x0010_FFFF {
        return Err(UNABLE.to_owned());
    } else {
        // halves of pairs are no characters
        let c = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend(c.encode_utf8(&mut [0; 4]).bytes());
    }
    Ok(&after[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_ranges() {
        assert_eq!(read(Word::Int, "9223372036854775808", true), Ok(Literal::Int(i64::MIN)));
        assert_eq!(read(Word::Int, "9223372036854775808", false), Err("invalid int literal".to_owned()));
        assert_eq!(read(Word::Int, "0xff", true), Ok(Literal::Int(-255)));
        assert_eq!(read(Word::Uint, "0x10u", false), Ok(Literal::Uint(16)));
        assert_eq!(read(Word::Uint, "18446744073709551616u", false), Err("invalid uint literal".to_owned()));
        assert_eq!(read(Word::Float, "1e400", false), Err("invalid double literal".to_owned()));
        assert_eq!(read(Word::Float, ".5", true), Ok(Literal::Double(-0.5)));
    }

    #[test]
    fn escapes_stand_for_characters_or_bytes() {
        let text = |it| read(Word::String, it, false);
        assert_eq!(text(r"'\x41\u00e9\U0001F600\101\n\?'"), Ok(Literal::String("Aé😀A\n?".to_owned())));
        assert_eq!(text(r"r'\x41'"), Ok(Literal::String(r"\x41".to_owned())));
        assert_eq!(text("'''a'b\r\nc'''"), Ok(Literal::String("a'b\nc".to_owned())));
        assert_eq!(text(r"'\U0011FFFF'"), Err("unable to unescape string".to_owned()));
        assert_eq!(read(Word::Bytes, r"b'\xff\377é'", false), Ok(Literal::Bytes(vec![255, 255, 0xc3, 0xa9])));
        assert!(read(Word::Bytes, r"b'\u00e9'", false).is_err());
    }
}
