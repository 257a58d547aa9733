//! Label and field selectors: parsed once per request, matched against the facts of cached objects.

use crate::model::error::ApiError;
use crate::model::object::Object;
use schema::format;

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    pub labels: Vec<Requirement>,
    pub fields: Vec<FieldTerm>,
}

/// One condition on labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, for binary search.
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on a selectable field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTerm {
    pub field: Selected,
    pub equal: bool,
    pub value: String,
}

/// The source of a field condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    Name,
    Namespace,
    /// Position in the collection's list of extracted fields.
    Field(usize),
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.fields.iter().all(|term| term.matches(object))
            && self.labels.iter().all(|requirement| requirement.matches(|key| object.label(key)))
    }

    /// The name that an object must have, if the selector names one.
    pub fn name(&self) -> Option<&str> {
        self.equal_to(Selected::Name)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.equal_to(Selected::Namespace)
    }

    pub fn field(&self, at: usize) -> Option<&str> {
        self.equal_to(Selected::Field(at))
    }

    fn equal_to(&self, field: Selected) -> Option<&str> {
        self.fields.iter().find(|term| term.equal && term.field == field).map(|term| &*term.value)
    }
}

impl FieldTerm {
    fn matches(&self, object: &Object) -> bool {
        let found = match self.field {
            Selected::Name => &*object.name,
            Selected::Namespace => &*object.namespace,
            Selected::Field(at) => object.field(at).unwrap_or(""),
        };
        (found == self.value) == self.equal
    }
}

impl Requirement {
    pub fn new(key: String, operator: Operator, mut values: Vec<String>) -> Self {
        values.sort();
        Requirement { key, operator, values }
    }

    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let found = label(&self.key);
        let listed =
            || found.is_some_and(|value| self.values.binary_search_by(|one| (**one).cmp(value)).is_ok());
        let number = || Some((found?.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => number().is_some_and(|(is, bound)| is > bound),
            Operator::LessThan => number().is_some_and(|(is, bound)| is < bound),
        }
    }
}

/// Checks the syntax of a field selector, without the fields of a kind.
pub fn check_fields(text: &str) -> Result<(), ApiError> {
    read_fields(text).map(drop)
}

/// Label, operator (true for equality) and value of each term of a field selector.
pub(crate) fn read_fields(text: &str) -> Result<Vec<(&str, bool, String)>, ApiError> {
    let parts = split_terms(text).into_iter().filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let cannot =
                || ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"));
            let (label, equal, value) = field_term(part).ok_or_else(cannot)?;
            let value = unescape(value)
                .map_err(|why| ApiError::bad_request(format!("invalid field selector: {why}")))?;
            Ok((label, equal, value))
        })
        .collect()
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            ',' if !escaped => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => escaped = false,
        }
    }
    parts.push(&text[from..]);
    parts
}

fn field_term(part: &str) -> Option<(&str, bool, &str)> {
    let bytes = part.as_bytes();
    for at in 0..bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'!', Some(b'=')) => return Some((&part[..at], false, &part[at + 2..])),
            (b'=', Some(b'=')) => return Some((&part[..at], true, &part[at + 2..])),
            (b'=', _) => return Some((&part[..at], true, &part[at + 1..])),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid escape sequence: \\{c}")),
                None => return Err("invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("unescaped character in value: {}", c as u32)),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3,m<4`.
pub fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let mut parser = Parser { tokens: lex(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Lexeme::End => break,
            Lexeme::Word(_) | Lexeme::Not => {
                requirements.push(parser.requirement()?);
                match parser.next() {
                    Lexeme::End => break,
                    Lexeme::Comma => {
                        if !matches!(parser.peek(), Lexeme::Word(_) | Lexeme::Not) {
                            let found = parser.peek();
                            return Err(ApiError::bad_request(format!(
                                "found '{}', expected: identifier after ','",
                                found.shown()
                            )));
                        }
                    }
                    other => {
                        return Err(ApiError::bad_request(format!(
                            "found '{}', expected: ',' or 'end of string'",
                            other.shown()
                        )));
                    }
                }
            }
            other => {
                let found = other.shown();
                return Err(ApiError::bad_request(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                )));
            }
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

#[derive(Debug, Clone, PartialEq)]
enum Lexeme {
    Word(String),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    End,
}

impl Lexeme {
    fn shown(&self) -> &str {
        match self {
            Lexeme::Word(word) => word,
            Lexeme::Comma => ",",
            Lexeme::Open => "(",
            Lexeme::Close => ")",
            Lexeme::Not => "!",
            Lexeme::Equals => "=",
            Lexeme::DoubleEquals => "==",
            Lexeme::NotEquals => "!=",
            Lexeme::Greater => ">",
            Lexeme::Less => "<",
            Lexeme::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Lexeme> {
    let special = |c: char| "=!(),><".contains(c);
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(match c {
            ' ' | '\t' | '\r' | '\n' => continue,
            ',' => Lexeme::Comma,
            '(' => Lexeme::Open,
            ')' => Lexeme::Close,
            '>' => Lexeme::Greater,
            '<' => Lexeme::Less,
            '=' if chars.next_if_eq(&'=').is_some() => Lexeme::DoubleEquals,
            '=' => Lexeme::Equals,
            '!' if chars.next_if_eq(&'=').is_some() => Lexeme::NotEquals,
            '!' => Lexeme::Not,
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !special(*c) && !c.is_ascii_whitespace()) {
                    word.push(c);
                }
                Lexeme::Word(word)
            }
        });
    }
    out
}

struct Parser {
    tokens: Vec<Lexeme>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Lexeme {
        self.tokens.get(self.at).cloned().unwrap_or(Lexeme::End)
    }

    fn next(&mut self) -> Lexeme {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, ApiError> {
        let fail = |what: String| Err(ApiError::bad_request(format!("unable to parse requirement: {what}")));
        let negated = self.peek() == Lexeme::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            Lexeme::Word(word) => word,
            other => return fail(format!("found '{}', expected: identifier", other.shown())),
        };
        if let Some(why) = format::qualified_name(&key).first() {
            return fail(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        let operator = match self.peek() {
            Lexeme::End | Lexeme::Comma => {
                return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
            }
            Lexeme::Equals | Lexeme::DoubleEquals => Operator::In,
            Lexeme::NotEquals => Operator::NotIn,
            Lexeme::Greater => Operator::GreaterThan,
            Lexeme::Less => Operator::LessThan,
            Lexeme::Word(word) if word == "in" => Operator::In,
            Lexeme::Word(word) if word == "notin" => Operator::NotIn,
            other => {
                return fail(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.shown()));
            }
        };
        let set_based = matches!(self.next(), Lexeme::Word(_));
        let values = if set_based { self.set()? } else { vec![self.exact()?] };
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
                if value.parse::<i64>().is_err() {
                    return fail(format!(
                        "values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            } else if let Some(why) = format::label_value(value).first() {
                return fail(format!("values[{at}][{key}]: Invalid value: {value:?}: {why}"));
            }
        }
        Ok(Requirement::new(key, operator, values))
    }

    /// One value, which may be empty.
    fn exact(&mut self) -> Result<String, ApiError> {
        match self.peek() {
            Lexeme::End | Lexeme::Comma => Ok(String::new()),
            Lexeme::Word(word) => {
                self.next();
                Ok(word)
            }
            other => Err(ApiError::bad_request(format!(
                "unable to parse requirement: found '{}', expected: identifier",
                other.shown()
            ))),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, ApiError> {
        let fail = |what: String| Err(ApiError::bad_request(format!("unable to parse requirement: {what}")));
        match self.next() {
            Lexeme::Open => {}
            other => return fail(format!("found '{}' expected: '('", other.shown())),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Lexeme::Word(word) => {
                    values.push(word);
                    match self.next() {
                        Lexeme::Comma => {
                            if self.peek() == Lexeme::Close {
                                values.push(String::new());
                            }
                        }
                        Lexeme::Close => break,
                        other => return fail(format!("found '{}', expected: ',' or ')'", other.shown())),
                    }
                }
                Lexeme::Comma => values.push(String::new()),
                Lexeme::Close => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    break;
                }
                other => return fail(format!("found '{}', expected: ',', ')' or identifier", other.shown())),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let requirements = parse_labels(selector).unwrap();
        requirements.iter().all(|r| r.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)))
    }

    #[test]
    fn equality_and_sets() {
        let labels = [("app", "web"), ("tier", "front"), ("n", "5")];
        for yes in [
            "app=web",
            "app==web",
            "app!=db",
            "x!=y",
            "app in (web,db)",
            "app notin (db)",
            "app",
            "!x",
            "n>4",
            "n<6",
            "app=web,tier=front",
            " app = web , tier in ( front ) ",
            "",
            "x notin (a)",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in [
            "app=db",
            "app!=web",
            "app notin (web)",
            "x",
            "!app",
            "n>5",
            "n<5",
            "app=",
            "x in (a,)",
            "app=web,x",
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn parse_errors_name_the_token() {
        let message = |text: &str| parse_labels(text).unwrap_err().message;
        assert_eq!(message("!!"), "unable to parse requirement: found '!', expected: identifier");
        assert_eq!(message("a,"), "found '', expected: identifier after ','");
        assert!(message("a in b").contains("expected: '('"));
        assert!(message("-a=b").contains("Invalid value"));
    }

    #[test]
    fn field_terms_split_and_unescape() {
        assert_eq!(split_terms(r"a=b\,c,d=e"), [r"a=b\,c", "d=e"]);
        assert_eq!(field_term("a!=b"), Some(("a", false, "b")));
        assert_eq!(field_term("a==b"), Some(("a", true, "b")));
        assert_eq!(field_term("a"), None);
        assert_eq!(unescape(r"b\,c").as_deref(), Ok("b,c"));
        assert_eq!(unescape("b=c").unwrap_err(), "unescaped character in value: 61");
    }
}
