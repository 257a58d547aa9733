//! The macros of the language: `has`, and comprehensions over lists and maps.

use crate::builder::ExprBuilder;
use crate::expr::{ACCUMULATOR, Expr, Fold, Id, Kind, Literal, op};

/// `function(args)`
pub(crate) fn global_call(
    builder: &mut ExprBuilder<'_, '_>,
    id: Id,
    function: &str,
    mut args: Vec<Expr>,
) -> Expr {
    if function == "has" && args.len() == 1 {
        let at = builder.place(id);
        return match args.pop().map(|it| it.kind) {
            Some(Kind::Select { operand, field, .. }) => {
                builder.expr(at, Kind::Select { operand, field, test: true })
            }
            _ => builder.broken(at, "invalid argument to has() macro"),
        };
    }
    Expr { id, kind: Kind::Call { function: function.to_owned(), target: None, args } }
}

/// `target.function(args)`
pub(crate) fn receiver_call(
    builder: &mut ExprBuilder<'_, '_>,
    id: Id,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
) -> Expr {
    let Some(kind) = Macro::named(function, args.len()) else {
        let target = Some(Box::new(target));
        return Expr { id, kind: Kind::Call { function: function.to_owned(), target, args } };
    };
    let at = builder.place(id);
    let mut args = args.into_iter();
    let (Some(first), Some(second)) = (args.next(), args.next()) else {
        return builder.broken(at, "argument is not an identifier");
    };
    let Kind::Ident(variable) = &first.kind else {
        return match kind {
            Macro::Map | Macro::Filter => builder.broken(at, "argument is not an identifier"),
            _ => {
                let at = builder.place(first.id);
                builder.broken(at, "argument must be a simple name")
            }
        };
    };
    let mut fold_builder = FoldBuilder { builder, at };
    let fold = match kind {
        Macro::All => fold_builder.all(second),
        Macro::Exists => fold_builder.exists(second),
        Macro::ExistsOne => fold_builder.exists_one(second),
        Macro::Map => match args.next() {
            Some(third) => fold_builder.collect(third, Some(second)),
            None => fold_builder.collect(second, None),
        },
        Macro::Filter => fold_builder.collect(first.clone(), Some(second)),
    };
    let [init, condition, step, result] = fold;
    let fold = Fold { variable: variable.clone(), range: target, init, condition, step, result };
    fold_builder.part(Kind::Fold(Box::new(fold)))
}

#[derive(Clone, Copy)]
enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

impl Macro {
    fn named(function: &str, args: usize) -> Option<Macro> {
        Some(match (function, args) {
            ("all", 2) => Macro::All,
            ("exists", 2) => Macro::Exists,
            ("exists_one", 2) => Macro::ExistsOne,
            ("map", 2 | 3) => Macro::Map,
            ("filter", 2) => Macro::Filter,
            _ => return None,
        })
    }
}

/// Builds the parts of a fold (init, condition, step and result), all at the position of the macro.
struct FoldBuilder<'p, 's, 't> {
    builder: &'p mut ExprBuilder<'s, 't>,
    at: usize,
}

impl FoldBuilder<'_, '_, '_> {
    fn part(&mut self, kind: Kind) -> Expr {
        self.builder.expr(self.at, kind)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.part(Kind::Call { function: function.to_owned(), target: None, args })
    }

    fn bool(&mut self, value: bool) -> Expr {
        self.part(Kind::Literal(Literal::Bool(value)))
    }

    fn accumulator(&mut self) -> Expr {
        self.part(Kind::Ident(ACCUMULATOR.to_owned()))
    }

    fn all(&mut self, predicate: Expr) -> [Expr; 4] {
        let init = self.bool(true);
        let so_far = self.accumulator();
        let condition = self.call(op::NOT_STRICTLY_FALSE, vec![so_far]);
        let so_far = self.accumulator();
        let step = self.call(op::AND, vec![so_far, predicate]);
        [init, condition, step, self.accumulator()]
    }

    fn exists(&mut self, predicate: Expr) -> [Expr; 4] {
        let init = self.bool(false);
        let so_far = self.accumulator();
        let not = self.call(op::NOT, vec![so_far]);
        let condition = self.call(op::NOT_STRICTLY_FALSE, vec![not]);
        let so_far = self.accumulator();
        let step = self.call(op::OR, vec![so_far, predicate]);
        [init, condition, step, self.accumulator()]
    }

    fn exists_one(&mut self, predicate: Expr) -> [Expr; 4] {
        let init = self.part(Kind::Literal(Literal::Int(0)));
        let one = self.part(Kind::Literal(Literal::Int(1)));
        let condition = self.bool(true);
        let so_far = self.accumulator();
        let more = self.call(op::ADD, vec![so_far, one.clone()]);
        let so_far = self.accumulator();
        let step = self.call(op::CONDITIONAL, vec![predicate, more, so_far]);
        let so_far = self.accumulator();
        let result = self.call(op::EQUALS, vec![so_far, one]);
        [init, condition, step, result]
    }

    /// A list of the results of `item`, for the items that satisfy `filter`.
    fn collect(&mut self, item: Expr, filter: Option<Expr>) -> [Expr; 4] {
        let so_far = self.accumulator();
        let init = self.part(Kind::List(Vec::new()));
        let condition = self.bool(true);
        let one = self.part(Kind::List(vec![item]));
        let mut step = self.call(op::ADD, vec![so_far.clone(), one]);
        if let Some(filter) = filter {
            step = self.call(op::CONDITIONAL, vec![filter, step, so_far.clone()]);
        }
        [init, condition, step, so_far]
    }
}
