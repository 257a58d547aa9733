//! The managed-fields entry of a creation, as text.
//!
//! It is what [`compare`](super::compare) gives for an object that did not exist, less what its creator does
//! not own. All of it is new and has no owner yet, so no set is needed: the walk writes the text
//! as it goes, and takes back the name of what turns out to bring nothing.

use super::compare::{Side, unambiguous, zero_side};
use super::items::{AmbiguousItems, keyed};
use super::{Element, FieldSet};
use crate::json_patch::same;
use schema::table::{ListKind, ListShape, Scalar, Shape, Type};
use schema::{Map, Value, decode};

/// The text of the fields that the creation of an object brings, without those in `never` and all below them
/// and without those in `unowned`; `None` when nothing is left.
pub(super) fn brought(
    ty: &Type,
    object: &Value,
    never: &FieldSet,
    unowned: &FieldSet,
) -> Result<Option<String>, AmbiguousItems> {
    let Value::Map(map) = object else { return Ok(None) };
    let mut walk = FieldsWriter { out: Vec::with_capacity(4096) };
    let less = Exclusions { never: Some(never), unowned: Some(unowned) };
    // the object itself has no path
    let open = walk.open(false);
    walk.fields(&open, ty, true, map, less)?;
    Ok(walk.close(&open).then(|| String::from_utf8(walk.out).unwrap_or_default()))
}

/// The excluded fields below the current place of the walk.
#[derive(Clone, Copy)]
struct Exclusions<'s> {
    never: Option<&'s FieldSet>,
    unowned: Option<&'s FieldSet>,
}

impl<'s> Exclusions<'s> {
    fn after(self, step: impl Fn(&'s FieldSet) -> Option<&'s FieldSet>) -> Self {
        Exclusions { never: self.never.and_then(&step), unowned: self.unowned.and_then(&step) }
    }

    fn below_field(self, name: &str) -> Self {
        self.after(|set| set.below_field(name))
    }

    /// Whether the very place where the walk is belongs to the creator.
    fn owns(self, old: Side<'_>, equal: bool) -> bool {
        (matches!(old, Side::Absent) || !equal) && !self.unowned.is_some_and(|set| set.member)
    }
}

/// A set whose branches are being written.
struct OpenObject {
    at: usize,
    member: bool,
    branches: usize,
}

struct FieldsWriter {
    out: Vec<u8>,
}

impl FieldsWriter {
    fn open(&mut self, member: bool) -> OpenObject {
        let at = self.out.len();
        self.out.extend_from_slice(if member { b"{\".\":{}" } else { b"{" });
        OpenObject { at, member, branches: self.out.len() }
    }

    /// Ends a set; removes an empty set and returns false.
    fn close(&mut self, open: &OpenObject) -> bool {
        if self.out.len() > open.branches {
            self.out.push(b'}');
            return true;
        }
        self.out.truncate(open.at);
        self.leaf(open.member)
    }

    fn leaf(&mut self, member: bool) -> bool {
        if member {
            self.out.extend_from_slice(b"{}");
        }
        member
    }

    /// Writes a branch, unless it is empty.
    fn branch(
        &mut self,
        of: &OpenObject,
        step: impl FnOnce(&mut Vec<u8>),
        less: Exclusions<'_>,
        below: impl FnOnce(&mut Self) -> Result<bool, AmbiguousItems>,
    ) -> Result<(), AmbiguousItems> {
        let start = self.out.len();
        if of.member || start > of.branches {
            self.out.push(b',');
        }
        step(&mut self.out);
        self.out.push(b':');
        // items that are never owned must still be unique
        if !below(self)? || less.never.is_some_and(|set| set.member) {
            self.out.truncate(start);
        }
        Ok(())
    }

    /// The fields of a structure that was not there, or of one whose zero value was.
    fn fields(
        &mut self,
        open: &OpenObject,
        ty: &Type,
        zero: bool,
        map: &Map,
        less: Exclusions<'_>,
    ) -> Result<(), AmbiguousItems> {
        let mut declared = ty.in_order();
        for (name, held) in map.iter() {
            let less = less.below_field(name);
            let field = declared.find(name).map(|(_, field)| field);
            self.branch(
                open,
                |out| Element::write_field(name, out),
                less,
                |walk| match field {
                    Some(field) => {
                        let old = if zero { zero_side(field) } else { None };
                        walk.value(&field.shape, old.unwrap_or(Side::Absent), held, less)
                    }
                    None => walk.deduced(Side::Absent, held, less),
                },
            )?;
        }
        Ok(())
    }

    /// `old` is nothing, a zero value, or null.
    fn value(
        &mut self,
        shape: &Shape,
        old: Side<'_>,
        new: &Value,
        less: Exclusions<'_>,
    ) -> Result<bool, AmbiguousItems> {
        let was_null = matches!(old, Side::Here(Value::Null));
        match shape {
            Shape::Scalar(Scalar::Any) => self.deduced(old, new, less),
            Shape::Struct(ty) if ty.one_of => self.deduced(old, new, less),
            Shape::Struct(ty) if !ty.atomic => {
                let zero = matches!(old, Side::Zero);
                if is_empty(new) && (!zero || ty.standing.is_empty()) {
                    return Ok(self.leaf(less.owns(old, was_null == new.is_null())));
                }
                let open = self.open(less.owns(old, true));
                if let Value::Map(map) = new {
                    self.fields(&open, ty, zero, map, less)?;
                }
                Ok(self.close(&open))
            }
            Shape::Map(_) | Shape::List(_) if !is_atomic(shape) => {
                if is_empty(new) {
                    return Ok(self.leaf(less.owns(old, was_null == new.is_null())));
                }
                let open = self.open(less.owns(old, true));
                match (shape, new) {
                    (Shape::Map(map), Value::Map(entries)) => {
                        self.entries(&open, entries, less, |walk, held, less| {
                            walk.value(&map.value, Side::Absent, held, less)
                        })?;
                    }
                    (Shape::List(list), Value::List(items)) => self.items(&open, list, items, less)?,
                    _ => {}
                }
                Ok(self.close(&open))
            }
            shape => {
                unambiguous(shape, new)?;
                let equal = match old {
                    Side::Absent => false,
                    Side::Zero => decode::zero(shape) == *new,
                    Side::Here(old) => same(old, new),
                };
                Ok(self.leaf(less.owns(old, equal)))
            }
        }
    }

    fn entries(
        &mut self,
        open: &OpenObject,
        entries: &Map,
        less: Exclusions<'_>,
        mut below: impl FnMut(&mut Self, &Value, Exclusions<'_>) -> Result<bool, AmbiguousItems>,
    ) -> Result<(), AmbiguousItems> {
        for (name, held) in entries.iter() {
            let less = less.below_field(name);
            let step = |out: &mut Vec<u8>| Element::write_field(name, out);
            self.branch(open, step, less, |walk| below(walk, held, less))?;
        }
        Ok(())
    }

    fn items(
        &mut self,
        open: &OpenObject,
        list: &ListShape,
        items: &[Value],
        less: Exclusions<'_>,
    ) -> Result<(), AmbiguousItems> {
        for (element, held) in keyed(list, items)? {
            let less = less.after(|set| set.below(&element));
            let step = |out: &mut Vec<u8>| element.write(out);
            self.branch(open, step, less, |walk| walk.value(&list.item, Side::Absent, held, less))?;
        }
        Ok(())
    }

    /// A value without a table: maps are granular, everything else is a leaf.
    fn deduced(&mut self, old: Side<'_>, new: &Value, less: Exclusions<'_>) -> Result<bool, AmbiguousItems> {
        let was_null = matches!(old, Side::Here(Value::Null));
        let Value::Map(map) = new else {
            return Ok(self.leaf(less.owns(old, was_null && new.is_null())));
        };
        let open = self.open(less.owns(old, !(was_null && map.is_empty())));
        self.entries(&open, map, less, |walk, held, less| walk.deduced(Side::Absent, held, less))?;
        Ok(self.close(&open))
    }
}

fn is_atomic(shape: &Shape) -> bool {
    match shape {
        Shape::Map(map) => map.atomic,
        Shape::List(list) => list.kind == ListKind::Atomic,
        Shape::Struct(ty) => ty.atomic,
        Shape::Scalar(_) => true,
    }
}

/// Without parts to enter.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Map(map) => map.is_empty(),
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}
