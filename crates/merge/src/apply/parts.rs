//! The parts of a value that managers can own separately, by its table.

use schema::table::{ListKind, ListShape, Scalar, Shape, Type};

/// The parts of a value.
#[derive(Clone, Copy)]
pub(super) enum Parts<'t> {
    Fields(&'t Type),
    Entries(&'t Shape),
    Items(&'t ListShape),
    /// No table declares the value: members of maps are parts.
    Undeclared,
    /// The value is owned as a whole.
    None,
}

impl<'t> Parts<'t> {
    pub(super) fn of(shape: Option<&'t Shape>) -> Self {
        match shape {
            None => Parts::Undeclared,
            Some(Shape::Scalar(Scalar::Any)) => Parts::Undeclared,
            Some(Shape::Struct(ty)) if ty.one_of => Parts::Undeclared,
            Some(Shape::Struct(ty)) if !ty.atomic => Parts::Fields(ty),
            Some(Shape::Map(map)) if !map.atomic => Parts::Entries(&map.value),
            Some(Shape::List(list)) if list.kind != ListKind::Atomic => Parts::Items(list),
            Some(_) => Parts::None,
        }
    }

    /// The shape of a member; `None` if no table declares it.
    pub(super) fn member(self, name: &str) -> Option<&'t Shape> {
        match self {
            Parts::Fields(ty) => ty.field(name).map(|(_, field)| &field.shape),
            Parts::Entries(shape) => Some(shape),
            _ => None,
        }
    }
}
