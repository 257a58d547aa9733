//! Regular expressions of schemas: found anywhere in a text unless anchored.
//!
//! Always true: matching is linear in the text, and compiling is bounded. What is wrong with an expression is
//! told in the words that clients know.

use regex::Regex;
use regex_syntax::ast::{self, ErrorKind};

/// The expression, or what is wrong with it.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|_| format!("error parsing regexp: {}", complaint(text)))
}

fn complaint(text: &str) -> String {
    let Err(error) = ast::parse::Parser::new().parse(text) else {
        // it can be read, but stands for something that there is not
        return format!("invalid character class range: `{text}`");
    };
    let span = error.span();
    let there = &text[span.start.offset..span.end.offset];
    let (from, rest) = (&text[..span.end.offset], &text[span.start.offset..]);
    match error.kind() {
        ErrorKind::ClassUnclosed => format!("missing closing ]: `{rest}`"),
        ErrorKind::GroupUnclosed => format!("missing closing ): `{text}`"),
        ErrorKind::GroupUnopened => format!("unexpected ): `{text}`"),
        ErrorKind::RepetitionMissing => format!("missing argument to repetition operator: `{there}`"),
        ErrorKind::EscapeUnexpectedEof => "trailing backslash at end of expression: ``".to_owned(),
        ErrorKind::ClassRangeInvalid | ErrorKind::ClassRangeLiteral => {
            format!("invalid character class range: `{there}`")
        }
        ErrorKind::RepetitionCountInvalid | ErrorKind::DecimalInvalid => {
            let open = from.rfind('{').unwrap_or(0);
            format!("invalid repeat count: `{}`", &from[open..])
        }
        ErrorKind::UnsupportedLookAround | ErrorKind::FlagUnrecognized | ErrorKind::GroupNameInvalid => {
            let open = from.rfind("(?").unwrap_or(0);
            format!("invalid or unsupported Perl syntax: `{}`", &from[open..])
        }
        _ => format!("invalid escape sequence: `{there}`"),
    }
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
            ("*", "missing argument to repetition operator: `*`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\y", "invalid escape sequence: `\\y`"),
        ] {
            assert_eq!(compile(text).err(), Some(format!("error parsing regexp: {why}")), "{text}");
        }
        assert!(compile("^a.*[0-9]{1,3}$").is_ok_and(|it| it.is_match("ab12")));
    }
}
