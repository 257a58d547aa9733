//! Taking out what a manager applied before, names no more, and nobody else owns.
//!
//! Sets of paths are compared with structures filled in: who owns `spec.replicas` also stands for `spec`. A
//! path goes when it is in the manager's last set, nobody has it now, and no owned path keeps it. An item or
//! key that goes takes along what is below it, and a map or list that is emptied becomes `null`.
//!
//! Owners in other versions of the API are heard in their own version, where the object can be seen there.

use super::{ApplyWrite, Parts};
use crate::managed::{Ambiguous, Element, Elsewhere, Entry, FieldSet, Managed, Steps, owned};
use schema::table::{Ref, Shape, Type};
use schema::{Map, Value};
use std::collections::BTreeMap;

/// The merged object without what the manager gave up.
pub(super) fn prune(
    write: &ApplyWrite<'_>,
    merged: Value,
    last: &Entry,
    managed: &Managed,
) -> Result<Value, Ambiguous> {
    if last.fields.is_empty() || nothing_given_up(write, last, managed) {
        return Ok(merged);
    }
    if last.api_version == write.api_version {
        return pruned(write, write.ty, &last.api_version, merged, last, managed);
    }
    match seen_in(write, &last.api_version, &merged) {
        Sight::Seen(ty, there) => {
            let there = pruned(write, &ty, &last.api_version, there, last, managed)?;
            match seen_in(write, write.api_version, &there) {
                Sight::Seen(_, back) => Ok(back),
                _ => Ok(merged),
            }
        }
        // what cannot be seen cannot be said to be given up
        Sight::Gone | Sight::Same => Ok(merged),
    }
}

/// Where all owners speak of the same version, nothing goes that anyone still names.
fn nothing_given_up(write: &ApplyWrite<'_>, last: &Entry, managed: &Managed) -> bool {
    if last.api_version != write.api_version {
        return false;
    }
    // the manager's new entry is the last one, and mostly names what it named before
    if managed.entries.last().is_some_and(|own| last.fields.is_within(&own.fields)) {
        return true;
    }
    let mut given_up = filled(Parts::Fields(write.ty), &last.fields);
    let same = managed.entries.iter().filter(|entry| entry.api_version == write.api_version);
    let claims = same.map(|entry| filled(Parts::Fields(write.ty), &entry.fields));
    given_up.subtract(&FieldSet::unite_all(claims.collect()));
    given_up.is_empty()
}

/// An object in another version.
enum Sight {
    Seen(Ref<Type>, Value),
    /// Paths are taken to be the same there.
    Same,
    Gone,
}

fn seen_in(write: &ApplyWrite<'_>, version: &str, object: &Value) -> Sight {
    let Some(convert) = write.convert else { return Sight::Same };
    match convert(version, None, object) {
        Elsewhere::Unknown => Sight::Same,
        Elsewhere::Gone => Sight::Gone,
        Elsewhere::Converted { ty, new, .. } => Sight::Seen(ty, new),
    }
}

/// The work, in the version in which the manager applied last.
fn pruned(
    write: &ApplyWrite<'_>,
    ty: &Type,
    version: &str,
    merged: Value,
    last: &Entry,
    managed: &Managed,
) -> Result<Value, Ambiguous> {
    let fields = Parts::Fields(ty);
    let mut claims: BTreeMap<&str, Vec<FieldSet>> = BTreeMap::new();
    for entry in &managed.entries {
        claims.entry(&entry.api_version).or_default().push(FieldSet::clone(&entry.fields));
    }
    let mut here = FieldSet::unite_all(claims.remove(version).unwrap_or_default());
    let mut elsewhere = Vec::new();
    for (version, claims) in claims {
        let claim = FieldSet::unite_all(claims);
        match seen_in(write, version, &merged) {
            Sight::Seen(ty, there) => elsewhere.push((version, ty, there, claim)),
            Sight::Same => here.unite(claim),
            Sight::Gone => {}
        }
    }
    let last = filled(fields, &last.fields);
    let all = filled(fields, &owned(ty, &merged)?);
    let mut left = without(fields, merged.clone(), &last)?;
    left = restored(ty, &merged, &all, &left, &here)?;
    for (claimed_in, ty_there, merged_there, claim) in elsewhere {
        // in the other version what is left grows by what is claimed there, and is then seen here again
        let Sight::Seen(_, left_there) = seen_in(write, claimed_in, &left) else { continue };
        let all_there = filled(Parts::Fields(&ty_there), &owned(&ty_there, &merged_there)?);
        let more = restored(&ty_there, &merged_there, &all_there, &left_there, &claim)?;
        if let Sight::Seen(_, back) = seen_in(write, version, &more) {
            left = back;
        }
    }
    let mut gone = all;
    gone.subtract(&filled(fields, &owned(ty, &left)?));
    without(fields, merged, &gone.intersection(&last))
}

/// What is left, and what is claimed besides.
fn restored(
    ty: &Type,
    merged: &Value,
    all: &FieldSet,
    left: &Value,
    claim: &FieldSet,
) -> Result<Value, Ambiguous> {
    let fields = Parts::Fields(ty);
    let mut gone = all.clone();
    gone.subtract(&filled(fields, &owned(ty, left)?));
    gone.subtract(&filled(fields, claim));
    without(fields, merged.clone(), &gone)
}

/// The set with every declared field that it has something below.
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

/// The value without the paths of a set, and what is below them.
fn without(parts: Parts<'_>, value: Value, set: &FieldSet) -> Result<Value, Ambiguous> {
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
        (parts @ (Parts::Fields(_) | Parts::Entries(_) | Parts::Untold), Value::Map(map))
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

fn inside(shape: Option<&Shape>, value: Value, below: &FieldSet) -> Result<Value, Ambiguous> {
    without(Parts::of(shape), value, below)
}
