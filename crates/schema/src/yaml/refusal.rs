//! The words for text that the parser refuses.
//!
//! Clients know the words of upstream's reader. Which of them fit is found from the place of the error and the text
//! around it, so that nothing depends on the words of the parser.

use std::iter::Peekable;
use std::str::CharIndices;

/// The message for text that is refused at a position, which is counted in characters; `line` is counted from zero.
pub(super) fn message(text: &str, at: usize, line: usize) -> String {
    let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    // a quoted scalar with text right behind it is refused for that text
    let behind = text_behind_quoted(&text[at..]);
    let line = line + text[at..at + behind].matches('\n').count();
    let (before, rest) = text.split_at(at + behind);
    match problem(before, rest) {
        Problem::Scanner { what, below } => numbered(line + below, line + below + 1, &what),
        Problem::Grammar(what) => {
            // the end of the text is a line of its own
            let lines = text.lines().count();
            let is_end = rest.is_empty() && line + 1 >= lines && !text.ends_with('\n');
            let line = if is_end { lines } else { line };
            numbered(line, line, what)
        }
        Problem::UnknownAnchor(name) => format!("yaml: unknown anchor '{name}' referenced"),
    }
}

/// A message with its line, unless it is the first one.
fn numbered(line: usize, shown: usize, what: &str) -> String {
    match line {
        0 => format!("yaml: {what}"),
        _ => format!("yaml: line {shown}: {what}"),
    }
}

enum Problem<'t> {
    /// A character or a scalar is wrong, so many lines below.
    Scanner {
        what: String,
        below: usize,
    },
    /// A token stands where the grammar has another one.
    Grammar(&'static str),
    UnknownAnchor(&'t str),
}

fn scanner(what: &str) -> Problem<'static> {
    Problem::Scanner { what: what.to_owned(), below: 0 }
}

/// The nesting of brackets that the parser supports.
const MOST_BRACKETS: usize = 250;

fn problem<'t>(before: &'t str, rest: &'t str) -> Problem<'t> {
    let brackets = open_brackets(before);
    if brackets.len() > MOST_BRACKETS {
        return scanner("exceeded max depth");
    }
    if let Some(found) = of_token(before, rest) {
        return found;
    }
    let previous = before.trim_end().chars().next_back();
    match brackets.last() {
        Some(_) if previous.is_none_or(|it| "[{,:".contains(it)) => Problem::Grammar(NO_CONTENT),
        Some('[') => Problem::Grammar("did not find expected ',' or ']'"),
        Some(_) => Problem::Grammar("did not find expected ',' or '}'"),
        None => in_block(before, rest, previous),
    }
}

const NO_CONTENT: &str = "did not find expected node content";
const NO_TOKEN: &str = "found character that cannot start any token";

/// What is wrong with the token that begins at a place, whatever stands around it.
fn of_token<'t>(before: &str, rest: &'t str) -> Option<Problem<'t>> {
    let is_first = before.is_empty() || before.ends_with('\n');
    match rest.chars().next()? {
        '@' | '`' | '\t' => Some(scanner(NO_TOKEN)),
        '%' if !is_first => Some(scanner(NO_TOKEN)),
        '%' => Some(scanner(match word(&rest[1..]) {
            "" => "could not find expected directive name",
            "YAML" => "did not find expected digit or '.' character",
            _ => "found unknown directive name",
        })),
        '"' => double_quoted(&rest[1..]),
        '\'' => single_quoted(&rest[1..]),
        '|' | '>' => block_scalar(rest),
        '!' if rest.starts_with("!<") => Some(scanner("did not find the expected '>'")),
        '!' => Some(match word(&rest[1..]) {
            "" => scanner("did not find expected tag URI"),
            _ => Problem::Grammar("found undefined tag handle"),
        }),
        '*' | '&' => Some(match word(&rest[1..]) {
            "" => scanner("did not find expected alphabetic or numeric character"),
            name => Problem::UnknownAnchor(name),
        }),
        _ => None,
    }
}

/// The letters, digits, dashes and underscores at the start of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn double_quoted(text: &str) -> Option<Problem<'static>> {
    const PLAIN: &str = "0abt\tnvfre \"'\\N_LP\n\r";
    let mut rest = text;
    loop {
        let wrong = |what: &str, rest: &str| {
            let below = text[..text.len() - rest.len()].matches('\n').count();
            Some(Problem::Scanner { what: what.to_owned(), below })
        };
        let Some(next) = rest.chars().next() else { return wrong(END_OF_STREAM, rest) };
        if is_document_mark(text, rest) {
            return wrong(DOCUMENT_MARK, rest);
        }
        if next == '"' {
            return None;
        }
        rest = &rest[next.len_utf8()..];
        if next != '\\' {
            continue;
        }
        let escape = rest.chars().next();
        let digits = match escape {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(known) if PLAIN.contains(known) => 0,
            _ => return wrong("found unknown escape character", rest),
        };
        rest = &rest[1..];
        if digits == 0 {
            continue;
        }
        let code = rest.get(..digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(code) = code else { return wrong("did not find expected hexdecimal number", rest) };
        if u32::from_str_radix(code, 16).ok().and_then(char::from_u32).is_none() {
            return wrong("found invalid Unicode character escape code", rest);
        }
        rest = &rest[digits..];
    }
}

const END_OF_STREAM: &str = "found unexpected end of stream";
const DOCUMENT_MARK: &str = "found unexpected document indicator";

fn single_quoted(text: &str) -> Option<Problem<'static>> {
    let mut from = 0;
    loop {
        let end = text[from..].find('\'').map(|at| from + at);
        let part = &text[from..end.unwrap_or(text.len())];
        let mark = part.match_indices('\n').find(|(at, _)| is_document_mark(text, &text[from + at + 1..]));
        if let Some((at, _)) = mark {
            let below = text[..=from + at].matches('\n').count();
            return Some(Problem::Scanner { what: DOCUMENT_MARK.to_owned(), below });
        }
        let Some(end) = end else {
            let below = text.matches('\n').count();
            return Some(Problem::Scanner { what: END_OF_STREAM.to_owned(), below });
        };
        // two quotes are one
        match text[end + 1..].starts_with('\'') {
            true => from = end + 2,
            false => return None,
        }
    }
}

/// Whether a line begins here that begins or ends a document.
fn is_document_mark(text: &str, rest: &str) -> bool {
    let is_first = text[..text.len() - rest.len()].ends_with('\n');
    let behind = rest.strip_prefix("---").or_else(|| rest.strip_prefix("..."));
    is_first && behind.is_some_and(|it| it.is_empty() || it.starts_with(char::is_whitespace))
}

fn block_scalar(rest: &str) -> Option<Problem<'static>> {
    let mut lines = rest.lines();
    let head = lines.next()?[1..].split_once('#').map_or_else(|| &rest[1..], |(head, _)| head);
    let head = head.lines().next().unwrap_or_default().trim_end();
    let sign = |it: char| it == '+' || it == '-';
    let digits = head.trim_start_matches(sign).trim_end_matches(sign);
    let has_form = head.len() - digits.len() <= 1 && digits.len() <= 1;
    if !has_form || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Some(scanner("did not find expected comment or line break"));
    }
    if digits == "0" {
        return Some(scanner("found an indentation indicator equal to 0"));
    }
    let at = lines.position(|line| line.trim_start_matches(' ').starts_with('\t'))?;
    let what = "found a tab character where an indentation space is expected".to_owned();
    Some(Problem::Scanner { what, below: at + 1 })
}

/// What is wrong outside of brackets.
fn in_block(before: &str, rest: &str, previous: Option<char>) -> Problem<'static> {
    let mut next = rest.chars();
    let first = next.next();
    let is_alone = next.next().is_none_or(char::is_whitespace);
    let indentation = before.rsplit('\n').next().unwrap_or_default();
    if indentation.trim().is_empty() && indentation.contains('\t') {
        return scanner(NO_TOKEN);
    }
    match first {
        Some(']' | '}') if previous.is_none_or(|it| it == ':' || it == '-') => {
            return Problem::Grammar(NO_CONTENT);
        }
        Some(':') if is_of_lost_key(before) => return scanner(NO_COLON),
        Some(':') => return scanner("mapping values are not allowed in this context"),
        Some('-') if is_alone && !before.is_empty() && !is_at_line_start(before) => {
            return scanner("block sequence entries are not allowed in this context");
        }
        Some('?') if is_alone => return scanner("mapping keys are not allowed in this context"),
        _ => {}
    }
    let above = before.trim_end();
    let last = above.rsplit('\n').next().unwrap_or_default().trim_start();
    if last == "%" {
        return scanner("could not find expected directive name");
    }
    let is_below = rest.is_empty() || before[above.len()..].contains('\n');
    if is_below && !last.is_empty() && !has_value(last) {
        return scanner(NO_COLON);
    }
    let column = before.rsplit('\n').next().unwrap_or_default().len();
    let indent = |line: &&str| line.len() - line.trim_start_matches(' ').len() <= column;
    let above = above.rsplit('\n').filter(|line| !line.trim().is_empty()).find(indent);
    let is_item =
        above.is_some_and(|line| matches!(line.trim_start(), it if it.starts_with("- ") || it == "-"));
    Problem::Grammar(match is_item && is_below {
        true => "did not find expected '-' indicator",
        false => "did not find expected key",
    })
}

const NO_COLON: &str = "could not find expected ':'";

/// Whether a line has the start of a value.
fn has_value(line: &str) -> bool {
    let line = line.trim_start();
    line.contains(": ") || line.ends_with(':') || line.starts_with("- ") || line == "-"
}

/// Whether the scalar in front of a colon began in a line above, at a place where a map has its next key.
fn is_of_lost_key(before: &str) -> bool {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let mut lines = before.rsplit('\n').filter(|line| !line.trim().is_empty()).peekable();
    let Some(last) = lines.next() else { return false };
    let mut column = indent(last);
    let mut is_continued = false;
    while let Some(line) = lines.next_if(|line| !has_value(line) && indent(line) <= column) {
        (column, is_continued) = (indent(line), true);
    }
    // the map has another key in the same column
    is_continued && lines.find(|line| indent(line) <= column).is_some_and(|line| indent(line) == column)
}

/// The length of a quoted scalar and the blanks behind it, if there is more text in its last line that does not belong
/// there.
fn text_behind_quoted(rest: &str) -> usize {
    let end = quoted_length(rest).filter(|end| rest[..*end].contains('\n'));
    let Some(end) = end else { return 0 };
    let blanks = rest[end..].len() - rest[end..].trim_start_matches([' ', '\t']).len();
    match rest[end + blanks..].chars().next() {
        None | Some('\n' | '\r' | ':' | ',' | ']' | '}' | '#') => 0,
        Some(_) => end + blanks,
    }
}

/// The length of the quoted scalar that a text begins with, if it ends.
fn quoted_length(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    let mut inside = text[1..].char_indices().peekable();
    while let Some((at, next)) = inside.next() {
        match next {
            '\\' if quote == '"' => drop(inside.next()),
            next if next != quote => {}
            _ if quote == '\'' && inside.peek().is_some_and(|(_, next)| *next == '\'') => drop(inside.next()),
            _ => return Some(at + 2),
        }
    }
    None
}

fn is_at_line_start(before: &str) -> bool {
    before.rsplit('\n').next().unwrap_or_default().trim_start_matches(' ').is_empty()
}

/// The brackets that are open at the end of a text.
fn open_brackets(text: &str) -> Vec<char> {
    let mut open = Vec::new();
    scan_brackets(text, |next, _| {
        match next {
            '[' | '{' => open.push(next),
            _ => drop(open.pop()),
        }
        true
    });
    open
}

/// The first list or map of a text that begins with a bracket, if another bracket or a comma stands behind it, or behind a
/// quoted scalar there: only the first document counts, and what follows is no part of it.
pub(super) fn first_document(text: &str) -> Option<&str> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let (mut depth, mut end) = (0usize, None);
    scan_brackets(text, |next, at| {
        depth = if matches!(next, '[' | '{') { depth + 1 } else { depth.saturating_sub(1) };
        if depth == 0 {
            end = Some(at + 1);
        }
        depth > 0
    });
    let (first, behind) = text.split_at(end?);
    let behind = behind.trim_start();
    let behind = behind[quoted_length(behind).unwrap_or_default()..].trim_start();
    behind.starts_with([']', '}', ',']).then_some(first)
}

/// Visits the brackets of a text with their positions, as long as the visitor wants more.
fn scan_brackets(text: &str, mut visit: impl FnMut(char, usize) -> bool) {
    // the last character that was no blank, whether a token can begin here, and the number of open brackets
    let (mut previous, mut can_begin, mut depth) = ('\n', true, 0usize);
    let mut characters = text.char_indices().peekable();
    while let Some((at, next)) = characters.next() {
        let is_bracket = match next {
            '#' if can_begin || matches!(previous, ']' | '}' | '"' | '\'') => {
                while characters.next_if(|(_, it)| *it != '\n').is_some() {}
                continue;
            }
            '"' | '\'' if can_begin => {
                skip_quoted(next, &mut characters);
                false
            }
            '[' | '{' => can_begin || depth > 0,
            ']' | '}' => true,
            _ => false,
        };
        if is_bracket {
            depth = if matches!(next, '[' | '{') { depth + 1 } else { depth.saturating_sub(1) };
            if !visit(next, at) {
                return;
            }
        }
        can_begin = match next {
            ' ' | '\t' => can_begin || matches!(previous, ':' | '-' | '?' | ','),
            '\n' | '[' | '{' => true,
            ',' | ':' => depth > 0,
            _ => false,
        };
        if !next.is_whitespace() {
            previous = next;
        }
    }
}

fn skip_quoted(quote: char, characters: &mut Peekable<CharIndices<'_>>) {
    while let Some((_, next)) = characters.next() {
        match next {
            '\\' if quote == '"' => drop(characters.next()),
            _ if next != quote => {}
            '\'' if characters.next_if(|(_, it)| *it == '\'').is_some() => {}
            _ => return,
        }
    }
}
