//! The grammar: reserved words, operators with their precedence, and the token sets of error messages.

use crate::expr::op;
use crate::lexer::Word;

/// The tokens that may begin an operand.
pub(crate) const OPERAND: &[Word] = &[
    Word::LeftBracket,
    Word::LeftBrace,
    Word::LeftParen,
    Word::Dot,
    Word::Minus,
    Word::Not,
    Word::True,
    Word::False,
    Word::Null,
    Word::Float,
    Word::Int,
    Word::Uint,
    Word::String,
    Word::Bytes,
    Word::Ident,
];

/// The tokens that may follow an operand, besides the closing token of its group.
pub(crate) const AFTER: &[Word] = &[
    Word::Equals,
    Word::NotEquals,
    Word::In,
    Word::Less,
    Word::LessEquals,
    Word::GreaterEquals,
    Word::Greater,
    Word::And,
    Word::Or,
    Word::LeftBracket,
    Word::LeftBrace,
    Word::Dot,
    Word::Minus,
    Word::Question,
    Word::Plus,
    Word::Star,
    Word::Slash,
    Word::Percent,
];

/// A set of tokens as error messages list it.
pub(crate) fn set(words: &[Word]) -> String {
    match words {
        [one] => one.name().to_owned(),
        many => {
            let mut many = many.to_vec();
            many.sort_by_key(|it| *it as u8);
            let names: Vec<_> = many.iter().map(|it| it.name()).collect();
            format!("{{{}}}", names.join(", "))
        }
    }
}

/// The arithmetic operator of a token, and its precedence.
pub(crate) fn calc_operator(word: Word) -> Option<(&'static str, u8)> {
    Some(match word {
        Word::Star => (op::MULTIPLY, 2),
        Word::Slash => (op::DIVIDE, 2),
        Word::Percent => (op::MODULO, 2),
        Word::Plus => (op::ADD, 1),
        Word::Minus => (op::SUBTRACT, 1),
        _ => return None,
    })
}

/// The relational operator of a token.
pub(crate) fn relation_operator(word: Word) -> Option<&'static str> {
    Some(match word {
        Word::Less => op::LESS,
        Word::LessEquals => op::LESS_EQUALS,
        Word::Greater => op::GREATER,
        Word::GreaterEquals => op::GREATER_EQUALS,
        Word::Equals => op::EQUALS,
        Word::NotEquals => op::NOT_EQUALS,
        Word::In => op::IN,
        _ => return None,
    })
}

/// Reserved words, which cannot be names.
pub(crate) const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];
