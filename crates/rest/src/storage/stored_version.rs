//! Reads the values of a built-in kind from the store, in any version that a server has ever written.
//!
//! A value names its version. A value of another version is defaulted as that version was and converted to the stored
//! one:
//!
//! ```text
//! store   {"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1alpha1","spec":{"runtimeHandler":"h"}}
//! cache   {"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1",...,"handler":"h"}
//! ```
//!
//! Invariant: an object in the cache is in the stored version, complete with its defaults, including defaults that are
//! newer than the object. Values change in the store only when their objects are written again.

use crate::model::form::api_version;
use crate::model::versions::{Change, StoredVersion, StoredVersions};
use names::Names;
use schema::table::{Kind, Ref, Type};
use schema::{Value, decode, defaults, proto};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads the values of one collection.
pub(crate) struct ValueReader {
    kind: Ref<Kind>,
    api_version: String,
    /// Absent for kinds whose objects are fitted to a table when they are read.
    versions: Option<Versions>,
    /// Whether an unknown version has been logged.
    warned: AtomicBool,
}

struct Versions {
    names: Names,
    default: Option<Change>,
    others: Vec<(String, StoredVersion)>,
}

impl ValueReader {
    pub(crate) fn new(
        kind: Ref<Kind>,
        group: &str,
        versions: Option<&StoredVersions>,
        names: &Names,
    ) -> Self {
        let named = |one: &StoredVersion| {
            (api_version(&one.group.full(&names.api_domain), &one.version), one.clone())
        };
        let versions = versions.map(|it| Versions {
            names: names.clone(),
            default: it.default,
            others: it.others.iter().map(named).collect(),
        });
        ValueReader {
            api_version: api_version(group, &kind.version),
            kind,
            versions,
            warned: AtomicBool::new(false),
        }
    }

    /// A value as an object of the stored version: JSON in any order, or protobuf.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Value, String> {
        if bytes.starts_with(&proto::MAGIC) {
            let envelope = proto::open(bytes).map_err(|why| why.to_string())?;
            let other = self.other(&envelope.api_version);
            let root = other.map_or(&self.kind.root, |other| &other.root);
            let value = envelope.object(root).map_err(|why| why.to_string())?;
            return self.complete(value, other);
        }
        let json = |root: &Type| decode::canonical_json(bytes, root).map(|it| it.value);
        let version = |value: &Value| value.text(&["apiVersion"]).to_owned();
        let decoded = json(&self.kind.root);
        // most values are of the stored version; of the others this gives the version, at best
        let other = match &decoded {
            Ok(value) => self.other(&version(value)),
            Err(_) => self.others().find_map(|(name, other)| {
                json(&other.root).ok().filter(|value| version(value) == *name).map(|_| other)
            }),
        };
        let decoded = other.map_or(decoded, |other| json(&other.root));
        self.complete(decoded.map_err(|why| why.to_string())?, other)
    }

    fn others(&self) -> impl Iterator<Item = &(String, StoredVersion)> {
        self.versions.iter().flat_map(|versions| &versions.others)
    }

    /// The version of this name, unless it is the stored one.
    fn other(&self, api_version: &str) -> Option<&StoredVersion> {
        if api_version == self.api_version {
            return None;
        }
        self.others().find(|(name, _)| name == api_version).map(|(_, other)| other)
    }

    /// The form of a version.
    fn root(&self, api_version: &str) -> &Type {
        match self.other(api_version) {
            Some(other) => &other.root,
            None => &self.kind.root,
        }
    }

    fn complete(&self, mut value: Value, other: Option<&StoredVersion>) -> Result<Value, String> {
        let Some(Versions { names, default, .. }) = &self.versions else { return Ok(value) };
        let run = |change: Option<Change>, value: &mut Value| {
            if let Some(change) = change {
                change(value, names);
            }
        };
        let Some(other) = other else {
            self.name(&mut value);
            defaults::apply(&self.kind.root, &mut value);
            run(*default, &mut value);
            return Ok(value);
        };
        run(other.own_default, &mut value);
        defaults::apply(&other.root, &mut value);
        run(other.default, &mut value);
        run(other.convert, &mut value);
        let mut value = match other.to_stored {
            Some(to_stored) => to_stored(value),
            None => value,
        };
        self.name(&mut value);
        // the normal form of the stored version, where other fields are always there
        decode::tree(value, &self.kind.root).map(|it| it.value).map_err(|why| why.to_string())
    }

    /// Sets the stored version. A value of an unknown version keeps the fields that the stored version has.
    fn name(&self, value: &mut Value) {
        let api_version = value.text(&["apiVersion"]);
        if api_version == self.api_version {
            return;
        }
        if self.other(api_version).is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            let kind = &*self.kind.name;
            tracing::warn!(kind, version = api_version, read_as = %self.api_version, "stored objects are of an unknown version");
        }
        value.set(&["apiVersion"], &*self.api_version);
    }
}

/// Reads values as a server would, and tells what becomes of them. Nothing is written.
pub struct ValueInspector(ValueReader);

/// A value of the store, seen by [`ValueInspector`].
pub struct InspectedValue {
    /// The object as the server reads it.
    pub value: Value,
    /// The version that the value names.
    pub api_version: String,
    /// Whether that version can be converted; of others the fields that the stored version has are kept.
    pub is_known_version: bool,
    /// Fields that the tables do not have: the next write drops them.
    pub unknown_fields: Vec<String>,
    /// Fields that the object gets when it is read, or that change.
    pub defaulted_fields: Vec<String>,
}

impl ValueInspector {
    /// An inspector of the values of a stored kind.
    pub fn new(kind: Ref<Kind>, versions: Option<&StoredVersions>, names: &Names) -> Self {
        let group = kind.group.full(&names.api_domain);
        ValueInspector(ValueReader::new(kind, &group, versions, names))
    }

    /// The error says why the value cannot be read; a server does not start then.
    pub fn inspect(&self, bytes: &[u8]) -> Result<InspectedValue, String> {
        let reader = &self.0;
        let value = reader.read(bytes)?;
        let (api_version, before, unknown_fields) = if bytes.starts_with(&proto::MAGIC) {
            let envelope = proto::open(bytes).map_err(|why| why.to_string())?;
            let root = reader.root(&envelope.api_version);
            let before = envelope.object(root).map_err(|why| why.to_string())?;
            let unknown = proto::unknown_fields(envelope.raw, root).map_err(|why| why.to_string())?;
            (envelope.api_version, before, unknown)
        } else {
            let named = decode::json_untyped(bytes).map_err(|why| why.to_string())?.value;
            let api_version = named.text(&["apiVersion"]).to_owned();
            let decoded = decode::json(bytes, reader.root(&api_version)).map_err(|why| why.to_string())?;
            let unknown = decoded.strict_errors.iter().map(ToString::to_string).collect();
            (api_version, decoded.value, unknown)
        };
        let is_stored_version = api_version == reader.api_version;
        let mut defaulted_fields = Vec::new();
        if is_stored_version {
            changed_fields(&before, &value, "", &mut defaulted_fields);
            defaulted_fields.sort();
            defaulted_fields.dedup();
        }
        let is_known_version = is_stored_version || reader.other(&api_version).is_some();
        Ok(InspectedValue { value, api_version, is_known_version, unknown_fields, defaulted_fields })
    }
}

/// The paths at which two trees differ; items of lists have no index.
fn changed_fields(before: &Value, after: &Value, path: &str, changed: &mut Vec<String>) {
    match (before, after) {
        (Value::Map(before), Value::Map(after)) => {
            for (name, value) in after.iter() {
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                match before.get(name) {
                    Some(before) => changed_fields(before, value, &path, changed),
                    None => changed.push(path),
                }
            }
            changed.extend(
                before.keys().filter(|name| after.get(name).is_none()).map(|name| format!("{path}.{name}")),
            );
        }
        (Value::List(before), Value::List(after)) if before.len() == after.len() => {
            let path = format!("{path}[]");
            before
                .iter()
                .zip(after)
                .for_each(|(before, after)| changed_fields(before, after, &path, changed));
        }
        _ if before == after => {}
        _ => changed.push(path.to_owned()),
    }
}
