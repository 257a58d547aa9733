//! The syntax tree, with macros expanded.

/// Identifies a part of an expression; [`ParsedExpr::places`] has its position in the text.
pub(crate) type Id = u32;

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub id: Id,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`, or with `test` whether the field is present.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    /// `name{...}`
    Message {
        name: String,
        values: Vec<Expr>,
    },
    Fold(Box<Fold>),
    /// A syntax error; the issue is already reported.
    Broken,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// A comprehension, the expansion of every macro over a list or map: iterates over `range`, starts with `init` and
/// evaluates `step` while `condition` holds.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub variable: String,
    pub range: Expr,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The name of a fold's accumulator.
pub(crate) const ACCUMULATOR: &str = "__result__";

/// An expression with the places of its parts.
#[derive(Debug)]
pub(crate) struct ParsedExpr {
    pub root: Expr,
    /// Offsets in characters, by id.
    pub places: Vec<u32>,
}

/// The name that an expression is, dots and all.
pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}

/// Function names of the operators.
pub(crate) mod op {
    pub const CONDITIONAL: &str = "_?_:_";
    pub const AND: &str = "_&&_";
    pub const OR: &str = "_||_";
    pub const NOT: &str = "!_";
    pub const EQUALS: &str = "_==_";
    pub const NOT_EQUALS: &str = "_!=_";
    pub const LESS: &str = "_<_";
    pub const LESS_EQUALS: &str = "_<=_";
    pub const GREATER: &str = "_>_";
    pub const GREATER_EQUALS: &str = "_>=_";
    pub const ADD: &str = "_+_";
    pub const SUBTRACT: &str = "_-_";
    pub const MULTIPLY: &str = "_*_";
    pub const DIVIDE: &str = "_/_";
    pub const MODULO: &str = "_%_";
    pub const NEGATE: &str = "-_";
    pub const INDEX: &str = "_[_]";
    pub const IN: &str = "@in";
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}
