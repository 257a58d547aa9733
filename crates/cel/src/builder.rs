//! The builder of syntax trees, which the parser and the macros share.

use crate::expr::{Expr, Id, Kind};
use crate::source::Source;

/// Creates expressions with their ids and positions, and reports issues at positions.
pub(crate) struct ExprBuilder<'s, 't> {
    pub source: &'s mut Source<'t>,
    /// Offsets by id.
    pub places: Vec<u32>,
}

impl ExprBuilder<'_, '_> {
    /// A new id for an offset.
    pub fn id(&mut self, at: usize) -> Id {
        self.places.push(at as u32);
        (self.places.len() - 1) as Id
    }

    pub fn place(&self, id: Id) -> usize {
        self.places[id as usize] as usize
    }

    pub fn expr(&mut self, at: usize, kind: Kind) -> Expr {
        Expr { id: self.id(at), kind }
    }

    /// Reports an issue at an offset, and continues with an error expression.
    pub fn broken(&mut self, at: usize, why: impl Into<String>) -> Expr {
        let location = self.source.location(at);
        self.source.report(location, why);
        self.expr(at, Kind::Broken)
    }
}
