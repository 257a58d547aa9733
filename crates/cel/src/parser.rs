//! The parser: from tokens to an expression.
//!
//! Nesting is bounded: an expression that is too deep is an issue, never a deep stack. Parsing stops at the first
//! syntax error, so that its consequences are not reported.

use crate::builder::ExprBuilder;
use crate::expr::{Expr, Id, Kind, ParsedExpr, op, qualified_name};
use crate::grammar::{AFTER, OPERAND, RESERVED, calc_operator, relation_operator, set};
use crate::lexer::{self, Token, Word};
use crate::literal;
use crate::macros;
use crate::source::Source;

/// The most characters of an expression.
const LONGEST: usize = 100_000;
/// The deepest nesting of grammar rules.
const DEEPEST: u32 = 250;

/// The deepest nesting of groups. Expressions exceed the other limit before it, so that the stack stays small.
const DEEPEST_READ: usize = 64;

fn too_many_rules() -> String {
    format!("expression recursion limit exceeded: {DEEPEST}")
}

fn too_deep() -> String {
    "max recursion depth exceeded".to_owned()
}

/// Parses an expression; `None` if issues were reported.
pub(crate) fn parse(source: &mut Source<'_>) -> Option<ParsedExpr> {
    let size = source.text().chars().count();
    if size > LONGEST {
        let why = format!("expression code point size exceeds limit: size: {size}, limit {LONGEST}");
        source.report_whole(why);
        return None;
    }
    let words = lexer::words(source);
    let builder = ExprBuilder { source, places: vec![0] };
    let mut parser = Parser { words, at: 0, builder, depth: 0, closers: vec![] };
    let root = parser.start();
    if let Err(SyntaxError::TooDeep(why)) = &root {
        parser.builder.source.report_whole(why.clone());
    }
    let root = root.ok()?;
    let places = parser.builder.places;
    (!source.has_issues()).then_some(ParsedExpr { root, places })
}

/// The reason why parsing stopped.
enum SyntaxError {
    /// The issue is already reported.
    Reported,
    TooDeep(String),
}

type ParseResult<T> = Result<T, SyntaxError>;

/// An expression and the nesting depth of its source.
struct NestedExpr {
    expr: Expr,
    height: u32,
}

struct Parser<'s, 't> {
    words: Vec<Token<'t>>,
    at: usize,
    builder: ExprBuilder<'s, 't>,
    /// The number of open expressions.
    depth: u32,
    /// The closing tokens of the open groups.
    closers: Vec<&'static [Word]>,
}

impl<'t> Parser<'_, 't> {
    fn peek(&self) -> Word {
        self.words[self.at].word
    }

    fn token(&self) -> Token<'t> {
        self.words[self.at]
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.words[self.at];
        // the end is never passed
        if token.word != Word::End {
            self.at += 1;
        }
        token
    }

    fn second(&self) -> Word {
        self.words.get(self.at + 1).map_or(Word::End, |it| it.word)
    }

    fn syntax(&mut self, what: String) {
        let location = self.builder.source.location(self.token().at);
        self.builder.source.report(location, format!("Syntax error: {what}"));
    }

    /// Makes sure that the next token is one of these; one extraneous token before it is skipped.
    fn sync(&mut self, wanted: &[Word]) -> ParseResult<()> {
        if wanted.contains(&self.peek()) {
            return Ok(());
        }
        let formatted = self.token().quoted();
        if self.peek() != Word::End && wanted.contains(&self.second()) {
            self.syntax(format!("extraneous input {formatted} expecting {}", set(wanted)));
            self.next();
            return Ok(());
        }
        self.syntax(format!("mismatched input {formatted} expecting {}", set(wanted)));
        Err(SyntaxError::Reported)
    }

    /// Consumes this token; a single missing token is inserted.
    fn expect(&mut self, wanted: Word) -> ParseResult<Token<'t>> {
        if self.peek() == wanted {
            return Ok(self.next());
        }
        let formatted = self.token().quoted();
        if self.peek() != Word::End && self.second() == wanted {
            self.syntax(format!("extraneous input {formatted} expecting {}", wanted.name()));
            self.next();
            return Ok(self.next());
        }
        let fits = match wanted {
            Word::End => false,
            Word::Colon => OPERAND.contains(&self.peek()),
            Word::Ident => self.peek() == Word::LeftParen || self.may_follow(self.peek()),
            _ => self.may_follow(self.peek()),
        };
        if fits {
            self.syntax(format!("missing {} at {formatted}", wanted.name()));
            let token = self.token();
            return Ok(Token { word: wanted, text: "", at: token.at, end: token.end });
        }
        self.syntax(format!("mismatched input {formatted} expecting {}", wanted.name()));
        Err(SyntaxError::Reported)
    }

    /// Whether this token may follow an operand here.
    fn may_follow(&self, word: Word) -> bool {
        let closers = self.closers.last().copied().unwrap_or(&[Word::End]);
        AFTER.contains(&word) || closers.contains(&word)
    }

    /// Parses the contents of a group.
    fn within<T>(
        &mut self,
        closers: &'static [Word],
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.closers.len() >= DEEPEST_READ {
            let many = self.deepest_group() >= DEEPEST;
            return Err(SyntaxError::TooDeep(if many { too_many_rules() } else { too_deep() }));
        }
        self.closers.push(closers);
        let out = read(self);
        self.closers.pop();
        out
    }

    /// The depth of brackets in one another, anywhere.
    fn deepest_group(&self) -> u32 {
        let (mut depth, mut deepest) = (1u32, 1);
        for token in &self.words {
            match token.word {
                Word::LeftParen | Word::LeftBracket | Word::LeftBrace => depth += 1,
                Word::RightParen | Word::RightBracket | Word::RightBrace => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        deepest
    }

    /// The expression with its height; an error if it is too deep.
    fn deep(&self, expr: Expr, height: u32) -> ParseResult<NestedExpr> {
        if height > DEEPEST { Err(SyntaxError::TooDeep(too_deep())) } else { Ok(NestedExpr { expr, height }) }
    }

    fn start(&mut self) -> ParseResult<Expr> {
        let read = self.expression()?;
        self.expect(Word::End)?;
        if read.height + 1 > DEEPEST {
            return Err(SyntaxError::TooDeep(too_deep()));
        }
        Ok(read.expr)
    }

    fn call(&mut self, id: Id, function: &str, args: Vec<Expr>) -> Expr {
        Expr { id, kind: Kind::Call { function: function.to_owned(), target: None, args } }
    }

    fn expression(&mut self) -> ParseResult<NestedExpr> {
        self.depth += 1;
        if self.depth >= DEEPEST {
            return Err(SyntaxError::TooDeep(too_many_rules()));
        }
        let condition = self.or()?;
        let mut read = NestedExpr { height: condition.height + 1, expr: condition.expr };
        if self.peek() == Word::Question {
            let at = self.next().at;
            let id = self.builder.id(at);
            let yes = self.within(&[Word::Colon], Self::or)?;
            self.expect(Word::Colon)?;
            let no = self.expression()?;
            let height = read.height.max(yes.height + 1).max(no.height + 1);
            let expr = self.call(id, op::CONDITIONAL, vec![read.expr, yes.expr, no.expr]);
            read = self.deep(expr, height)?;
        }
        self.depth -= 1;
        Ok(read)
    }

    fn or(&mut self) -> ParseResult<NestedExpr> {
        self.chain(Word::Or, op::OR, Self::and)
    }

    fn and(&mut self) -> ParseResult<NestedExpr> {
        self.chain(Word::And, op::AND, |it| it.relation(true))
    }

    /// Terms joined by one operator; long chains become a balanced tree.
    fn chain(
        &mut self,
        word: Word,
        function: &str,
        term: fn(&mut Self) -> ParseResult<NestedExpr>,
    ) -> ParseResult<NestedExpr> {
        let first = term(self)?;
        let mut height = first.height;
        let mut terms = vec![Some(first.expr)];
        let mut ids = Vec::new();
        while self.peek() == word {
            let at = self.next().at;
            let next = term(self)?;
            ids.push(self.builder.id(at));
            height = height.max(next.height);
            terms.push(Some(next.expr));
        }
        let expr = self.balanced(function, &mut terms, &ids, 0);
        Ok(NestedExpr { expr, height: height + 1 })
    }

    /// The terms from `first` on with the operators between them.
    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], ids: &[Id], first: usize) -> Expr {
        if ids.is_empty() {
            let broken = Expr { id: 0, kind: Kind::Broken };
            return terms.get_mut(first).and_then(Option::take).unwrap_or(broken);
        }
        let middle = ids.len() / 2;
        let left = self.balanced(function, terms, &ids[..middle], first);
        let right = self.balanced(function, terms, &ids[middle + 1..], first + middle + 1);
        self.call(ids[middle], function, vec![left, right])
    }

    /// A comparison; on the right of one stands none.
    fn relation(&mut self, chained: bool) -> ParseResult<NestedExpr> {
        let operand = self.calc(1)?;
        let mut left = NestedExpr { height: operand.height + 1, expr: operand.expr };
        while chained && let Some(function) = relation_operator(self.peek()) {
            let at = self.next().at;
            let id = self.builder.id(at);
            let right = self.relation(false)?;
            let height = left.height.max(right.height) + 1;
            let expr = self.call(id, function, vec![left.expr, right.expr]);
            left = self.deep(expr, height)?;
        }
        Ok(left)
    }

    fn calc(&mut self, weakest: u8) -> ParseResult<NestedExpr> {
        let operand = self.unary()?;
        let mut left = NestedExpr { height: operand.height + 1, expr: operand.expr };
        while let Some((function, strength)) = calc_operator(self.peek()).filter(|it| it.1 >= weakest) {
            let at = self.next().at;
            let id = self.builder.id(at);
            let right = self.calc(strength + 1)?;
            let height = left.height.max(right.height) + 1;
            let expr = self.call(id, function, vec![left.expr, right.expr]);
            left = self.deep(expr, height)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> ParseResult<NestedExpr> {
        self.sync(OPERAND)?;
        let first = self.token();
        let signs = match first.word {
            Word::Minus if !matches!(self.second(), Word::Int | Word::Float) => self.signs(Word::Minus)?,
            Word::Not => self.signs(Word::Not)?,
            _ => 0,
        };
        if signs == 0 {
            let member = self.member()?;
            return Ok(NestedExpr { height: member.height + 1, ..member });
        }
        let id = (signs % 2 == 1).then(|| self.builder.id(first.at));
        let member = self.member()?;
        let function = if first.word == Word::Not { op::NOT } else { op::NEGATE };
        let expr = match id {
            Some(id) => self.call(id, function, vec![member.expr]),
            None => member.expr,
        };
        Ok(NestedExpr { expr, height: member.height + 2 })
    }

    /// The number of consecutive signs.
    fn signs(&mut self, sign: Word) -> ParseResult<usize> {
        let mut count = 0;
        let mut start = 0;
        while self.peek() == sign {
            start = self.next().end - 1;
            count += 1;
        }
        let number = self.peek() == Word::Minus && matches!(self.second(), Word::Int | Word::Float);
        if number || OPERAND.contains(&self.peek()) && !matches!(self.peek(), Word::Minus | Word::Not) {
            return Ok(count);
        }
        let (formatted, at) = (self.token().quoted(), self.token().at);
        let operand = set(OPERAND);
        if sign == Word::Minus {
            let text = self.builder.source.text().get(start..self.token().end).unwrap_or_default();
            self.syntax(format!("no viable alternative at input '{}'", lexer::visible(text)));
            if self.peek() == Word::End {
                self.syntax(format!("mismatched input {formatted} expecting {operand}"));
            }
        } else {
            self.syntax(format!("extraneous input {formatted} expecting {operand}"));
            self.builder.broken(at, "invalid primary expression");
        }
        Err(SyntaxError::Reported)
    }

    fn member(&mut self) -> ParseResult<NestedExpr> {
        let mut left = self.primary()?;
        while let Word::Dot | Word::LeftBracket | Word::LeftBrace = self.peek() {
            let height = left.height + 1;
            left = match self.peek() {
                Word::Dot => self.select_or_call(left.expr, height)?,
                Word::LeftBracket => self.index(left.expr, height)?,
                _ => self.message(left.expr, height)?,
            };
        }
        Ok(left)
    }

    fn select_or_call(&mut self, operand: Expr, height: u32) -> ParseResult<NestedExpr> {
        let dot = self.next().at;
        let name = self.expect(Word::Ident)?;
        if self.peek() != Word::LeftParen {
            let kind = Kind::Select { operand: Box::new(operand), field: name.text.to_owned(), test: false };
            let expr = self.builder.expr(dot, kind);
            return self.deep(expr, height);
        }
        let at = self.next().at;
        let id = self.builder.id(at);
        let (args, inner) = self.arguments()?;
        let expr = macros::receiver_call(&mut self.builder, id, name.text, operand, args);
        self.deep(expr, height.max(inner))
    }

    fn arguments(&mut self) -> ParseResult<(Vec<Expr>, u32)> {
        let mut wanted = OPERAND.to_vec();
        wanted.push(Word::RightParen);
        self.sync(&wanted)?;
        let mut args = Vec::new();
        let mut height = 0;
        if self.peek() != Word::RightParen {
            (args, height) = self.within(&[Word::Comma, Word::RightParen], Self::list)?;
        }
        self.expect(Word::RightParen)?;
        Ok((args, height))
    }

    /// Expressions with commas between them; one behind the last is left.
    fn list(&mut self) -> ParseResult<(Vec<Expr>, u32)> {
        let mut out = Vec::new();
        let mut height = 0;
        loop {
            let read = self.expression()?;
            height = height.max(read.height);
            out.push(read.expr);
            if self.peek() != Word::Comma || !OPERAND.contains(&self.second()) {
                return Ok((out, height));
            }
            self.next();
        }
    }

    fn index(&mut self, operand: Expr, height: u32) -> ParseResult<NestedExpr> {
        let at = self.next().at;
        let id = self.builder.id(at);
        let inner = self.within(&[Word::RightBracket], Self::expression)?;
        self.expect(Word::RightBracket)?;
        let expr = self.call(id, op::INDEX, vec![operand, inner.expr]);
        self.deep(expr, height.max(inner.height))
    }

    fn message(&mut self, operand: Expr, height: u32) -> ParseResult<NestedExpr> {
        let at = self.next().at;
        let id = self.builder.id(at);
        let mut height = height;
        let mut values = Vec::new();
        self.sync(&[Word::RightBrace, Word::Comma, Word::Ident])?;
        while self.peek() == Word::Ident {
            self.next();
            let colon = self.expect(Word::Colon)?.at;
            self.builder.id(colon);
            let value = self.within(&[Word::Comma, Word::RightBrace], Self::expression)?;
            height = height.max(value.height);
            values.push(value.expr);
            if self.peek() != Word::Comma || self.second() != Word::Ident {
                break;
            }
            self.next();
        }
        self.trailing_comma(Word::RightBrace)?;
        let kind = match qualified_name(&operand) {
            Some(name) => Kind::Message { name, values },
            None => {
                let mut part = &operand;
                loop {
                    let location = self.builder.source.location(self.builder.place(part.id));
                    self.builder.source.report(location, "expected a qualified name");
                    match &part.kind {
                        Kind::Select { operand, .. } => part = operand,
                        _ => break Kind::Broken,
                    }
                }
            }
        };
        Ok(NestedExpr { expr: Expr { id, kind }, height })
    }

    fn trailing_comma(&mut self, closer: Word) -> ParseResult<()> {
        self.sync(&[closer, Word::Comma])?;
        if self.peek() == Word::Comma {
            self.next();
        }
        self.expect(closer).map(|_| ())
    }

    fn primary(&mut self) -> ParseResult<NestedExpr> {
        let token = self.token();
        let flat = |expr| Ok(NestedExpr { expr, height: 0 });
        match token.word {
            Word::Dot | Word::Ident => self.name_or_call(),
            Word::LeftParen => {
                self.next();
                let read = self.within(&[Word::RightParen], Self::expression)?;
                self.expect(Word::RightParen)?;
                Ok(read)
            }
            Word::LeftBracket => self.list_literal(),
            Word::LeftBrace => self.map_literal(),
            _ => {
                let negative = token.word == Word::Minus;
                if negative {
                    self.next();
                }
                if !OPERAND.contains(&self.peek()) || self.peek() == Word::Not {
                    let formatted = self.token().quoted();
                    self.syntax(format!("no viable alternative at input {formatted}"));
                    return Err(SyntaxError::Reported);
                }
                let word = self.next();
                match literal::read(word.word, word.text, negative) {
                    Ok(value) => flat(self.builder.expr(token.at, Kind::Literal(value))),
                    Err(why) => flat(self.builder.broken(token.at, why)),
                }
            }
        }
    }

    fn name_or_call(&mut self) -> ParseResult<NestedExpr> {
        let first = self.token();
        let leading = first.word == Word::Dot;
        if leading {
            self.next();
        }
        let name = self.expect(Word::Ident)?;
        let mut args = None;
        let mut height = 0;
        if self.peek() == Word::LeftParen {
            let at = self.next().at;
            let (read, inner) = self.arguments()?;
            height = inner;
            args = Some((at, read));
        }
        if RESERVED.contains(&name.text) {
            let expr = self.builder.broken(first.at, format!("reserved identifier: {}", name.text));
            return Ok(NestedExpr { expr, height });
        }
        let full = format!("{}{}", if leading { "." } else { "" }, name.text);
        let expr = match args {
            None => self.builder.expr(name.at, Kind::Ident(full)),
            Some((at, args)) => {
                let id = self.builder.id(at);
                macros::global_call(&mut self.builder, id, &full, args)
            }
        };
        Ok(NestedExpr { expr, height })
    }

    fn list_literal(&mut self) -> ParseResult<NestedExpr> {
        let at = self.next().at;
        let id = self.builder.id(at);
        let mut wanted = OPERAND.to_vec();
        wanted.extend([Word::RightBracket, Word::Comma]);
        self.sync(&wanted)?;
        let mut items = Vec::new();
        let mut height = 0;
        if !matches!(self.peek(), Word::RightBracket | Word::Comma) {
            (items, height) = self.within(&[Word::Comma, Word::RightBracket], Self::list)?;
        }
        self.trailing_comma(Word::RightBracket)?;
        Ok(NestedExpr { expr: Expr { id, kind: Kind::List(items) }, height })
    }

    fn map_literal(&mut self) -> ParseResult<NestedExpr> {
        let at = self.next().at;
        let id = self.builder.id(at);
        let mut wanted = OPERAND.to_vec();
        wanted.extend([Word::RightBrace, Word::Comma]);
        self.sync(&wanted)?;
        let mut entries = Vec::new();
        let mut height = 0;
        while !matches!(self.peek(), Word::RightBrace | Word::Comma) {
            let key = self.within(&[Word::Colon], Self::expression)?;
            let colon = self.expect(Word::Colon)?.at;
            self.builder.id(colon);
            let value = self.within(&[Word::Comma, Word::RightBrace], Self::expression)?;
            height = height.max(key.height + 1).max(value.height + 1);
            entries.push((key.expr, value.expr));
            if self.peek() != Word::Comma || !OPERAND.contains(&self.second()) {
                break;
            }
            self.next();
        }
        self.trailing_comma(Word::RightBrace)?;
        Ok(NestedExpr { expr: Expr { id, kind: Kind::Map(entries) }, height })
    }
}
