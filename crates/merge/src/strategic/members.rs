//! The declarations of a map's members that a strategic merge reads from the table.

use schema::table::{Patch, Scalar, Shape, Type};

/// The declarations of the members of a map.
#[derive(Clone, Copy)]
pub(super) enum Members<'t> {
    Fields(&'t Type),
    /// Keys to values of one shape.
    Entries(&'t Shape),
    /// A raw object: only members that are neither maps nor lists can be merged.
    Raw,
    /// No table declares the members.
    Undeclared,
}

/// The declaration of one member.
#[derive(Clone, Copy)]
pub(super) struct Member<'t> {
    pub(super) shape: Option<&'t Shape>,
    pub(super) patch: &'t Patch,
}

impl<'t> Members<'t> {
    pub(super) fn of(shape: Option<&'t Shape>) -> Self {
        match shape {
            Some(Shape::Struct(ty)) if ty.one_of => Members::Undeclared,
            Some(Shape::Struct(ty)) => Members::Fields(ty),
            Some(Shape::Map(map)) => Members::Entries(&map.value),
            Some(Shape::Scalar(Scalar::Object)) => Members::Raw,
            _ => Members::Undeclared,
        }
    }

    pub(super) fn get(self, name: &str) -> Member<'t> {
        match self {
            Members::Fields(ty) => match ty.field(name) {
                Some((_, field)) => Member { shape: Some(&field.shape), patch: &field.patch },
                None => Member::UNDECLARED,
            },
            Members::Entries(shape) => Member { shape: Some(shape), patch: &Patch::Replace },
            Members::Raw | Members::Undeclared => Member::UNDECLARED,
        }
    }
}

impl<'t> Member<'t> {
    const UNDECLARED: Member<'static> = Member { shape: None, patch: &Patch::Replace };

    /// Whether the member is a single value of one type.
    pub(super) fn is_scalar(self) -> bool {
        matches!(self.shape, Some(Shape::Scalar(scalar)) if !matches!(scalar, Scalar::Object | Scalar::Any | Scalar::Fields))
    }

    /// The rule of a list that merges; `None` for any other member.
    pub(super) fn list_merge(self) -> Option<ListMerge<'t>> {
        match (self.shape, self.patch) {
            (Some(Shape::List(list)), Patch::Merge { key, .. }) => Some(ListMerge { item: &list.item, key }),
            _ => None,
        }
    }
}

/// The rule by which a list merges.
#[derive(Clone, Copy)]
pub(super) struct ListMerge<'t> {
    /// The shape of the items.
    pub(super) item: &'t Shape,
    /// The merge key of the items; empty for scalars.
    pub(super) key: &'t str,
}

impl<'t> ListMerge<'t> {
    /// The declaration of an item as a member.
    pub(super) fn member(self) -> Member<'t> {
        Member { shape: Some(self.item), patch: &Patch::Replace }
    }
}
