//! The one walk over a value and its table. Features are visitors.
//!
//! The order is that of the table: a structure first, then each of its declared fields, then what is below
//! the field. Keys of maps come in their own order. What the table does not describe is not entered.

use crate::path::Path;
use crate::table::{Declarations, Field, ListShape, MapShape, Shape, Type};
use crate::value::{Map, Value};

/// A feature that a walk calls at each place.
pub trait Visitor {
    /// Only structures where something of this is declared are entered: defaults or rules.
    const LOOKS_FOR: Declarations;

    /// Before the fields of a structure.
    fn structure(&mut self, _ty: &Type, _map: &mut Map, _path: &Path<'_>) {}
    /// A present declared field, before its content.
    fn field(&mut self, _field: &Field, _value: &mut Value, _path: &Path<'_>) {}
    /// The items of a list, before their content.
    fn items(&mut self, _list: &ListShape, _items: &mut [Value]) {}
    /// The entries of a map, before their content.
    fn entries(&mut self, _map: &MapShape, _entries: &mut Map) {}
    /// After the fields of a structure.
    fn leave(&mut self, _ty: &Type, _map: &mut Map, _path: &Path<'_>) {}
}

/// Walks a whole object.
pub fn walk<V: Visitor>(ty: &Type, value: &mut Value, visitor: &mut V) {
    if let Value::Map(map) = value {
        structure(ty, map, &Path::ROOT, visitor);
    }
}

/// The fields that have something for a walk, or may have it further down.
pub(crate) fn declaring(ty: &Type) -> impl Iterator<Item = &Field> {
    ty.declaring.iter().map(|at| &ty.fields[usize::from(*at)])
}

fn structure<V: Visitor>(ty: &Type, map: &mut Map, path: &Path<'_>, visitor: &mut V) {
    if !ty.declarations.has(V::LOOKS_FOR) {
        return;
    }
    visitor.structure(ty, map, path);
    for field in declaring(ty) {
        if let Some(value) = map.get_mut(&field.name) {
            let path = path.field(&field.name);
            visitor.field(field, value, &path);
            shape(&field.shape, value, &path, visitor);
        }
    }
    visitor.leave(ty, map, path);
}

fn shape<V: Visitor>(of: &Shape, value: &mut Value, path: &Path<'_>, visitor: &mut V) {
    match (of, value) {
        (Shape::Struct(ty), value) if ty.one_of => {
            if let Some(field) = ty.alternative(value).filter(|it| has_parts(&it.shape)) {
                shape(&field.shape, value, path, visitor);
            }
        }
        (Shape::Struct(ty), Value::Map(map)) => structure(ty, map, path, visitor),
        (Shape::List(list), Value::List(items)) => {
            visitor.items(list, items);
            if has_parts(&list.item) {
                for (at, item) in items.iter_mut().enumerate() {
                    shape(&list.item, item, &path.index(at), visitor);
                }
            }
        }
        (Shape::Map(map), Value::Map(entries)) => {
            visitor.entries(map, entries);
            if has_parts(&map.value) {
                for (key, value) in entries.iter_mut() {
                    shape(&map.value, value, &path.key(key), visitor);
                }
            }
        }
        _ => {}
    }
}

fn has_parts(shape: &Shape) -> bool {
    !matches!(shape, Shape::Scalar(_))
}
