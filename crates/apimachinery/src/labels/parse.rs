//! The parser of label selectors. Its messages are those that clients of the API know.

use super::requirement::{Operator, Requirement};
use schema::format;
use schema::problem::quoted;

/// Why a text is not a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// The requirements of a selector, in the order of the text.
pub fn requirements(text: &str) -> Result<Vec<Requirement>, ParseError> {
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
                            let lexeme = parser.peek();
                            return Err(ParseError(format!(
                                "found '{}', expected: identifier after ','",
                                lexeme.text()
                            )));
                        }
                    }
                    other => {
                        return Err(ParseError(format!(
                            "found '{}', expected: ',' or 'end of string'",
                            other.text()
                        )));
                    }
                }
            }
            other => {
                let found = other.text();
                return Err(ParseError(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                )));
            }
        }
    }
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
    fn text(&self) -> &str {
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

    fn requirement(&mut self) -> Result<Requirement, ParseError> {
        let fail = |what: String| Err(ParseError(format!("unable to parse requirement: {what}")));
        let negated = self.peek() == Lexeme::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            Lexeme::Word(word) => word,
            other => return fail(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(why) = format::qualified_name(&key).first() {
            return fail(format!("<nil>: Invalid value: {}: {why}", quoted(&key)));
        }
        if negated {
            return Ok(Requirement::new(key, Operator::DoesNotExist, Vec::new()));
        }
        let operator = match self.peek() {
            Lexeme::End | Lexeme::Comma => {
                return Ok(Requirement::new(key, Operator::Exists, Vec::new()));
            }
            Lexeme::Equals | Lexeme::DoubleEquals => Operator::Equals,
            Lexeme::NotEquals => Operator::NotEquals,
            Lexeme::Greater => Operator::GreaterThan,
            Lexeme::Less => Operator::LessThan,
            Lexeme::Word(word) if word == "in" => Operator::In,
            Lexeme::Word(word) if word == "notin" => Operator::NotIn,
            other => {
                return fail(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        let set_based = matches!(self.next(), Lexeme::Word(_));
        let values = if set_based { self.set()? } else { vec![self.exact()?] };
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
                if value.parse::<i64>().is_err() {
                    return fail(format!(
                        "values[{at}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        quoted(value)
                    ));
                }
            } else if let Some(why) = format::label_value(value).first() {
                return fail(format!("values[{at}][{key}]: Invalid value: {}: {why}", quoted(value)));
            }
        }
        Ok(Requirement::new(key, operator, values))
    }

    /// One value, which may be empty.
    fn exact(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            Lexeme::End | Lexeme::Comma => Ok(String::new()),
            Lexeme::Word(word) => {
                self.next();
                Ok(word)
            }
            other => Err(ParseError(format!(
                "unable to parse requirement: found '{}', expected: identifier",
                other.text()
            ))),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, ParseError> {
        let fail = |what: String| Err(ParseError(format!("unable to parse requirement: {what}")));
        match self.next() {
            Lexeme::Open => {}
            other => return fail(format!("found '{}' expected: '('", other.text())),
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
                        other => return fail(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Lexeme::Comma => values.push(String::new()),
                Lexeme::Close => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    break;
                }
                other => return fail(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
