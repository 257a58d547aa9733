//! Regular expressions of schemas, in the dialect that clients write them in (RE2), found anywhere in a text
//! unless anchored.
//!
//! An expression is read once from left to right, refused with the words that clients know, and written down
//! again for the engine that matches. Always true: matching is linear in the text, and repeats multiply to at
//! most a thousand, which bounds the engine's work.

use crate::cursor::Cursor;
use regex::Regex;

/// The most that repeats inside of one another may come to.
const MOST_REPEATS: u32 = 1000;

/// The expression, or what is wrong with it.
pub fn compile(text: &str) -> Result<Regex, String> {
    let told = |why: String| format!("error parsing regexp: {why}");
    let mut reader = Reader { cursor: Cursor::new(text), out: String::with_capacity(text.len() + 8) };
    reader.expression().map_err(told)?;
    // what can be read and is still refused names a class that there is not
    Regex::new(&reader.out).map_err(|_| told(format!("invalid character class range: `{text}`")))
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    out: String,
}

/// Something that can be repeated, and how often what is inside it is repeated already.
#[derive(Clone, Copy)]
struct Atom {
    repeats: u32,
}

type Told<T> = Result<T, String>;

impl<'t> Reader<'t> {
    fn literal(&mut self, c: char) {
        self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }

    fn expression(&mut self) -> Told<()> {
        // of each open group: the most repeats in it so far
        let mut open: Vec<u32> = Vec::new();
        let mut most = 1;
        let mut atom: Option<Atom> = None;
        let mut last_repeat: Option<usize> = None;
        while let Some(c) = self.cursor.peek() {
            let start = self.cursor.at;
            if let Some((low, high)) = self.repeat()? {
                let shown = |from: usize, to: usize| &self.cursor.text[from..to];
                let Some(repeated) = atom else {
                    return Err(format!(
                        "missing argument to repetition operator: `{}`",
                        shown(start, self.cursor.at)
                    ));
                };
                if let Some(from) = last_repeat {
                    let shown = shown(from, self.cursor.at);
                    return Err(format!("invalid nested repetition operator: `{shown}`"));
                }
                let times = high.unwrap_or(0).max(low).max(1);
                let repeats = repeated.repeats.saturating_mul(times);
                if times > 1 && repeats > MOST_REPEATS {
                    return Err(format!("invalid repeat count: `{}`", shown(start, self.cursor.at)));
                }
                most = most.max(repeats);
                atom = Some(Atom { repeats });
                last_repeat = Some(start);
                continue;
            }
            last_repeat = None;
            atom = Some(Atom { repeats: 1 });
            match c {
                '(' => {
                    if self.group()? {
                        open.push(most);
                        most = 1;
                    }
                    atom = None;
                }
                ')' => {
                    self.cursor.at += 1;
                    let Some(outer) = open.pop() else {
                        return Err(format!("unexpected ): `{}`", self.cursor.text));
                    };
                    self.out.push(')');
                    atom = Some(Atom { repeats: most });
                    most = most.max(outer);
                }
                '|' => {
                    self.cursor.at += 1;
                    self.out.push('|');
                    atom = None;
                }
                '^' | '$' | '.' => {
                    self.cursor.at += 1;
                    self.out.push(c);
                }
                '[' => self.class()?,
                '\\' => self.escaped()?,
                _ => {
                    self.cursor.at += c.len_utf8();
                    self.literal(c);
                }
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("missing closing ): `{}`", self.cursor.text)) }
    }

    /// An operator that repeats what stands before it: how often at least, and at most.
    fn repeat(&mut self) -> Told<Option<(u32, Option<u32>)>> {
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
        let shown = &self.cursor.text[start..self.cursor.at];
        if times.0 > MOST_REPEATS || times.1.is_some_and(|most| most > MOST_REPEATS || most < times.0) {
            return Err(format!("invalid repeat count: `{shown}`"));
        }
        self.out.push_str(shown);
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
    fn group(&mut self) -> Told<bool> {
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
                    let shown = &self.cursor.text[start..self.cursor.at];
                    return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
                }
            }
        }
    }

    /// An escape outside of a class.
    fn escaped(&mut self) -> Told<()> {
        let start = self.cursor.at;
        let rest = self.cursor.rest();
        if let Some(quoted) = rest.strip_prefix("\\Q") {
            let text = quoted.split("\\E").next().unwrap_or_default();
            self.out.push_str(&regex::escape(text));
            self.cursor.at = (start + 2 + text.len() + 2).min(self.cursor.text.len());
            return Ok(());
        }
        for plain in ["\\A", "\\b", "\\B", "\\z"] {
            if self.cursor.skip(plain) {
                self.out.push_str(plain);
                return Ok(());
            }
        }
        if !self.named_class()? {
            let c = self.character()?;
            self.literal(c);
        }
        Ok(())
    }

    /// A class with a name of its own: `\d`, `\pL`, `\p{Greek}`.
    fn named_class(&mut self) -> Told<bool> {
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
                return Ok(true);
            }
        }
        let start = self.cursor.at;
        if !self.cursor.skip("\\p") && !self.cursor.skip("\\P") {
            return Ok(false);
        }
        if self.cursor.next() == Some('{') {
            while self.cursor.next().is_some_and(|c| c != '}') {}
        }
        let shown = &self.cursor.text[start..self.cursor.at];
        if Regex::new(shown).is_err() {
            return Err(format!("invalid character class range: `{shown}`"));
        }
        self.out.push_str(shown);
        Ok(true)
    }

    /// One character, escaped where it begins with a backslash.
    fn character(&mut self) -> Told<char> {
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

    fn class(&mut self) -> Told<()> {
        let start = self.cursor.at;
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
                if Regex::new(&format!("[{whole}]")).is_err() || !is_posix(name) {
                    return Err(format!("invalid character class range: `{whole}`"));
                }
                self.cursor.at += whole.len();
                self.out.push_str(&whole);
                continue;
            }
            if self.named_class()? {
                continue;
            }
            self.range(&unclosed)?;
        }
        self.cursor.at += 1;
        self.out.push(']');
        Ok(())
    }

    fn range(&mut self, unclosed: &str) -> Told<()> {
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
    fn complaints_are_those_that_clients_know() {
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
    fn the_dialect_is_kept() {
        for (text, yes, no) in [
            ("^a.*[0-9]{1,3}$", "ab12", "b1"),
            ("a{", "a{", "a"),
            ("^\\d+$", "12", "٣"),
            ("(?i)^AB$", "aB", "b"),
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
