//! Server-side apply: a configuration says what its manager wants, and the manager owns just that.
//!
//! ```text
//! live            data: {k: v, l: w}      a owns data.k    u owns data.l
//! a applies       data: {m: x}
//! result          data: {l: w, m: x}      a owns data.m    u owns data.l
//! ```
//!
//! 1. The configuration must fit its table: nothing undeclared, no item twice (`declared`).
//! 2. It is combined with the live object: what it names wins, lists meet item by item (`combine`).
//! 3. What the manager applied before, names no more and nobody else owns is taken out (`prune`).
//! 4. What is now different and owned by others is a conflict, or theirs no longer when forced.
//! 5. The manager owns what the configuration names.
//!
//! Always true: nothing changes on an error; a value that stays the same can be shared by any number of
//! managers; an apply that changes nothing gives the live object back, and its entry does not get a new time.
//! Each step is one walk over table, trees and sets together, `n log n` at most.
//!
//! What it does not do: the result is not in normal form. It has to be decoded, defaulted, admitted and
//! validated like any other.

mod combine;
mod conflict;
pub(crate) mod declared;
mod prune;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

pub use conflict::{Conflict, Conflicts};

use crate::managed::{
    Ambiguous, Changes, Convert, Elsewhere, Entry, FieldSet, Managed, Operation, UNKNOWN, UNOWNED, Write,
    compare, owned, update,
};
use conflict::Disputed;
use schema::table::{ListKind, ListShape, Scalar, Shape, Type};
use schema::{Value, encode};
use std::collections::BTreeMap;

/// The manager of what an object had before anyone was tracked.
const BEFORE: &str = "before-first-apply";
/// How many bytes all annotations of an object may have.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Who applies, and how.
#[derive(Clone, Copy)]
pub struct ApplyWrite<'a> {
    /// The table of the object in the version of the request.
    pub ty: &'a Type,
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Canonical text of the present time.
    pub now: &'a str,
    /// Takes what others own.
    pub force: bool,
    /// Fields that this kind of write cannot set, with all below them.
    pub reset: &'a FieldSet,
    /// How to see the object in other versions; an object tells its own version in `apiVersion`. Without it,
    /// and where it says [`Elsewhere::Unknown`], fields of other versions are taken to have the same paths.
    pub convert: Option<&'a Convert<'a>>,
    /// The annotation in which this client keeps what it applied, if it does: fields that stand there are the
    /// client's own, and the annotation follows the configuration.
    pub last_applied: Option<&'a str>,
}

/// What an apply made.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The next state, entries included, not in normal form.
    pub object: Value,
    /// Whether anything but the entries and the client's annotation differs from the live object.
    pub changed: bool,
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit its type. Clients know this as a 500.
    #[error("failed to create typed patch object ({object}): {why}")]
    Config { object: String, why: String },
    /// The live object has items that cannot be told apart, or does not fit its type.
    #[error("failed to create typed live object ({object}): {why}")]
    Live { object: String, why: String },
    /// The same of a live object whose fields have no owners yet.
    #[error(
        "failed to create manager for existing fields: failed to convert new object ({object}) to smd typed: {why}"
    )]
    Unowned { object: String, why: String },
    #[error("{0}")]
    Conflicts(Conflicts),
}

impl ApplyError {
    /// The HTTP status that the error is answered with.
    pub fn code(&self) -> u16 {
        match self {
            ApplyError::BadRequest(_) => 400,
            ApplyError::Conflicts(_) => 409,
            ApplyError::Config { .. } | ApplyError::Live { .. } | ApplyError::Unowned { .. } => 500,
        }
    }
}

/// Applies a configuration, as it was sent, to the live object, or makes the object.
pub fn apply(write: &ApplyWrite<'_>, live: Option<&Value>, config: &Value) -> Result<Applied, ApplyError> {
    check_version(write, config)?;
    let kept = live.map_or(&[][..], |live| live.items(&["metadata", "managedFields"]));
    let mut managed = Managed::decode(kept, kept).unwrap_or_default();
    if let (true, Some(live)) = (managed.is_empty(), live) {
        own_existing(write, live, config, &mut managed)?;
    }
    check(write, config)?;
    if let Some(live) = live {
        check_live(write, live, config)?;
    }
    // the entries stay in the object meanwhile: no configuration has any, so they are no change
    let applying = Applying { write, live, config };
    let (next, changed) =
        applying.run(&mut managed).map_err(|why| unreadable(write, live, config, why))??;
    let mut object = match live {
        Some(live) if !changed => live.clone(),
        _ => next,
    };
    if let Some(name) = write.last_applied {
        follow(&mut object, name, config);
    }
    if let Some(metadata) = object.as_map_mut().map(|map| map.entry("metadata").make_map()) {
        match managed.encode() {
            Some(entries) => drop(metadata.insert("managedFields", entries)),
            None => drop(metadata.remove("managedFields")),
        }
    }
    Ok(Applied { object, changed })
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

/// What else can be said of the configuration without looking at the live object.
fn check(write: &ApplyWrite<'_>, config: &Value) -> Result<(), ApplyError> {
    if config.at(&["metadata", "managedFields"]).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    declared::check(write.ty, config).map_err(|why| ApplyError::Config { object: described(config), why })
}

/// Gives the fields of a live object that has no owners to one, which stands for all writes before.
fn own_existing(
    write: &ApplyWrite<'_>,
    live: &Value,
    config: &Value,
    managed: &mut Managed,
) -> Result<(), ApplyError> {
    let refused = |why| ApplyError::Unowned { object: described_live(write, live, config), why };
    misfit(write, live).map_err(refused)?;
    update(&write.before(), None, live, managed).map_err(|why| refused(ambiguity(write, live, why)))
}

/// Whether the live object fits its type. That of a built-in kind always does, except for items that come twice,
/// which are found on the way.
fn misfit(write: &ApplyWrite<'_>, live: &Value) -> Result<(), String> {
    if write.ty.loose { declared::check(write.ty, live) } else { Ok(()) }
}

fn check_live(write: &ApplyWrite<'_>, live: &Value, config: &Value) -> Result<(), ApplyError> {
    misfit(write, live).map_err(|why| ApplyError::Live { object: described_live(write, live, config), why })
}

/// All ambiguities of a live object with their paths.
fn ambiguity(write: &ApplyWrite<'_>, live: &Value, why: Ambiguous) -> String {
    declared::check(write.ty, live).err().unwrap_or_else(|| why.to_string())
}

/// The error of a live object with duplicate list items.
fn unreadable(write: &ApplyWrite<'_>, live: Option<&Value>, config: &Value, why: Ambiguous) -> ApplyError {
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

impl<'a> ApplyWrite<'a> {
    fn manager(&self) -> &'a str {
        if self.manager.is_empty() { UNKNOWN } else { self.manager }
    }

    /// The write by which everything that an untracked object has came to be.
    fn before(&self) -> Write<'a> {
        Write {
            ty: self.ty,
            manager: BEFORE,
            api_version: self.api_version,
            subresource: self.subresource,
            now: self.now,
            reset: self.reset,
            convert: self.convert,
        }
    }

    fn entry(&self, fields: FieldSet, time: Option<String>) -> Entry {
        Entry {
            manager: self.manager().to_owned(),
            operation: Operation::Apply,
            api_version: self.api_version.to_owned(),
            time,
            subresource: self.subresource.to_owned(),
            fields: fields.into(),
        }
    }
}

/// The entry of the applying manager, which is taken out.
fn take_own(write: &ApplyWrite<'_>, managed: &mut Managed) -> Option<Entry> {
    let own = (write.manager(), Operation::Apply, "", write.subresource);
    let at = managed.entries.iter().position(|entry| entry.identity() == own)?;
    Some(managed.entries.remove(at))
}

/// The parts of an apply that stay as they are.
struct Applying<'a> {
    write: &'a ApplyWrite<'a>,
    live: Option<&'a Value>,
    config: &'a Value,
}

impl Applying<'_> {
    /// The next object and whether it is another one; the entries are those after the apply.
    fn run(&self, managed: &mut Managed) -> Result<Result<(Value, bool), ApplyError>, Ambiguous> {
        let last = take_own(self.write, managed);
        let time = last.as_ref().and_then(|entry| entry.time.clone());
        managed.entries.push(self.write.entry(self.own_fields()?, time));
        let next = self.next(last.as_ref(), managed)?;
        let changes = self.changes(&next, managed)?;
        if let Some(conflicts) = self.conflicts(&changes, managed) {
            return Ok(Err(ApplyError::Conflicts(conflicts)));
        }
        release(&changes, managed);
        // another order of items alone is no change, as the API has always had it
        let changed = self.live.is_none() || !changes.here.is_empty();
        finish(self.write, managed, changed);
        Ok(Ok((next, changed)))
    }

    fn own_fields(&self) -> Result<FieldSet, Ambiguous> {
        let mut fields = owned(self.write.ty, self.config)?;
        fields.subtract_below(self.write.reset);
        Ok(fields)
    }

    /// The object with the configuration in it and without what the manager gave up. The manager's new entry
    /// is the last one.
    fn next(&self, last: Option<&Entry>, managed: &Managed) -> Result<Value, Ambiguous> {
        let Some(live) = self.live else { return Ok(self.config.clone()) };
        let merged = combine::combine(self.write.ty, live.clone(), self.config.clone())?;
        match last {
            Some(last) => prune::prune(self.write, merged, last, managed),
            None => Ok(merged),
        }
    }

    fn changes(&self, next: &Value, managed: &Managed) -> Result<Seen, Ambiguous> {
        let mut seen = Seen { here: Changes::default(), elsewhere: BTreeMap::new() };
        let Some(live) = self.live else { return Ok(seen) };
        seen.here = compare(self.write.ty, Some(live), next)?;
        seen.here.exclude(self.write.reset);
        let Some(convert) = self.write.convert else { return Ok(seen) };
        for entry in &managed.entries {
            let version = &entry.api_version;
            if version == self.write.api_version || seen.elsewhere.contains_key(version) {
                continue;
            }
            let changes = match convert(version, Some(live), next) {
                Elsewhere::Unknown => continue,
                Elsewhere::Gone => None,
                Elsewhere::Converted { ty, live, new } => {
                    let mut changes = compare(&ty, live.as_ref(), &new)?;
                    changes.exclude(self.write.reset);
                    Some(changes)
                }
            };
            seen.elsewhere.insert(version.clone(), changes);
        }
        Ok(seen)
    }

    /// What others own and would lose, unless it is taken by force.
    fn conflicts(&self, changes: &Seen, managed: &Managed) -> Option<Conflicts> {
        if self.write.force {
            return None;
        }
        let allowed = self.allowed();
        let mut disputed = Disputed::default();
        for entry in others(managed) {
            if let Some(changes) = changes.of(entry) {
                let mut fields = entry.fields.shared(&changes.taken);
                fields.subtract(&allowed);
                disputed.add(entry, fields);
            }
        }
        (!disputed.is_empty()).then(|| disputed.told())
    }

    /// The fields that the client applied by its own means before it applied here.
    fn allowed(&self) -> FieldSet {
        let (Some(name), Some(live)) = (self.write.last_applied, self.live) else { return FieldSet::new() };
        let text = live.text(&["metadata", "annotations", name]);
        let config = schema::decode::json_untyped(text.as_bytes()).map(|decoded| decoded.value);
        // whatever cannot be read allows nothing
        config.ok().and_then(|config| owned(self.write.ty, &config).ok()).unwrap_or_default()
    }
}

/// What changed, as each version of the API sees it.
struct Seen {
    here: Changes,
    /// Versions that see it otherwise; `None` for one that is gone.
    elsewhere: BTreeMap<String, Option<Changes>>,
}

impl Seen {
    /// What changed for an entry, `None` when its version is gone.
    fn of(&self, entry: &Entry) -> Option<&Changes> {
        self.elsewhere.get(&entry.api_version).map_or(Some(&self.here), Option::as_ref)
    }
}

/// All entries but that of the applying manager, which is the last one.
fn others(managed: &Managed) -> &[Entry] {
    managed.entries.split_last().map_or(&[], |(_, others)| others)
}

/// Takes what changed or went from the others.
fn release(changes: &Seen, managed: &mut Managed) {
    let Some(own) = managed.entries.pop() else { return };
    managed.entries.retain_mut(|entry| {
        let Some(changes) = changes.of(entry) else { return false };
        entry.fields.release(&changes.taken);
        entry.fields.release(&changes.removed);
        !entry.fields.is_empty()
    });
    managed.entries.push(own);
}

/// Brings the manager's own entry, the last one, into its final form.
fn finish(write: &ApplyWrite<'_>, managed: &mut Managed, changed: bool) {
    let Some(mut own) = managed.entries.pop() else { return };
    own.fields.subtract(&UNOWNED);
    if changed {
        own.time = Some(write.now.to_owned());
    }
    if !own.fields.is_empty() {
        managed.entries.push(own);
    }
}

/// Lets the client's annotation follow what was applied, where there is one.
fn follow(object: &mut Value, name: &str, config: &Value) {
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

/// The parts of a value that can be owned one by one, as its table sees them.
#[derive(Clone, Copy)]
enum Parts<'t> {
    Fields(&'t Type),
    Entries(&'t Shape),
    Items(&'t ListShape),
    /// No table: maps have parts.
    Untold,
    /// One whole.
    None,
}

impl<'t> Parts<'t> {
    fn of(shape: Option<&'t Shape>) -> Self {
        match shape {
            None => Parts::Untold,
            Some(Shape::Scalar(Scalar::Any)) => Parts::Untold,
            Some(Shape::Struct(ty)) if ty.one_of => Parts::Untold,
            Some(Shape::Struct(ty)) if !ty.atomic => Parts::Fields(ty),
            Some(Shape::Map(map)) if !map.atomic => Parts::Entries(&map.value),
            Some(Shape::List(list)) if list.kind != ListKind::Atomic => Parts::Items(list),
            Some(_) => Parts::None,
        }
    }

    /// The shape of a member, `None` when no table tells it.
    fn member(self, name: &str) -> Option<&'t Shape> {
        match self {
            Parts::Fields(ty) => ty.field(name).map(|(_, field)| &field.shape),
            Parts::Entries(shape) => Some(shape),
            _ => None,
        }
    }
}
