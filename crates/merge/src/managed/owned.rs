//! The fields that an object names, as an apply owns them.
//!
//! The set has all leaves, every item of sets and map lists, and every key of a map.
//! A structure is in it only when it is empty, an empty list not at all.

use super::items::{AmbiguousItems, keyed};
use super::{Element, FieldSet};
use schema::table::{ListKind, Scalar, Shape, Text, Type};
use schema::{Map, Value};

/// The set of fields that an object of this type names.
pub fn owned(ty: &Type, object: &Value) -> Result<FieldSet, AmbiguousItems> {
    let mut set = FieldSet::new();
    if let Value::Map(map) = object {
        structure(ty, map, &mut set)?;
    }
    Ok(set)
}

fn structure(ty: &Type, map: &Map, out: &mut FieldSet) -> Result<(), AmbiguousItems> {
    for (name, held) in map.iter() {
        let mut below = FieldSet::new();
        let name = match ty.field(name) {
            Some((_, field)) => {
                value(&field.shape, held, &mut below)?;
                field.name.clone()
            }
            None => {
                deduced(held, &mut below);
                // a key of an open map, whatever is below
                below.member = true;
                Text::Owned(name.to_owned())
            }
        };
        below.member |= is_hollow(held);
        out.push(Element::Field(name), below);
    }
    Ok(())
}

fn is_hollow(value: &Value) -> bool {
    value.is_null() || value.as_map().is_some_and(Map::is_empty)
}

fn value(shape: &Shape, held: &Value, out: &mut FieldSet) -> Result<(), AmbiguousItems> {
    match (shape, held) {
        (Shape::Scalar(Scalar::Any), held) => {
            deduced(held, out);
            Ok(())
        }
        (Shape::Struct(ty), held) if ty.one_of => {
            deduced(held, out);
            Ok(())
        }
        (Shape::Struct(ty), Value::Map(map)) if !ty.atomic => structure(ty, map, out),
        (Shape::Map(entries), Value::Map(map)) if !entries.atomic => {
            for (name, held) in map.iter() {
                let mut below = FieldSet::new();
                value(&entries.value, held, &mut below)?;
                below.member = true;
                out.push(Element::Field(Text::Owned(name.to_owned())), below);
            }
            Ok(())
        }
        (Shape::List(list), Value::List(items)) if list.kind != ListKind::Atomic => {
            for (element, item) in keyed(list, items)? {
                let mut below = FieldSet::new();
                value(&list.item, item, &mut below)?;
                below.member = true;
                out.push(element, below);
            }
            Ok(())
        }
        _ => {
            out.member = true;
            Ok(())
        }
    }
}

/// A value without a table: maps are granular, everything else is a leaf.
fn deduced(held: &Value, out: &mut FieldSet) {
    let Value::Map(map) = held else {
        out.member = true;
        return;
    };
    for (name, held) in map.iter() {
        let mut below = FieldSet::new();
        deduced(held, &mut below);
        below.member = true;
        out.push(Element::Field(Text::Owned(name.to_owned())), below);
    }
}
