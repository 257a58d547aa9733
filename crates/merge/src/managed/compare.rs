//! The comparison of two states of an object, field by field.
//!
//! It is one walk over table, old and new state together. It enters structures and granular maps, matches sets and map
//! lists item by item, and treats everything else as a leaf. A structure, map or list that is empty on both sides is a
//! leaf, too.
//!
//! A new structure, map or list is in the set itself (`"."`), beside its fields. So an optional structure has a `"."`
//! when an object is created, and a structure that is always written has none: a new object is compared with its type's
//! zero value, which already has the latter.
//!
//! Invariant: a path is in `taken` or in `removed`, never in both.

use super::items::{AmbiguousItems, keyed};
use super::{Element, FieldSet};
use crate::json_patch::same;
use schema::decode;
use schema::table::{Field, Flags, ListKind, ListShape, Scalar, Shape, Text, Type};
use schema::{Map, Value};
use std::cmp::Ordering;

/// The changes of a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Added, or given another value.
    pub taken: FieldSet,
    pub removed: FieldSet,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.removed.is_empty()
    }

    /// Removes changes at and below these paths.
    pub fn exclude(&mut self, paths: &FieldSet) {
        self.taken.subtract_below(paths);
        self.removed.subtract_below(paths);
    }

    fn push(&mut self, below: Changes, element: impl FnOnce() -> Element) {
        let Changes { taken, removed } = below;
        match (taken.is_empty(), removed.is_empty()) {
            (true, true) => {}
            (false, true) => self.taken.push(element(), taken),
            (true, false) => self.removed.push(element(), removed),
            (false, false) => {
                let element = element();
                self.taken.push(element.clone(), taken);
                self.removed.push(element, removed);
            }
        }
    }

    /// Makes room where everything is going to be new.
    fn expect(&mut self, old: Side<'_>, new: Side<'_>) {
        if let (Side::Absent, Side::Here(Value::Map(map))) = (old, new) {
            self.taken.reserve(map.len());
        }
    }

    /// Whether this very place came or went.
    fn mark(&mut self, old: Side<'_>, new: Side<'_>, equal: bool) {
        match (old, new) {
            (Side::Absent, _) => self.taken.member = true,
            (_, Side::Absent) => self.removed.member = true,
            _ => self.taken.member = !equal,
        }
    }
}

/// The changes from `old` to `new`; without an old object, the changes of its creation.
pub fn compare(ty: &Type, old: Option<&Value>, new: &Value) -> Result<Changes, AmbiguousItems> {
    let mut changes = Changes::default();
    structure(ty, old.map_or(Side::Zero, Side::Here), Side::Here(new), &mut changes)?;
    // the object itself has no path
    changes.taken.member = false;
    changes.removed.member = false;
    Ok(changes)
}

/// One of the two values that are compared.
#[derive(Clone, Copy)]
pub(super) enum Side<'a> {
    Absent,
    /// The zero value of the shape at hand.
    Zero,
    Here(&'a Value),
}

static NULL: Value = Value::Null;

impl<'a> Side<'a> {
    fn entries(self) -> impl Iterator<Item = (&'a str, Side<'a>)> {
        let map = if let Side::Here(Value::Map(map)) = self { Some(map) } else { None };
        map.into_iter().flat_map(Map::iter).map(|(name, value)| (name, Side::Here(value)))
    }

    fn items(self) -> &'a [Value] {
        if let Side::Here(Value::List(items)) = self { items } else { &[] }
    }

    fn is_map(self) -> bool {
        matches!(self, Side::Here(Value::Map(_)))
    }

    fn is_scalar_or_list(self) -> bool {
        !matches!(self, Side::Absent | Side::Zero | Side::Here(Value::Null | Value::Map(_)))
    }

    /// No parts to enter; a zero value has none unless it is a structure.
    fn is_empty(self) -> bool {
        match self {
            Side::Absent | Side::Zero | Side::Here(Value::Null) => true,
            Side::Here(Value::Map(map)) => map.is_empty(),
            Side::Here(Value::List(items)) => items.is_empty(),
            Side::Here(_) => false,
        }
    }

    fn is_null(self) -> bool {
        matches!(self, Side::Here(Value::Null))
    }
}

/// The zero value of a field, if it is always written.
pub(super) fn zero_side(field: &Field) -> Option<Side<'static>> {
    if !field.stands() {
        return None;
    }
    Some(match &field.shape {
        _ if field.is(Flags::NILABLE) => Side::Here(&NULL),
        Shape::Struct(_) => Side::Zero,
        Shape::Scalar(scalar) if !scalar.is_null_when_zero() => Side::Zero,
        _ => Side::Here(&NULL),
    })
}

fn zero_entries(ty: &Type) -> impl Iterator<Item = (&str, Side<'_>)> {
    ty.by_name.iter().filter_map(|at| {
        let field = &ty.fields[usize::from(*at)];
        Some((&*field.name, zero_side(field)?))
    })
}

fn value(shape: &Shape, old: Side<'_>, new: Side<'_>, out: &mut Changes) -> Result<(), AmbiguousItems> {
    // most of an object is as it was, and seeing that is far cheaper than matching its parts
    if let (Side::Here(old), Side::Here(new)) = (old, new)
        && old == new
        && !matches!(shape, Shape::List(_))
    {
        return Ok(());
    }
    match shape {
        Shape::Scalar(Scalar::Any) => {
            deduced(old, new, out);
            Ok(())
        }
        Shape::Struct(ty) if ty.one_of => {
            deduced(old, new, out);
            Ok(())
        }
        Shape::Struct(ty) if !ty.atomic => structure(ty, old, new, out),
        Shape::Map(map) if !map.atomic => {
            if old.is_empty() && new.is_empty() {
                out.mark(old, new, old.is_null() == new.is_null());
                return Ok(());
            }
            out.expect(old, new);
            joint(old.entries(), new.entries(), |name, old, new| {
                let mut below = Changes::default();
                value(&map.value, old, new, &mut below)?;
                out.push(below, || Element::Field(Text::Owned(name.to_owned())));
                Ok(())
            })?;
            out.mark(old, new, true);
            Ok(())
        }
        Shape::List(list) if list.kind != ListKind::Atomic => items(list, old, new, out),
        shape => {
            if let Side::Here(new) = new {
                unambiguous(shape, new)?;
            }
            let equal = match (old, new) {
                (Side::Here(old), Side::Here(new)) => same(old, new),
                (Side::Zero, Side::Here(new)) => decode::zero(shape) == *new,
                _ => false,
            };
            out.mark(old, new, equal);
            Ok(())
        }
    }
}

/// Checks a value that is owned as a whole for duplicate items.
pub(super) fn unambiguous(shape: &Shape, held: &Value) -> Result<(), AmbiguousItems> {
    match (shape, held) {
        (Shape::Struct(ty), Value::Map(map)) => {
            let mut declared = ty.in_order();
            map.iter().try_for_each(|(name, held)| match declared.find(name) {
                Some((_, field)) => unambiguous(&field.shape, held),
                None => Ok(()),
            })
        }
        (Shape::Map(map), Value::Map(entries)) if !matches!(map.value, Shape::Scalar(_)) => {
            entries.iter().try_for_each(|(_, held)| unambiguous(&map.value, held))
        }
        (Shape::List(list), Value::List(items)) => {
            if list.kind != ListKind::Atomic {
                keyed(list, items)?;
            }
            if matches!(list.item, Shape::Scalar(_)) {
                return Ok(());
            }
            items.iter().try_for_each(|held| unambiguous(&list.item, held))
        }
        _ => Ok(()),
    }
}

fn structure(ty: &Type, old: Side<'_>, new: Side<'_>, out: &mut Changes) -> Result<(), AmbiguousItems> {
    let zero = matches!(old, Side::Zero);
    if new.is_empty() && old.is_empty() && !(zero && zero_entries(ty).next().is_some()) {
        out.mark(old, new, old.is_null() == new.is_null());
        return Ok(());
    }
    out.expect(old, new);
    let mut declared = ty.in_order();
    let mut each = |name: &str, old, new, out: &mut Changes| {
        let mut below = Changes::default();
        match declared.find(name) {
            Some((_, field)) => {
                value(&field.shape, old, new, &mut below)?;
                out.push(below, || Element::Field(field.name.clone()));
            }
            None => {
                deduced(old, new, &mut below);
                out.push(below, || Element::Field(Text::Owned(name.to_owned())));
            }
        }
        Ok(())
    };
    if zero {
        joint(zero_entries(ty), new.entries(), |name, old, new| each(name, old, new, out))?;
    } else {
        joint(old.entries(), new.entries(), |name, old, new| each(name, old, new, out))?;
    }
    out.mark(old, new, true);
    Ok(())
}

/// A value without a table: maps are granular, everything else is a leaf.
fn deduced(old: Side<'_>, new: Side<'_>, out: &mut Changes) {
    if old.is_map() || new.is_map() {
        let _: Result<(), ()> = joint(old.entries(), new.entries(), |name, old, new| {
            let mut below = Changes::default();
            deduced(old, new, &mut below);
            out.push(below, || Element::Field(Text::Owned(name.to_owned())));
            Ok(())
        });
        let replaced = old.is_scalar_or_list() || new.is_scalar_or_list();
        let null_or_empty = old.is_empty() && new.is_empty() && old.is_null() != new.is_null();
        return out.mark(old, new, !replaced && !null_or_empty);
    }
    let equal = matches!((old, new), (Side::Here(old), Side::Here(new)) if same(old, new));
    out.mark(old, new, equal);
}

fn items(list: &ListShape, old: Side<'_>, new: Side<'_>, out: &mut Changes) -> Result<(), AmbiguousItems> {
    if old.is_empty() && new.is_empty() {
        out.mark(old, new, old.is_null() == new.is_null());
        return Ok(());
    }
    let here = |(element, item)| (element, Side::Here(item));
    let olds = keyed(list, old.items())?.into_iter().map(here);
    let news = keyed(list, new.items())?.into_iter().map(here);
    joint(olds, news, |element, old, new| {
        let mut below = Changes::default();
        value(&list.item, old, new, &mut below)?;
        out.push(below, || element);
        Ok(())
    })?;
    out.mark(old, new, true);
    Ok(())
}

/// Runs over two sorted sequences together.
fn joint<'a, K: Ord, E>(
    old: impl Iterator<Item = (K, Side<'a>)>,
    new: impl Iterator<Item = (K, Side<'a>)>,
    mut each: impl FnMut(K, Side<'a>, Side<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut olds, mut news) = (old.peekable(), new.peekable());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (Some(old), Some(new)) => old.0.cmp(&new.0),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(()),
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { news.next() } else { None };
        match (old, new) {
            (Some((key, old)), Some((_, new))) => each(key, old, new)?,
            (Some((key, old)), None) => each(key, old, Side::Absent)?,
            (None, Some((key, new))) => each(key, Side::Absent, new)?,
            (None, None) => return Ok(()),
        }
    }
}
