//! Regular expressions of schemas, in the dialect that clients write them in (RE2), found anywhere in a text
//! unless anchored.
//!
//! An expression is read once from left to right, refused with the words that clients know, and written down
//! again for the engine that matches. Always true: matching is linear in the text; what the engine needs to be built
//! is estimated while reading, in about as many bytes, and what is too large or too deep is refused before anything
//! is built.

use crate::cursor::Cursor;
use regex::{Regex, RegexBuilder};
use std::sync::OnceLock;

/// The most that repeats inside of one another may come to.
const MOST_REPEATS: u32 = 1000;
/// The largest estimate that is accepted.
const LARGEST: usize = 8 << 20;
/// No estimate is so far off that an accepted expression would need more.
const BUILT: usize = 64 << 20;
/// The deepest nesting of groups.
const DEEPEST: usize = 100;
/// The estimated size of a character, or of a range of a class.
const PIECE: usize = 80;
/// The estimated size of a named class: most have hundreds of ranges.
const NAMED: usize = 16 << 10;

/// The expression, or its error.
pub fn compile(text: &str) -> Result<Regex, String> {
    let mut reader = Reader::new(text);
    reader.expression().map_err(error_text)?;
    let built = RegexBuilder::new(&reader.out).size_limit(BUILT).nest_limit(8 * DEEPEST as u32).build();
    // the engine rejects only unknown classes
    built.map_err(|_| error_text(format!("invalid character class range: `{text}`")))
}

/// About how many bytes the expression takes once it is [compiled](compile), or its error.
pub fn size(text: &str) -> Result<usize, String> {
    Reader::new(text).expression().map_err(error_text)
}

/// An expression that is compiled when a text is first held against it.
#[derive(Debug)]
pub struct LazyRegex {
    pub text: Box<str>,
    built: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    /// An expression that [size] finds nothing wrong with.
    pub fn new(text: &str) -> Self {
        LazyRegex { text: text.into(), built: OnceLock::new() }
    }

    /// The compiled pattern; `None` if it does not compile.
    pub fn regex(&self) -> Option<&Regex> {
        self.built.get_or_init(|| compile(&self.text).ok()).as_ref()
    }
}

fn error_text(why: String) -> String {
    format!("error parsing regexp: {why}")
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    out: String,
}

/// A repeatable atom: the repetitions inside it, and its size.
#[derive(Clone, Copy, Default)]
struct Atom {
    repeats: u32,
    size: usize,
}

/// The part of a group that is already parsed.
#[derive(Clone, Copy)]
struct Group {
    /// The most repeats in it so far.
    most: u32,
    /// The size of everything before the last atom.
    before: usize,
    atom: Option<Atom>,
}

impl Group {
    const EMPTY: Group = Group { most: 1, before: 0, atom: None };

    fn size(&self) -> usize {
        self.before.saturating_add(self.atom.map_or(0, |it| it.size))
    }

    fn push(&mut self, atom: Option<Atom>) {
        self.before = self.size();
        self.atom = atom;
    }
}

type ParseResult<T> = Result<T, String>;

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Reader { cursor: Cursor::new(text), out: String::with_capacity(text.len() + 8) }
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }

    /// Reads the whole expression and estimates its compiled size.
    fn expression(&mut self) -> ParseResult<usize> {
        let mut open: Vec<Group> = Vec::new();
        let mut group = Group::EMPTY;
        let mut last_repeat: Option<usize> = None;
        while let Some(c) = self.cursor.peek() {
            let start = self.cursor.at;
            if let Some((low, high)) = self.repeat()? {
                let formatted = |from: usize, to: usize| &self.cursor.text[from..to];
                let Some(repeated) = group.atom else {
                    return Err(format!(
                        "missing argument to repetition operator: `{}`",
                        formatted(start, self.cursor.at)
                    ));
                };
                if let Some(from) = last_repeat {
                    let formatted = formatted(from, self.cursor.at);
                    return Err(format!("invalid nested repetition operator: `{formatted}`"));
                }
                let times = high.unwrap_or(0).max(low).max(1);
                let repeats = repeated.repeats.saturating_mul(times);
                if times > 1 && repeats > MOST_REPEATS {
                    return Err(format!("invalid repeat count: `{}`", formatted(start, self.cursor.at)));
                }
                group.most = group.most.max(repeats);
                let size = repeated.size.saturating_add(PIECE).saturating_mul(times as usize);
                group.atom = Some(Atom { repeats, size });
                last_repeat = Some(start);
                self.fits(&open, &group)?;
                continue;
            }
            last_repeat = None;
            let mut size = PIECE;
            match c {
                '(' => {
                    group.push(None);
                    if self.group()? {
                        open.push(std::mem::replace(&mut group, Group::EMPTY));
                        if open.len() > DEEPEST {
                            return Err(format!("expression nests too deeply: `{}`", self.cursor.text));
                        }
                    }
                    continue;
                }
                ')' => {
                    self.cursor.at += 1;
                    let Some(outer) = open.pop() else {
                        return Err(format!("unexpected ): `{}`", self.cursor.text));
                    };
                    self.out.push(')');
                    let closed = std::mem::replace(&mut group, outer);
                    group.push(Some(Atom { repeats: closed.most, size: closed.size() + PIECE }));
                    group.most = group.most.max(closed.most);
                    continue;
                }
                '|' => {
                    self.cursor.at += 1;
                    self.out.push('|');
                    group.push(None);
                    group.before = group.before.saturating_add(PIECE);
                    continue;
                }
                '^' | '$' | '.' => {
                    self.cursor.at += 1;
                    self.out.push(c);
                }
                '[' => size = self.class()?,
                '\\' => size = self.escaped()?,
                _ => {
                    self.cursor.at += c.len_utf8();
                    self.literal(c);
                }
            }
            group.push(Some(Atom { repeats: 1, size }));
            self.fits(&open, &group)?;
        }
        if open.is_empty() {
            Ok(group.size())
        } else {
            Err(format!("missing closing ): `{}`", self.cursor.text))
        }
    }

    /// Whether the part read so far is small enough. A group is at least as large as its content.
    fn fits(&self, open: &[Group], group: &Group) -> ParseResult<()> {
        let around = open.last().map_or(0, Group::size);
        if around.saturating_add(group.size()) > LARGEST {
            return Err(format!("expression too large: `{}`", self.cursor.text));
        }
        Ok(())
    }

    /// A repetition operator: minimum and maximum.
    fn repeat(&mut self) -> ParseResult<Option<(u32, Option<u32>)>> {
        let start = self.cursor.at;
        let times = match self.cursor.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => match self.counts() {
                Some(times) => times,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if self.cursor.at == start {
            self.cursor.at += 1;
        }
        let formatted = &self.cursor.text[start..self.cursor.at];
        if times.0 > MOST_REPEATS || times.1.is_some_and(|most| most > MOST_REPEATS || most < times.0) {
            return Err(format!("invalid repeat count: `{formatted}`"));
        }
        self.out.push_str(formatted);
        if self.cursor.skip("?") {
            self.out.push('?');
        }
        Ok(Some(times))
    }

    /// `{2}`, `{2,}` or `{2,3}`; anything else in braces is text.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let (inside, _) = self.cursor.rest().strip_prefix('{')?.split_once('}')?;
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
            // more digits than that are too many repeats anyway
            plain.then(|| digits.parse().unwrap_or(u32::MAX))
        };
        let times = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        self.cursor.at += inside.len() + 2;
        Some(times)
    }

    /// The beginning of a group; or flags alone, which open none.
    fn group(&mut self) -> ParseResult<bool> {
        let start = self.cursor.at;
        if !self.cursor.rest().starts_with("(?") {
            self.cursor.at += 1;
            self.out.push('(');
            return Ok(true);
        }
        if self.cursor.skip("(?P<") || self.cursor.skip("(?<") {
            let name = self.cursor.rest().split('>').next().unwrap_or_default();
            let whole = name.len() < self.cursor.rest().len();
            let fits = !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
            if !whole || !fits {
                let end = if whole { self.cursor.at + name.len() + 1 } else { self.cursor.text.len() };
                return Err(format!("invalid named capture: `{}`", &self.cursor.text[start..end]));
            }
            self.cursor.at += name.len() + 1;
            self.out.push('(');
            return Ok(true);
        }
        self.cursor.at += 2;
        loop {
            match self.cursor.next() {
                Some('i' | 'm' | 's' | 'U' | '-') => {}
                Some(end @ (':' | ')')) => {
                    self.out.push_str(&self.cursor.text[start..self.cursor.at]);
                    return Ok(end == ':');
                }
                _ => {
                    let formatted = &self.cursor.text[start..self.cursor.at];
                    return Err(format!("invalid or unsupported Perl syntax: `{formatted}`"));
                }
            }
        }
    }

    /// An escape outside of a class, and how large it is.
    fn escaped(&mut self) -> ParseResult<usize> {
        let start = self.cursor.at;
        let rest = self.cursor.rest();
        if let Some(quoted) = rest.strip_prefix("\\Q") {
            let text = quoted.split("\\E").next().unwrap_or_default();
            self.out.push_str(&regex::escape(text));
            self.cursor.at = (start + 2 + text.len() + 2).min(self.cursor.text.len());
            return Ok(text.len().saturating_mul(PIECE));
        }
        for plain in ["\\A", "\\b", "\\B", "\\z"] {
            if self.cursor.skip(plain) {
                self.out.push_str(plain);
                return Ok(PIECE);
            }
        }
        if let Some(size) = self.named_class()? {
            return Ok(size);
        }
        let c = self.character()?;
        self.literal(c);
        Ok(PIECE)
    }

    /// A class with a name of its own, `\d`, `\pL`, `\p{Greek}`, and how large it is.
    fn named_class(&mut self) -> ParseResult<Option<usize>> {
        for (name, class) in [
            ("\\d", "[0-9]"),
            ("\\D", "[^0-9]"),
            ("\\s", "[\\t\\n\\f\\r ]"),
            ("\\S", "[^\\t\\n\\f\\r ]"),
            ("\\w", "[0-9A-Za-z_]"),
            ("\\W", "[^0-9A-Za-z_]"),
        ] {
            if self.cursor.skip(name) {
                self.out.push_str(class);
                return Ok(Some(16 * PIECE));
            }
        }
        let start = self.cursor.at;
        if !self.cursor.skip("\\p") && !self.cursor.skip("\\P") {
            return Ok(None);
        }
        let begun = self.cursor.at;
        if self.cursor.next() == Some('{') {
            while self.cursor.next().is_some_and(|c| c != '}') {}
        }
        let formatted = &self.cursor.text[start..self.cursor.at];
        let name = self.cursor.text[begun..self.cursor.at].trim_start_matches('{').trim_end_matches('}');
        let (other, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
        if CLASSES.binary_search(&name).is_err() {
            return Err(format!("invalid character class range: `{formatted}`"));
        }
        let letter = if formatted.starts_with("\\p") != other { 'p' } else { 'P' };
        self.out.push_str(&format!("\\{letter}{{{name}}}"));
        Ok(Some(NAMED))
    }

    /// One character, escaped where it begins with a backslash.
    fn character(&mut self) -> ParseResult<char> {
        let start = self.cursor.at;
        let first = self.cursor.next();
        if first != Some('\\') {
            return first.ok_or_else(String::new);
        }
        let Some(c) = self.cursor.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let found = match c {
            '0'..='7' => self.octal(c),
            'x' => self.hexadecimal(),
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            c if c.is_ascii_punctuation() || c == ' ' => Some(c),
            _ => None,
        };
        found
            .ok_or_else(|| format!("invalid escape sequence: `{}`", &self.cursor.text[start..self.cursor.at]))
    }

    /// Up to three digits; one alone, unless it is zero, would refer to a group.
    fn octal(&mut self, first: char) -> Option<char> {
        let is_octal = |c: Option<char>| c.is_some_and(|it| ('0'..='7').contains(&it));
        if first != '0' && !is_octal(self.cursor.peek()) {
            return None;
        }
        let mut code = first.to_digit(8)?;
        for _ in 0..2 {
            if is_octal(self.cursor.peek()) {
                code = code * 8 + self.cursor.next()?.to_digit(8)?;
            }
        }
        char::from_u32(code)
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let mut code = 0u32;
        if self.cursor.skip("{") {
            loop {
                match self.cursor.next()? {
                    '}' => return char::from_u32(code),
                    c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
                }
                if code > u32::from(char::MAX) {
                    return None;
                }
            }
        }
        for _ in 0..2 {
            code = code * 16 + self.cursor.next()?.to_digit(16)?;
        }
        char::from_u32(code)
    }

    /// A class in brackets, and how large it is.
    fn class(&mut self) -> ParseResult<usize> {
        let start = self.cursor.at;
        let mut size = PIECE;
        let unclosed = format!("missing closing ]: `{}`", &self.cursor.text[start..]);
        self.cursor.at += 1;
        self.out.push('[');
        if self.cursor.skip("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            match self.cursor.peek() {
                None => return Err(unclosed),
                Some(']') if !first => break,
                _ => first = false,
            }
            if let Some((name, _)) = self.cursor.rest().strip_prefix("[:").and_then(|it| it.split_once(":]"))
            {
                let whole = format!("[:{name}:]");
                if !is_posix(name) {
                    return Err(format!("invalid character class range: `{whole}`"));
                }
                self.cursor.at += whole.len();
                self.out.push_str(&whole);
                size += 4 * PIECE;
                continue;
            }
            if let Some(named) = self.named_class()? {
                size = size.saturating_add(named);
                continue;
            }
            self.range(&unclosed)?;
            size = size.saturating_add(PIECE);
        }
        self.cursor.at += 1;
        self.out.push(']');
        Ok(size)
    }

    fn range(&mut self, unclosed: &str) -> ParseResult<()> {
        let start = self.cursor.at;
        let low = self.character()?;
        let mut high = low;
        if self.cursor.rest().starts_with('-')
            && !self.cursor.rest().starts_with("-]")
            && self.cursor.rest().len() > 1
        {
            self.cursor.at += 1;
            if self.cursor.peek().is_none() {
                return Err(unclosed.to_owned());
            }
            high = self.character()?;
        }
        if high < low {
            return Err(format!(
                "invalid character class range: `{}`",
                &self.cursor.text[start..self.cursor.at]
            ));
        }
        self.out.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high)));
        Ok(())
    }
}

/// Classes of characters by their names, sorted: sorts of characters, and scripts.
#[rustfmt::skip]
const CLASSES: &[&str] = &[
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Any", "Arabic", "Armenian", "Avestan",
    "Balinese", "Bamum", "Bassa_Vah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo",
    "Brahmi", "Braille", "Buginese", "Buhid", "C", "Canadian_Aboriginal", "Carian",
    "Caucasian_Albanian", "Cc", "Cf", "Chakma", "Cham", "Cherokee", "Chorasmian",
    "Co", "Common", "Coptic", "Cuneiform", "Cypriot", "Cyrillic", "Deseret",
    "Devanagari", "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic",
    "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati",
    "Gunjala_Gondi", "Gurmukhi", "Han", "Hangul", "Hanifi_Rohingya", "Hanunoo", "Hatran",
    "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited", "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese",
    "Kaithi", "Kannada", "Katakana", "Kayah_Li", "Kharoshthi", "Khitan_Small_Script", "Khmer",
    "Khojki", "Khudawadi", "L", "Lao", "Latin", "Lepcha", "Limbu",
    "Linear_A", "Linear_B", "Lisu", "Ll", "Lm", "Lo", "Lt",
    "Lu", "Lycian", "Lydian", "M", "Mahajani", "Makasar", "Malayalam",
    "Mandaic", "Manichaean", "Marchen", "Masaram_Gondi", "Mc", "Me", "Medefaidrin",
    "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive", "Meroitic_Hieroglyphs", "Miao", "Mn", "Modi",
    "Mongolian", "Mro", "Multani", "Myanmar", "N", "Nabataean", "Nandinagari",
    "Nd", "New_Tai_Lue", "Newa", "Nko", "Nl", "No", "Nushu",
    "Nyiakeng_Puachue_Hmong", "Ogham", "Ol_Chiki", "Old_Hungarian", "Old_Italic", "Old_North_Arabian", "Old_Permic",
    "Old_Persian", "Old_Sogdian", "Old_South_Arabian", "Old_Turkic", "Oriya", "Osage", "Osmanya",
    "P", "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Pc", "Pd", "Pe",
    "Pf", "Phags_Pa", "Phoenician", "Pi", "Po", "Ps", "Psalter_Pahlavi",
    "Rejang", "Runic", "S", "Samaritan", "Saurashtra", "Sc", "Sharada",
    "Shavian", "Siddham", "SignWriting", "Sinhala", "Sk", "Sm", "So",
    "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese", "Syloti_Nagri", "Syriac", "Tagalog",
    "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri", "Tamil", "Tangut",
    "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Ugaritic",
    "Vai", "Wancho", "Warang_Citi", "Yezidi", "Yi", "Z", "Zanabazar_Square",
    "Zl", "Zp", "Zs",
];

fn is_posix(name: &str) -> bool {
    let names = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "word", "xdigit",
    ];
    names.contains(&name.strip_prefix('^').unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_match_upstream() {
        for (text, why) in [
            ("[", "missing closing ]: `[`"),
            ("a[b", "missing closing ]: `[b`"),
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("a|*?", "missing argument to repetition operator: `*?`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("\\pX", "invalid character class range: `\\pX`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("\\xz", "invalid escape sequence: `\\xz`"),
            ("\\1", "invalid escape sequence: `\\1`"),
        ] {
            assert_eq!(compile(text).err(), Some(format!("error parsing regexp: {why}")), "{text}");
        }
    }

    #[test]
    fn oversized_patterns_are_rejected_before_compilation() {
        let refused = |text: &str| size(text).unwrap_err();
        assert!(refused(&format!("(a{}){{1000}}", "b".repeat(200))).contains("expression too large"));
        assert!(refused(&"\\pL".repeat(100_000)).contains("expression too large"));
        assert!(refused(&"(".repeat(2000)).contains("expression nests too deeply"));
        assert!(refused("(a{1,1000}){1,1000}").contains("invalid repeat count: `{1,1000}`"));
        // usual patterns are far below
        for text in
            ["^[\\pL]{1,60}$", "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\\.){1,20}[a-z]{2,63}$", "^\\p{L}{1,253}$"]
        {
            assert!(size(text).is_ok_and(|size| size < LARGEST) && compile(text).is_ok(), "{text}");
        }
        // and the largest accepted pattern compiles
        for text in [
            format!("({}){{1000}}", "b".repeat(100)),
            "[\\pL\\pN]{250}".to_owned(),
            "(\\w|.){500}".to_owned(),
        ] {
            assert!(size(&text).is_ok(), "{text}: {:?}", size(&text));
            assert!(compile(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn every_class_can_be_built() {
        assert!(CLASSES.is_sorted());
        for name in CLASSES {
            assert!(compile(&format!("\\p{{{name}}}")).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_dialect_is_kept() {
        for (text, yes, no) in [
            ("^a.*[0-9]{1,3}$", "ab12", "b1"),
            ("a{", "a{", "a"),
            ("^\\d+$", "12", "٣"),
            ("(?i)^AB$", "aB", "b"),
            ("^\\p{Greek}\\P{^L}\\pN$", "αb1", "ab1"),
            ("^\\Qa.b\\E$", "a.b", "axb"),
            ("^[\\d-z]$", "-", "y"),
            ("^[]a&&b]+$", "]&", "c"),
            ("^(?P<x>a|b){2}$", "ab", "a"),
            ("^[[:alpha:]]\\x41\\.$", "bA.", "1A."),
        ] {
            let pattern = compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(pattern.is_match(yes) && !pattern.is_match(no), "{text}");
        }
    }
}
