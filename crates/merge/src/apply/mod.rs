//! Server-side apply: merges a configuration into the live object; the manager owns the fields of the configuration.
//!
//! ```text
//! live            data: {k: v, l: w}      a owns data.k    u owns data.l
//! a applies       data: {m: x}
//! result          data: {l: w, m: x}      a owns data.m    u owns data.l
//! ```
//!
//! 1. The configuration is checked against its table: no undeclared field, no duplicate item (`declared`).
//! 2. It is merged with the live object: its values win, lists merge by item (`combine`).
//! 3. Fields that the manager applied before, but no longer, and that have no other owner are removed (`prune`).
//! 4. A changed field of another manager is a conflict; a forced apply takes it from that manager.
//! 5. The manager owns the fields of the configuration.
//!
//! Invariants: an error changes nothing; any number of managers can share an unchanged value; an apply without
//! changes returns the live object, and its entry keeps its time. Each step is one walk over table, trees and sets
//! together, `n log n` at most.
//!
//! The result is not in normal form. The caller decodes, defaults, admits and validates it like any other object.

mod combine;
mod conflict;
pub(crate) mod declared;
mod parts;
mod prune;
#[cfg(test)]
mod tests;
mod write;

pub use conflict::{Conflict, Conflicts};
pub use write::ApplyWrite;

use crate::managed::{
    AmbiguousItems, Changes, ConversionResult, Entry, FieldSet, ManagedFields, Operation, UNOWNED, compare,
    owned, update,
};
use crate::strategic;
use conflict::ConflictCollector;
use schema::table::{Field, Shape, Type};
use schema::{Value, encode};
use std::collections::BTreeMap;

/// Most bytes of all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyOutcome {
    /// The next state, entries included, not in normal form.
    pub object: Value,
    /// Whether the object differs from the live object, apart from the entries and the client's annotation.
    pub changed: bool,
}

/// The error of an apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not have the form of its type. The API answers 500.
    #[error("failed to create typed patch object ({object}): {why}")]
    Config { object: String, why: String },
    /// The live object has duplicate items, or does not have the form of its type.
    #[error("failed to create typed live object ({object}): {why}")]
    Live { object: String, why: String },
    /// As [`ApplyError::Live`], for a live object without managed fields.
    #[error(
        "failed to create manager for existing fields: failed to convert new object ({object}) to smd typed: {why}"
    )]
    Unowned { object: String, why: String },
    #[error("{0}")]
    Conflicts(Conflicts),
}

impl ApplyError {
    /// The HTTP status code of the error.
    pub fn code(&self) -> u16 {
        match self {
            ApplyError::BadRequest(_) => 400,
            ApplyError::Conflicts(_) => 409,
            ApplyError::Config { .. } | ApplyError::Live { .. } | ApplyError::Unowned { .. } => 500,
        }
    }
}

/// Applies a configuration as sent to the live object, or creates the object.
pub fn apply(
    write: &ApplyWrite<'_>,
    live: Option<&Value>,
    config: &Value,
) -> Result<ApplyOutcome, ApplyError> {
    check_version(write, config)?;
    let kept = live.map_or(&[][..], |live| live.items(&["metadata", "managedFields"]));
    let mut managed = ManagedFields::decode(kept, kept).unwrap_or_default();
    if let (true, Some(live)) = (managed.is_empty(), live) {
        own_existing(write, live, config, &mut managed)?;
    }
    check(write, config)?;
    let without_entries = config.at(&["metadata", "managedFields"]).map(|_| {
        let mut config = config.clone();
        config.unset(&["metadata", "managedFields"]);
        config
    });
    let config = without_entries.as_ref().unwrap_or(config);
    if let Some(live) = live {
        check_live(write, live, config)?;
    }
    // the entries stay in the object during the apply: configurations have none, so they cause no change
    let run = ApplyRun { write, live, config };
    let (next, changed) = run.run(&mut managed).map_err(|why| unreadable(write, live, config, why))??;
    let mut object = match live {
        Some(live) if !changed => live.clone(),
        _ => next,
    };
    if let Some(name) = write.last_applied {
        update_last_applied(&mut object, name, config);
    }
    if let Some(metadata) = object.as_map_mut().map(|map| map.entry("metadata").make_map()) {
        match managed.encode() {
            Some(entries) => drop(metadata.insert("managedFields", entries)),
            None => drop(metadata.remove("managedFields")),
        }
    }
    Ok(ApplyOutcome { object, changed })
}

fn check_version(write: &ApplyWrite<'_>, config: &Value) -> Result<(), ApplyError> {
    let (version, expected) = (config.text(&["apiVersion"]), write.api_version);
    if version == expected {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!(
        "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {expected}"
    )))
}

/// Checks the configuration against its table.
fn check(write: &ApplyWrite<'_>, config: &Value) -> Result<(), ApplyError> {
    if has_managed_fields(write.ty, config) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    declared::check(write.ty, config).map_err(|why| ApplyError::Config { object: described(config), why })
}

/// Whether a configuration has managed fields that can be read. Others are errors of its form only.
fn has_managed_fields(ty: &Type, config: &Value) -> bool {
    let Some(Value::List(items)) = config.at(&["metadata", "managedFields"]) else { return false };
    let Some((_, Field { shape: Shape::Struct(metadata), .. })) = ty.field("metadata") else { return true };
    let Some((_, Field { shape: Shape::List(list), .. })) = metadata.field("managedFields") else {
        return true;
    };
    items.iter().all(|item| match (item, &list.item) {
        (Value::Map(_), Shape::Struct(entry)) => strategic::misfit(entry, item).is_none(),
        _ => false,
    })
}

/// Gives all fields of a live object without managed fields to the manager of earlier writes.
fn own_existing(
    write: &ApplyWrite<'_>,
    live: &Value,
    config: &Value,
    managed: &mut ManagedFields,
) -> Result<(), ApplyError> {
    let refused = |why| ApplyError::Unowned { object: described_live(write, live, config), why };
    misfit(write, live).map_err(refused)?;
    update(&write.before(), None, live, managed).map_err(|why| refused(ambiguity(write, live, why)))
}

/// Checks the live object against its type. An object of a built-in kind always has its form, except for duplicate
/// items, which the later steps detect.
fn misfit(write: &ApplyWrite<'_>, live: &Value) -> Result<(), String> {
    if write.ty.loose { declared::check(write.ty, live) } else { Ok(()) }
}

fn check_live(write: &ApplyWrite<'_>, live: &Value, config: &Value) -> Result<(), ApplyError> {
    misfit(write, live).map_err(|why| ApplyError::Live { object: described_live(write, live, config), why })
}

/// All ambiguities of a live object with their paths.
fn ambiguity(write: &ApplyWrite<'_>, live: &Value, why: AmbiguousItems) -> String {
    declared::check(write.ty, live).err().unwrap_or_else(|| why.to_string())
}

/// The error of a live object with duplicate list items.
fn unreadable(
    write: &ApplyWrite<'_>,
    live: Option<&Value>,
    config: &Value,
    why: AmbiguousItems,
) -> ApplyError {
    match live {
        Some(live) => {
            let object = described_live(write, live, config);
            ApplyError::Live { object, why: ambiguity(write, live, why) }
        }
        None => ApplyError::Live { object: described(config), why: why.to_string() },
    }
}

/// A live object in the version of the request, as error texts name it.
fn described_live(write: &ApplyWrite<'_>, live: &Value, config: &Value) -> String {
    name_of(live, write.api_version, config.text(&["kind"]))
}

/// An object as error texts name it: `namespace/name; group/version, Kind=kind`.
pub fn described(config: &Value) -> String {
    name_of(config, config.text(&["apiVersion"]), config.text(&["kind"]))
}

fn name_of(object: &Value, version: &str, kind: &str) -> String {
    let group = if version.contains('/') { "" } else { "/" };
    let (namespace, name) = (object.text(&["metadata", "namespace"]), object.text(&["metadata", "name"]));
    format!("{namespace}/{name}; {group}{version}, Kind={kind}")
}

/// Removes and returns the entry of the applying manager.
fn take_own(write: &ApplyWrite<'_>, managed: &mut ManagedFields) -> Option<Entry> {
    let own = (write.manager(), Operation::Apply, "", write.subresource);
    let at = managed.entries.iter().position(|entry| entry.identity() == own)?;
    Some(managed.entries.remove(at))
}

/// The inputs of an apply.
struct ApplyRun<'a> {
    write: &'a ApplyWrite<'a>,
    live: Option<&'a Value>,
    config: &'a Value,
}

impl ApplyRun<'_> {
    /// The next object, and whether it differs from the live one; updates the entries.
    fn run(&self, managed: &mut ManagedFields) -> Result<Result<(Value, bool), ApplyError>, AmbiguousItems> {
        self.join_atomic(managed);
        let last = take_own(self.write, managed);
        let time = last.as_ref().and_then(|entry| entry.time.clone());
        managed.entries.push(self.write.entry(self.own_fields()?, time));
        let next = self.next(last.as_ref(), managed)?;
        let changes = self.changes(&next, managed)?;
        if let Some(conflicts) = self.conflicts(&changes, managed) {
            return Ok(Err(ApplyError::Conflicts(conflicts)));
        }
        release(&changes, managed);
        // the API does not count a different order of items as a change
        let changed = self.live.is_none() || !changes.here.is_empty();
        finish(self.write, managed, changed);
        Ok(Ok((next, changed)))
    }

    /// Replaces the parts of atomic values in all entries by these values, each in the version of its entry.
    fn join_atomic(&self, managed: &mut ManagedFields) {
        let mut types = BTreeMap::new();
        for entry in &mut managed.entries {
            if entry.api_version == self.write.api_version {
                entry.fields.join_atomic(self.write.ty);
                continue;
            }
            let (Some(live), Some(convert)) = (self.live, self.write.convert) else { continue };
            let ty = types.entry(entry.api_version.clone()).or_insert_with_key(|version| {
                match convert(version, Some(live), live) {
                    ConversionResult::Converted { ty, .. } => Some(ty),
                    ConversionResult::Unknown | ConversionResult::Gone => None,
                }
            });
            if let Some(ty) = ty {
                entry.fields.join_atomic(ty);
            }
        }
    }

    fn own_fields(&self) -> Result<FieldSet, AmbiguousItems> {
        let mut fields = owned(self.write.ty, self.config)?;
        fields.subtract_below(self.write.reset);
        Ok(fields)
    }

    /// The live object merged with the configuration, without the fields that the manager gave up. The manager's new
    /// entry is the last one.
    fn next(&self, last: Option<&Entry>, managed: &ManagedFields) -> Result<Value, AmbiguousItems> {
        let Some(live) = self.live else { return Ok(self.config.clone()) };
        let merged = combine::combine(self.write.ty, live.clone(), self.config.clone())?;
        match last {
            Some(last) => prune::prune(self.write, merged, last, managed),
            None => Ok(merged),
        }
    }

    fn changes(&self, next: &Value, managed: &ManagedFields) -> Result<ChangesByVersion, AmbiguousItems> {
        let mut all = ChangesByVersion { here: Changes::default(), elsewhere: BTreeMap::new() };
        let Some(live) = self.live else { return Ok(all) };
        all.here = compare(self.write.ty, Some(live), next)?;
        all.here.exclude(self.write.reset);
        let Some(convert) = self.write.convert else { return Ok(all) };
        for entry in &managed.entries {
            let version = &entry.api_version;
            if version == self.write.api_version || all.elsewhere.contains_key(version) {
                continue;
            }
            let changes = match convert(version, Some(live), next) {
                ConversionResult::Unknown => continue,
                ConversionResult::Gone => None,
                ConversionResult::Converted { ty, live, new } => {
                    // an entry whose version cannot read the object stays as it is
                    let Ok(mut changes) = compare(&ty, live.as_ref(), &new) else { continue };
                    changes.exclude(self.write.reset);
                    Some(changes)
                }
            };
            all.elsewhere.insert(version.clone(), changes);
        }
        Ok(all)
    }

    /// Fields that other managers would lose; none if the apply is forced.
    fn conflicts(&self, changes: &ChangesByVersion, managed: &ManagedFields) -> Option<Conflicts> {
        if self.write.force {
            return None;
        }
        let allowed = self.allowed();
        let mut collector = ConflictCollector::default();
        for entry in others(managed) {
            if let Some(changes) = changes.of(entry) {
                let mut fields = entry.fields.shared(&changes.taken);
                fields.subtract(&allowed);
                collector.add(entry, fields);
            }
        }
        (!collector.is_empty()).then(|| collector.into_conflicts())
    }

    /// The fields of the configuration in the last-applied annotation.
    fn allowed(&self) -> FieldSet {
        let (Some(name), Some(live)) = (self.write.last_applied, self.live) else { return FieldSet::new() };
        let text = live.text(&["metadata", "annotations", name]);
        let config = schema::decode::json_untyped(text.as_bytes()).map(|decoded| decoded.value);
        // an unreadable annotation allows no field
        config.ok().and_then(|config| owned(self.write.ty, &config).ok()).unwrap_or_default()
    }
}

/// The changes of an apply in each version of the API.
struct ChangesByVersion {
    here: Changes,
    /// Versions with other changes; `None` for a version that is no longer served.
    elsewhere: BTreeMap<String, Option<Changes>>,
}

impl ChangesByVersion {
    /// The changes in the version of an entry; `None` if that version is no longer served.
    fn of(&self, entry: &Entry) -> Option<&Changes> {
        self.elsewhere.get(&entry.api_version).map_or(Some(&self.here), Option::as_ref)
    }
}

/// All entries except the applying manager's, which is the last one.
fn others(managed: &ManagedFields) -> &[Entry] {
    managed.entries.split_last().map_or(&[], |(_, others)| others)
}

/// Removes changed and deleted fields from the other entries.
fn release(changes: &ChangesByVersion, managed: &mut ManagedFields) {
    let Some(own) = managed.entries.pop() else { return };
    managed.entries.retain_mut(|entry| {
        let Some(changes) = changes.of(entry) else { return false };
        entry.fields.release(&changes.taken);
        entry.fields.release(&changes.removed);
        !entry.fields.is_empty()
    });
    managed.entries.push(own);
}

/// Completes the manager's own entry, the last one.
fn finish(write: &ApplyWrite<'_>, managed: &mut ManagedFields, changed: bool) {
    let Some(mut own) = managed.entries.pop() else { return };
    own.fields.subtract(&UNOWNED);
    if changed {
        own.time = Some(write.now.to_owned());
    }
    if !own.fields.is_empty() {
        managed.entries.push(own);
    }
}

/// Updates the client's last-applied annotation, if the object has one.
fn update_last_applied(object: &mut Value, name: &str, config: &Value) {
    let Some(annotations) = object.at_mut(&["metadata", "annotations"]).and_then(Value::as_map_mut) else {
        return;
    };
    if !annotations.contains(name) {
        return;
    }
    let mut config = config.clone();
    config.unset(&["metadata", "annotations", name]);
    let mut text = String::from_utf8_lossy(&encode::untyped(&config)).into_owned();
    text.push('\n');
    annotations.insert(name.to_owned(), text);
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(name);
    }
}
