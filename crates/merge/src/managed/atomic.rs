//! Ownership of atomic values: the owner of a part owns the whole value.
//!
//! ```text
//! entry     {"f:spec": {".": {}, "f:a": {}, "f:b": {}}}
//! schema    spec becomes atomic
//! entry     {"f:spec": {}}
//! ```
//!
//! An entry has parts of an atomic value if the value was granular when the entry was written: the schema of a custom
//! resource changes, and built-in types change between releases. A value that becomes granular keeps its owners.

use super::{Element, FieldSet, ManagedFieldsError};
use schema::source::{Json, Source, Token};
use schema::table::{ListKind, Shape, Type};

/// The ownership of a value, by its table.
#[derive(Clone, Copy)]
enum Node<'t> {
    Fields(&'t Type),
    Entries(&'t Shape),
    Items(&'t Shape),
    Atomic,
    /// A scalar, or a value without a table.
    Undeclared,
}

impl<'t> Node<'t> {
    fn of(shape: &'t Shape) -> Self {
        match shape {
            Shape::Scalar(_) => Node::Undeclared,
            Shape::Struct(ty) if ty.one_of => Node::Undeclared,
            // a map of values of any type
            Shape::Struct(ty) if ty.fields.is_empty() => Node::Undeclared,
            Shape::Struct(ty) if ty.atomic => Node::Atomic,
            Shape::Struct(ty) => Node::Fields(ty),
            Shape::Map(map) if map.atomic => Node::Atomic,
            Shape::Map(map) => Node::Entries(&map.value),
            Shape::List(list) if list.kind == ListKind::Atomic => Node::Atomic,
            Shape::List(list) => Node::Items(&list.item),
        }
    }

    /// The value of a field.
    fn field(self, name: &str) -> Self {
        match self {
            Node::Fields(ty) => ty.field(name).map_or(Node::Undeclared, |(_, field)| Node::of(&field.shape)),
            Node::Entries(value) => Node::of(value),
            _ => Node::Undeclared,
        }
    }

    /// The value of a list item.
    fn item(self) -> Self {
        match self {
            Node::Items(item) => Node::of(item),
            _ => Node::Undeclared,
        }
    }
}

/// Whether a set has parts of an atomic value.
pub(super) fn has_parts(ty: &Type, set: &FieldSet) -> bool {
    set_has_parts(Node::Fields(ty), set)
}

fn set_has_parts(node: Node<'_>, set: &FieldSet) -> bool {
    match node {
        Node::Undeclared => false,
        Node::Atomic => set.has_children(),
        _ => set.children().any(|(element, below)| set_has_parts(step(node, element), below)),
    }
}

/// Whether the set of a text has parts of an atomic value. The text is one that [`FieldSet::to_text`] wrote.
pub(super) fn text_has_parts(ty: &Type, text: &str) -> Result<bool, ManagedFieldsError> {
    let mut json = Json::canonical(text);
    match json.value()? {
        Token::Map => branches_have_parts(Node::Fields(ty), &mut json),
        _ => Err(ManagedFieldsError::NotAnObject),
    }
}

fn branches_have_parts(node: Node<'_>, json: &mut Json<'_>) -> Result<bool, ManagedFieldsError> {
    while let Some(key) = json.key()? {
        let below = match (node, key.strip_prefix("f:")) {
            (Node::Atomic, _) if key != "." => return Ok(true),
            (_, Some(name)) => node.field(name),
            (_, None) if key == "." => Node::Undeclared,
            (_, None) => node.item(),
        };
        let token = json.value()?;
        match (below, &token) {
            (Node::Undeclared, _) => json.skip(&token)?,
            (_, Token::Map) if branches_have_parts(below, json)? => return Ok(true),
            (_, Token::Map) => {}
            _ => json.skip(&token)?,
        }
    }
    Ok(false)
}

/// Replaces the parts of atomic values by these values.
pub(super) fn join_parts(ty: &Type, set: &mut FieldSet) {
    join_below(Node::Fields(ty), set);
}

fn join_below(node: Node<'_>, set: &mut FieldSet) {
    match node {
        Node::Undeclared => {}
        Node::Atomic if set.has_children() => *set = FieldSet::leaf(),
        Node::Atomic => {}
        _ => set.children_mut().for_each(|(element, below)| join_below(step(node, element), below)),
    }
}

fn step<'t>(node: Node<'t>, element: &Element) -> Node<'t> {
    match element {
        Element::Field(name) => node.field(name),
        _ => node.item(),
    }
}
