//! Tracking a write that is not an apply.
//!
//! ```text
//! before   kubectl: data.k data.l    controller: data.m
//! write    by controller: data.k = another value, data.l gone
//! after                              controller: data.k data.m
//! ```
//!
//! Changed fields leave every entry and join the writer's; removed fields leave every entry. Fields
//! that the server keeps for itself are never owned. The ten most recent updaters keep entries of their own;
//! older ones are gathered, per version, under one name.
//!
//! Invariants: an object is tracked from its creation or not at all, and the time of an
//! entry moves only when its writer took a field.

use super::compare::unambiguous;
use super::creation::brought;
use super::entries::{Identity, is_reset};
use super::{AmbiguousItems, Changes, Entry, FieldSet, Fields, ManagedFields, Operation, compare};
use crate::apply::declared;
use crate::json_patch::same_or;
use schema::table::{Ref, Type};
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The most entries of updates.
const MAX_UPDATERS: usize = 10;
/// The name that older updaters are gathered under.
const GATHERED: &str = "ancient-changes";
/// The name of a writer that gave none.
pub(crate) const UNKNOWN: &str = "unknown";

/// Fields that have no owner.
pub(crate) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Both states of an object in the version of another entry.
pub enum ConversionResult {
    /// The entry stays as it is.
    Unknown,
    /// The version is not served any more: the entry is dropped.
    Gone,
    Converted {
        ty: Ref<Type>,
        live: Option<Value>,
        new: Value,
    },
}

/// Converts the object before (if there was one) and after the write to the given API version.
pub type Convert<'a> = dyn Fn(&str, Option<&Value>, &Value) -> ConversionResult + Sync + 'a;

/// The manager, version and time of a write.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The table of the object in the version of the request.
    pub ty: &'a Type,
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Canonical text of the present time.
    pub now: &'a str,
    /// Fields that this kind of write cannot set, with all below them.
    pub reset: &'a FieldSet,
    /// Converts the object to other versions; without it, the entries of other versions do not change.
    pub convert: Option<&'a Convert<'a>>,
}

impl Write<'_> {
    fn manager(&self) -> &str {
        if self.manager.is_empty() { UNKNOWN } else { self.manager }
    }

    fn identity(&self) -> Identity<'_> {
        (self.manager(), Operation::Update, self.api_version, self.subresource)
    }
}

/// Brings `metadata.managedFields` of `new` up to date. `live` is the object before the write, `None` when it
/// is created.
///
/// A client may edit the entries in a write of the object itself; entries that cannot be read, or none, leave
/// those of the live object, and a single empty entry drops them all.
pub fn track(write: &Write<'_>, live: Option<&Value>, new: &mut Value) {
    let mut managed = given(write, live, new);
    // nor of one that does not fit its table
    if write.ty.loose && declared::check(write.ty, new).is_err() {
        return;
    }
    // an object with duplicate items loses its entries
    if update(write, live, new, &mut managed).is_err() {
        return;
    }
    if let Some(entries) = managed.encode()
        && let Some(metadata) = new.as_map_mut().map(|map| map.entry("metadata").make_map())
    {
        metadata.insert("managedFields", entries);
    }
}

/// Whether a part of a sent object does not have the form of its type: then no field of the object can be owned, even if
/// the write ignores that part. Parts that the object has already are not looked at.
pub fn has_unreadable_part(ty: &Type, parts: &FieldSet, live: &Value, sent: &Value) -> bool {
    let is_part = |name: &str| parts.below_field(name).is_some_and(|below| below.member);
    sent.as_map().into_iter().flat_map(Map::iter).any(|(name, held)| {
        let Some((_, field)) = ty.field(name).filter(|_| is_part(name)) else { return false };
        if live.at(&[name]) == Some(held) {
            return false;
        }
        if !ty.loose {
            return unambiguous(&field.shape, held).is_err();
        }
        let (part, _) = Map::from_unsorted(vec![(field.name.clone(), held.clone())]);
        declared::check(ty, &Value::Map(part)).is_err()
    })
}

/// The entries to start from; they are taken out of the new object.
fn given(write: &Write<'_>, live: Option<&Value>, new: &mut Value) -> ManagedFields {
    let sent = new.unset(&["metadata", "managedFields"]);
    let kept = live.map_or(&[][..], |live| live.items(&["metadata", "managedFields"]));
    if write.subresource.is_empty() {
        match sent.as_ref().and_then(Value::as_list) {
            // an empty list in a custom resource is none: its metadata is read and written again first
            Some([]) if write.ty.loose => {}
            Some(sent) if is_reset(sent) => return ManagedFields::default(),
            Some(sent) => {
                if let Some(managed) = ManagedFields::decode(sent, kept).ok().filter(|it| !it.is_empty()) {
                    return managed;
                }
            }
            None => {}
        }
    }
    ManagedFields::decode(kept, kept).unwrap_or_default()
}

/// Changes the entries for a write from `live` to `new`. On an error no field has changed its owner.
pub fn update(
    write: &Write<'_>,
    live: Option<&Value>,
    new: &Value,
    managed: &mut ManagedFields,
) -> Result<(), AmbiguousItems> {
    match live {
        Some(_) if managed.is_empty() => return Ok(()),
        None if managed.is_empty() => {
            let brought = brought(write.ty, new, write.reset, &UNOWNED)?;
            managed.entries.extend(brought.map(|text| first_of(write, text.into())));
            return Ok(());
        }
        _ => {}
    }
    for entry in managed.entries.iter_mut().filter(|entry| entry.api_version == write.api_version) {
        entry.fields.join_atomic(write.ty);
    }
    let mut changes = compare(write.ty, live, new)?;
    changes.exclude(write.reset);
    // a repeated write of the same fields changes no ownership
    let stays = own(write, managed).is_some_and(|own| {
        let mut taken = changes.taken.clone();
        taken.subtract(&UNOWNED);
        own.fields.stays(&[&changes.taken, &changes.removed], &taken)
    });
    release(write, live, new, (&changes, stays), managed)?;
    changes.taken.subtract(&UNOWNED);
    take(write, changes.taken, stays, managed);
    gather(managed);
    Ok(())
}

/// The writer's own entry.
fn own<'m>(write: &Write<'_>, managed: &'m mut ManagedFields) -> Option<&'m mut Entry> {
    managed.entries.iter_mut().find(|entry| entry.identity() == write.identity())
}

/// Removes changed and deleted fields from all entries; the writer's entry may stay as it is.
fn release(
    write: &Write<'_>,
    live: Option<&Value>,
    new: &Value,
    (changes, own_stays): (&Changes, bool),
    managed: &mut ManagedFields,
) -> Result<(), AmbiguousItems> {
    let others: BTreeSet<String> = managed
        .entries
        .iter()
        .map(|entry| &entry.api_version)
        .filter(|it| *it != write.api_version)
        .cloned()
        .collect();
    // all versions are compared before any field is released
    let mut elsewhere = BTreeMap::new();
    for version in others {
        if version.matches('/').count() > 1 {
            return Err(AmbiguousItems(format!("unexpected GroupVersion string: {version}")));
        }
        let changes =
            match write.convert.map_or(ConversionResult::Unknown, |convert| convert(&version, live, new)) {
                ConversionResult::Unknown => Some(Changes::default()),
                ConversionResult::Gone => None,
                ConversionResult::Converted { ty, live, new } => {
                    for entry in managed.entries.iter_mut().filter(|entry| entry.api_version == version) {
                        entry.fields.join_atomic(&ty);
                    }
                    let mut changes = compare(&ty, live.as_ref(), &new)?;
                    changes.exclude(write.reset);
                    Some(changes)
                }
            };
        elsewhere.insert(version, changes);
    }
    managed.entries.retain_mut(|entry| {
        let changes = elsewhere.get(&entry.api_version).map_or(Some(changes), Option::as_ref);
        let Some(changes) = changes else { return false };
        if !(own_stays && entry.identity() == write.identity()) {
            entry.fields.release(&changes.taken);
            entry.fields.release(&changes.removed);
        }
        !entry.fields.is_empty()
    });
    Ok(())
}

/// Adds the changed fields to the writer's entry.
fn take(write: &Write<'_>, taken: FieldSet, has_it: bool, managed: &mut ManagedFields) {
    if taken.is_empty() {
        return;
    }
    if let Some(entry) = own(write, managed) {
        if !has_it {
            entry.fields.unite(taken);
        }
        entry.time = Some(write.now.to_owned());
        return;
    }
    managed.entries.push(first_of(write, taken.into()));
}

/// The first entry of a writer.
fn first_of(write: &Write<'_>, fields: Fields) -> Entry {
    Entry {
        manager: write.manager().to_owned(),
        operation: Operation::Update,
        api_version: write.api_version.to_owned(),
        time: Some(write.now.to_owned()),
        subresource: write.subresource.to_owned(),
        fields,
    }
}

/// Gathers the oldest updaters when there are too many, as many as needed: the first one of a version makes
/// room only when a second one joins it.
fn gather(managed: &mut ManagedFields) {
    let (mut updaters, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut managed.entries)
        .into_iter()
        .partition(|entry| entry.operation == Operation::Update);
    managed.entries = rest;
    let mut count = updaters.len();
    if count > MAX_UPDATERS {
        updaters.sort_by(|a, b| (a.time.as_deref(), a.identity()).cmp(&(b.time.as_deref(), b.identity())));
    }
    // one that is gathered already and is not among the oldest must still be found
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut gathered: BTreeMap<String, usize> = BTreeMap::new();
    for (at, entry) in updaters.iter().enumerate() {
        if entry.manager == GATHERED && entry.subresource.is_empty() {
            gathered.insert(entry.api_version.clone(), at);
        }
    }
    let mut kept: Vec<Option<Entry>> = updaters.into_iter().map(Some).collect();
    let mut joining: BTreeMap<usize, Vec<FieldSet>> = BTreeMap::new();
    for at in 0..kept.len() {
        if count <= MAX_UPDATERS {
            break;
        }
        let Some(entry) = &kept[at] else { continue };
        let version = entry.api_version.clone();
        let Some(oldest) = first.get(&version).copied() else {
            first.insert(version, at);
            continue;
        };
        let into = *gathered.entry(version).or_insert(oldest);
        if into == at {
            continue;
        }
        let Some(entry) = kept[at].take() else { continue };
        count -= 1;
        if let Some(bucket) = &mut kept[into] {
            bucket.manager = GATHERED.to_owned();
            bucket.subresource.clear();
            joining.entry(into).or_default().push(entry.fields.into_set());
            // the one that joins is the more recent one
            bucket.time = entry.time;
        }
    }
    for (into, sets) in joining {
        if let Some(bucket) = &mut kept[into] {
            bucket.fields.unite(FieldSet::unite_all(sets));
        }
    }
    managed.entries.extend(kept.into_iter().flatten());
}

/// Gives the entries of `new` the times of the live object when nothing else differs between the two, so that
/// a write without effect stays without one.
pub fn keep_times(live: &Value, new: &mut Value) {
    if differ_in_times(live, new) && is_alike(live, new) {
        let before = live.items(&["metadata", "managedFields"]).to_vec();
        new.set(&["metadata", "managedFields"], before);
    }
}

/// Whether two objects have the same managed fields, their times aside, which are not all the same.
pub fn differ_in_times(live: &Value, new: &Value) -> bool {
    let before = live.items(&["metadata", "managedFields"]);
    let after = new.items(&["metadata", "managedFields"]);
    before.len() == after.len()
        && before.iter().zip(after).all(|(a, b)| same_but(a, b, "time", |_, _| true))
        && before.iter().zip(after).any(|(a, b)| a.at(&["time"]) != b.at(&["time"]))
}

/// Whether two objects are the same, their managed fields aside.
pub fn is_alike(a: &Value, b: &Value) -> bool {
    same_but(a, b, "metadata", |a, b| same_but(a, b, "managedFields", |_, _| true))
}

/// Whether two maps are the same, the value of one key aside, for which `also` decides when both have it.
fn same_but(a: &Value, b: &Value, key: &str, also: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Value::Map(a), Value::Map(b)) = (a, b) else { return equal(a, b) };
    let others = |map: &Map| map.len() - usize::from(map.contains(key));
    let not_key = |entry: &(&str, &Value)| entry.0 != key;
    others(a) == others(b)
        && a.iter().filter(not_key).zip(b.iter().filter(not_key)).all(|(a, b)| a.0 == b.0 && equal(a.1, b.1))
        && match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => also(a, b),
            _ => true,
        }
}

/// Equality of objects. An empty list or map equals none: a required list that is empty is stored as `null`.
fn equal(a: &Value, b: &Value) -> bool {
    fn is_empty(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::List(items) => items.is_empty(),
            Value::Map(map) => map.is_empty(),
            _ => false,
        }
    }
    same_or(a, b, |a, b| is_empty(a) && is_empty(b))
}
