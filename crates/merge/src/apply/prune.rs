//! Removal of fields that a manager applied before, no longer applies, and that have no other owner.
//!
//! Sets of paths are compared with their structures filled in: an owner of `spec.replicas` also owns `spec`. A path
//! is removed if the manager's last set has it, no set has it now, and no owned path is below it. Removing an item or
//! a key removes everything below it, and a map or list that becomes empty becomes `null`.
//!
//! Entries in other versions of the API are compared in their own version, if the object converts to it.

use super::parts::Parts;
use super::write::ApplyWrite;
use crate::managed::{
    AmbiguousItems, ConversionResult, Element, Entry, FieldSet, ManagedFields, Steps, owned,
};
use schema::table::{Ref, Shape, Type};
use schema::{Map, Value, decode};
use std::collections::BTreeMap;

/// Removes the fields that the manager gave up from the merged object.
pub(super) fn prune(
    write: &ApplyWrite<'_>,
    merged: Value,
    last: &Entry,
    managed: &ManagedFields,
) -> Result<Value, AmbiguousItems> {
    if last.fields.is_empty() || nothing_given_up(write, last, managed) {
        return Ok(merged);
    }
    let version = &*last.api_version;
    if version == write.api_version {
        return prune_in_version(write, (write.ty, write.ty, version), merged, last, managed);
    }
    match convert_to(write, version, &merged) {
        // a field of a custom resource has one path in all versions, and may be undeclared in others
        Conversion::Converted(ty, _) if write.ty.loose => {
            prune_in_version(write, (write.ty, &ty, version), merged, last, managed)
        }
        Conversion::Converted(ty, there) => {
            let there = prune_in_version(write, (&ty, &ty, version), there, last, managed)?;
            match convert_to(write, write.api_version, &there) {
                Conversion::Converted(_, back) => Ok(back),
                _ => Ok(merged),
            }
        }
        // without a conversion, no field is known to be given up
        Conversion::Gone | Conversion::Same => Ok(merged),
    }
}

/// Whether every field of the last entry still has an owner in the version of the request.
fn nothing_given_up(write: &ApplyWrite<'_>, last: &Entry, managed: &ManagedFields) -> bool {
    if last.api_version != write.api_version {
        return false;
    }
    // the manager's new entry is the last one, and mostly has the same fields as before
    if managed.entries.last().is_some_and(|own| last.fields.is_within(&own.fields)) {
        return true;
    }
    let mut given_up = filled(Parts::Fields(write.ty), &last.fields);
    let same = managed.entries.iter().filter(|entry| entry.api_version == write.api_version);
    let claims = same.map(|entry| filled(Parts::Fields(write.ty), &entry.fields));
    given_up.subtract(&FieldSet::unite_all(claims.collect()));
    given_up.is_empty()
}

/// An object converted to another version.
enum Conversion {
    Converted(Ref<Type>, Value),
    /// Paths are the same in that version.
    Same,
    /// The version is no longer served.
    Gone,
}

fn convert_to(write: &ApplyWrite<'_>, version: &str, object: &Value) -> Conversion {
    let Some(convert) = write.convert else { return Conversion::Same };
    match convert(version, None, object) {
        ConversionResult::Unknown => Conversion::Same,
        ConversionResult::Gone => Conversion::Gone,
        ConversionResult::Converted { ty, new, .. } => {
            let new = converted_form(&ty, new);
            Conversion::Converted(ty, new)
        }
    }
}

/// What a conversion between structures leaves: their required fields have values, and so count as kept.
fn converted_form(ty: &Type, object: Value) -> Value {
    if ty.loose {
        return object;
    }
    match decode::tree(object.clone(), ty) {
        Ok(decoded) => decoded.value,
        Err(_) => object,
    }
}

/// Prunes the object in the version in which the manager applied last, given the type of the object and the type that
/// declares fields in that version.
fn prune_in_version(
    write: &ApplyWrite<'_>,
    (ty, declared, version): (&Type, &Type, &str),
    merged: Value,
    last: &Entry,
    managed: &ManagedFields,
) -> Result<Value, AmbiguousItems> {
    let (fields, declared) = (Parts::Fields(ty), Parts::Fields(declared));
    let mut claims: BTreeMap<&str, Vec<FieldSet>> = BTreeMap::new();
    for entry in &managed.entries {
        claims.entry(&entry.api_version).or_default().push(FieldSet::clone(&entry.fields));
    }
    let mut here = FieldSet::unite_all(claims.remove(version).unwrap_or_default());
    let mut elsewhere = Vec::new();
    for (version, claims) in claims {
        let claim = FieldSet::unite_all(claims);
        match convert_to(write, version, &merged) {
            Conversion::Converted(..) if ty.loose => here.unite(claim),
            Conversion::Converted(ty, there) => elsewhere.push((version, ty, there, claim)),
            Conversion::Same => here.unite(claim),
            Conversion::Gone => {}
        }
    }
    let last = filled(declared, &last.fields);
    let all = filled(declared, &owned(ty, &merged)?);
    let mut left = without(fields, merged.clone(), &last)?;
    left = restore((ty, declared), &merged, &all, &left, &here)?;
    for (claimed_in, ty_there, merged_there, claim) in elsewhere {
        // the claims of the other version are restored in that version, then converted back
        let Conversion::Converted(_, left_there) = convert_to(write, claimed_in, &left) else { continue };
        let declared_there = Parts::Fields(&ty_there);
        let all_there = filled(declared_there, &owned(&ty_there, &merged_there)?);
        let more = restore((&ty_there, declared_there), &merged_there, &all_there, &left_there, &claim)?;
        if let Conversion::Converted(_, back) = convert_to(write, version, &more) {
            left = back;
        }
    }
    let mut gone = all;
    gone.subtract(&filled(declared, &owned(ty, &left)?));
    without(fields, merged, &gone.intersection(&last))
}

/// The remaining object with the claimed fields of the merged one.
fn restore(
    (ty, declared): (&Type, Parts<'_>),
    merged: &Value,
    all: &FieldSet,
    left: &Value,
    claim: &FieldSet,
) -> Result<Value, AmbiguousItems> {
    let mut gone = all.clone();
    gone.subtract(&filled(declared, &owned(ty, left)?));
    gone.subtract(&filled(declared, claim));
    without(Parts::Fields(ty), merged.clone(), &gone)
}

/// The set, with every declared field above its paths added.
fn filled(parts: Parts<'_>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::new();
    out.member = set.member;
    for (element, below) in set.children() {
        let (shape, named) = match (element, parts) {
            (Element::Field(name), Parts::Fields(ty)) => {
                let field = ty.field(name);
                (field.map(|(_, field)| &field.shape), field.is_some())
            }
            (Element::Field(name), parts) => (parts.member(name), false),
            (_, Parts::Items(list)) => (Some(&list.item), false),
            _ => (None, false),
        };
        let mut below = filled(Parts::of(shape), below);
        below.member |= named;
        out.push(element.clone(), below);
    }
    out
}

/// The value without the paths of a set and everything below them.
fn without(parts: Parts<'_>, value: Value, set: &FieldSet) -> Result<Value, AmbiguousItems> {
    match (parts, value) {
        (Parts::None, value) => Ok(value),
        (Parts::Items(list), Value::List(items)) if !items.is_empty() => {
            let steps = Steps::of(list);
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                match set.below(&steps.step(&item)?) {
                    Some(below) if below.member => {}
                    Some(below) => kept.push(inside(Some(&list.item), item, below)?),
                    None => kept.push(item),
                }
            }
            Ok(if kept.is_empty() { Value::Null } else { Value::List(kept) })
        }
        (parts @ (Parts::Fields(_) | Parts::Entries(_) | Parts::Undeclared), Value::Map(map))
            if !map.is_empty() =>
        {
            let mut kept = Vec::with_capacity(map.len());
            for (name, held) in map {
                match set.below_field(&name) {
                    Some(below) if below.member => {}
                    Some(below) => {
                        let held = inside(parts.member(&name), held, below)?;
                        kept.push((name, held));
                    }
                    None => kept.push((name, held)),
                }
            }
            Ok(if kept.is_empty() { Value::Null } else { Value::Map(Map::from_unsorted(kept).0) })
        }
        (_, value) => Ok(value),
    }
}

fn inside(shape: Option<&Shape>, value: Value, below: &FieldSet) -> Result<Value, AmbiguousItems> {
    without(Parts::of(shape), value, below)
}
