//! Objects of a resource in their versions: from the stored version to the served one, and back.
//!
//! Built-in kinds convert with plain functions. Objects of custom kinds are kept as they were written, in whichever
//! version, and fitted to a table when they are read: their versions and schemas come and go while objects stay in
//! the store. The form of a version is made on first use and kept with the object:
//!
//! ```text
//! stored         v1, before `late` had a default     {"apiVersion":"g/v1","kind":"T","spec":{"x":1,"old":2}}
//! fitted to v1   the present table                   {"apiVersion":"g/v1","kind":"T","spec":{"x":1,"late":"L"}}
//! fitted to v2   another table                       {"apiVersion":"g/v2","kind":"T","spec":{"x":1}}
//! ```
//!
//! The version that an object was stored in decides about its absent fields: its defaults are filled in, and the
//! requested version prunes fields that it does not have. On the way in it is the other way round.
//!
//! Invariant: an object that was written in the stored version under the present table is its own form, so most
//! objects are kept once. A converter runs [before](Resource::ready) the form is needed, for all objects of a response
//! at once. Its result for a state of an object is reused until its next epoch.

use crate::model::error::ApiError;
use crate::model::object::Object;
use crate::model::versions::{Conversion, Converter, CustomVersions, pruned};
use crate::storage::resource::Resource;
use bytes::Bytes;
use schema::decode::DecodeError;
use schema::encode::EmptyLists;
use schema::{Value, decode, defaults, encode};
use std::borrow::Cow;
use std::sync::Arc;

/// How many objects are converted in one call.
const BATCH: usize = 500;

impl Resource {
    /// Whether stored objects are decoded before they are sent.
    pub fn converts(&self) -> bool {
        self.hooks.storage.custom_versions.is_some() || self.hooks.storage.convert.is_some()
    }

    /// The object's bytes in this version.
    pub fn json(&self, object: &Object) -> Bytes {
        if let Some(fit) = &self.hooks.storage.custom_versions {
            return self.fitted_json(fit, object);
        }
        match self.hooks.storage.convert {
            None => object.json().clone(),
            Some(convert) => object.form(0, || match object.value(&self.collection.kind) {
                Ok(stored) => encode::json(&self.as_served(convert, stored), &self.kind.root).into(),
                Err(_) => object.json().clone(),
            }),
        }
    }

    /// An object's bytes for the metadata-only form, without metadata that this form does not show.
    pub fn outline<'j>(&self, json: &'j [u8]) -> Cow<'j, [u8]> {
        let decoded = self.hooks.read.outline.and_then(|remove| {
            let mut value = decode::json(json, &self.kind.root).ok()?.value;
            remove(&mut value);
            Some(encode::json(&value, &self.kind.root))
        });
        decoded.map_or(Cow::Borrowed(json), Cow::Owned)
    }

    /// A stored tree in this version.
    pub(crate) fn as_served(&self, convert: Conversion, stored: Value) -> Value {
        let mut value = (convert.from_stored)(stored);
        value.set(&["kind"], &*self.kind.name);
        value.set(&["apiVersion"], &*self.api_version);
        value
    }

    /// A tree of this version as it is stored.
    pub(crate) fn as_stored(&self, object: Value) -> Value {
        if let Some(fit) = &self.hooks.storage.custom_versions {
            return fit.kept(object, &self.api_version);
        }
        let Some(convert) = self.hooks.storage.convert else { return object };
        let mut stored = (convert.to_stored)(object);
        stored.set(&["kind"], &*self.collection.kind.name);
        stored.set(&["apiVersion"], self.collection.api_version());
        stored
    }

    /// Whether two trees of this version are stored as the same object.
    pub(crate) fn stores_same(&self, a: &Value, b: &Value) -> bool {
        let same = |a: &Value, b: &Value| match self.hooks.storage.empty_lists() {
            EmptyLists::Kept => a == b,
            EmptyLists::Null => same_but_for_emptiness(a, b),
        };
        let converts = self.hooks.storage.convert.is_some() || self.is_stored_in_another_version();
        same(a, b) || converts && same(&self.as_stored(a.clone()), &self.as_stored(b.clone()))
    }

    /// Whether objects of this version are stored in another one.
    pub(crate) fn is_stored_in_another_version(&self) -> bool {
        self.hooks.storage.custom_versions.as_ref().is_some_and(|fit| fit.stored != self.api_version)
    }

    /// A tree of another version of the same kind in this one.
    pub(crate) fn from(&self, other: &Resource, object: Value) -> Value {
        let stored = other.as_stored(object);
        if self.hooks.storage.custom_versions.is_some() {
            return self.fitted(stored);
        }
        match self.hooks.storage.convert {
            None => stored,
            Some(convert) => self.as_served(convert, stored),
        }
    }

    /// The object's bytes without the leading brace, kind and version, as list items are written.
    pub fn json_item(&self, object: &Object) -> Bytes {
        let json = self.json(object);
        if self.kind.kind_first && json.starts_with(&self.header) {
            json.slice(self.header.len()..)
        } else {
            json.slice(1..)
        }
    }
}

/// Equality that does not distinguish an empty list from null.
fn same_but_for_emptiness(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            let same = |(one, other): ((&str, &Value), (&str, &Value))| {
                one.0 == other.0 && same_but_for_emptiness(one.1, other.1)
            };
            a.len() == b.len() && a.iter().zip(b.iter()).all(same)
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_but_for_emptiness(a, b))
        }
        (Value::List(items), Value::Null) | (Value::Null, Value::List(items)) => items.is_empty(),
        (a, b) => a == b,
    }
}

impl Resource {
    /// A stored object in this version, for versions that differ in their name only.
    pub(crate) fn fitted(&self, mut stored: Value) -> Value {
        stored.set(&["kind"], &*self.kind.name);
        let version = stored.text(&["apiVersion"]);
        let other = |fit: &&CustomVersions| version != self.api_version && fit.table(version).is_some();
        if let Some(fit) = self.hooks.storage.custom_versions.as_ref().filter(other) {
            return self.named(fit.whole(stored));
        }
        let mut value = self.named(stored);
        defaults::apply(&self.kind.root, &mut value);
        value
    }

    /// An object that was converted to this version, pruned by its table.
    fn named(&self, mut converted: Value) -> Value {
        converted.set(&["apiVersion"], &*self.api_version);
        pruned(converted, &self.kind.root)
    }

    /// The object's bytes in this version, for custom kinds.
    pub(crate) fn fitted_json(&self, fit: &CustomVersions, object: &Object) -> Bytes {
        if fit.is_form_of(object) {
            return object.json().clone();
        }
        // an epoch may end between the conversion and this read
        if let Some(converter) = fit.converter.as_ref().filter(|_| !self.is_of_version(object)) {
            let known = |before| object.fitted_before(fit.converted_form(&**converter, before));
            if let Some(known) = known(0).or_else(|| known(1)) {
                return known;
            }
        }
        object.fitted(fit.form, || {
            let stored = object.value(&self.collection.kind).ok();
            let made = stored.map(|stored| encode::json(&self.fitted(stored), &self.kind.root));
            // most objects from before a restart have this form already; they are not kept twice
            made.filter(|made| **made != **object.json()).map_or_else(|| object.json().clone(), Bytes::from)
        })
    }

    /// Whether the object is stored as it would be if it were written now.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        let Some(fit) = &self.hooks.storage.custom_versions else { return !object.is_stale() };
        let own = match (&fit.converter, fit.stored == self.api_version) {
            (_, true) => self.fitted_json(fit, object) == *object.json(),
            (Some(_), false) => true,
            // the stored version has defaults of its own, and fields that this version has not
            (None, false) => object.value(&self.collection.kind).is_ok_and(|stored| {
                let (stored, served) = (stored.clone(), self.fitted(stored));
                self.as_stored(served) == stored
            }),
        };
        own && object.json().starts_with(format!("{{\"apiVersion\":\"{}\",", fit.stored).as_bytes())
    }

    /// Whether a field of the object itself is absent that has a default.
    pub(crate) fn lacks_default(&self, object: &Value) -> bool {
        let mut fields = self.kind.root.fields.iter();
        fields.any(|field| field.default.is_some() && object.at(&[&field.name]).is_none())
    }

    /// Whether the object is stored in this version.
    fn is_of_version(&self, object: &Object) -> bool {
        object.json().starts_with(&self.header)
    }

    /// The converter that must convert an object before it can be shown, and the form of the result.
    fn converter_for(&self, object: &Object) -> Option<(u64, &Arc<dyn Converter>)> {
        let fit = self.hooks.storage.custom_versions.as_ref()?;
        let converter = fit.converter.as_ref()?;
        let known = fit.is_form_of(object) || self.is_of_version(object);
        let form = fit.converted_form(&**converter, 0);
        (!known && object.fitted_before(form).is_none()).then_some((form, converter))
    }

    /// Whether the object's own bytes are in this version, so that all watchers can share them.
    pub fn shows_stored(&self, object: &Object) -> bool {
        self.hooks.storage.custom_versions.as_ref().is_none_or(|fit| fit.is_form_of(object))
    }

    /// Whether the object can be shown without a converter.
    pub fn is_ready(&self, object: &Object) -> bool {
        self.converter_for(object).is_none()
    }
}

impl Resource {
    /// Converts objects to this version where that takes a converter, so that they can be shown.
    pub async fn ready(&self, objects: &[Arc<Object>]) -> Result<(), ApiError> {
        let mut waiting = Vec::new();
        for object in objects {
            if let Some((form, converter)) = self.converter_for(object) {
                waiting.push((form, converter, object));
            }
        }
        for batch in waiting.chunks(BATCH) {
            let Some((_, converter, _)) = batch.first() else { continue };
            let mut stored = Vec::with_capacity(batch.len());
            for (_, _, object) in batch {
                let read = object.value(&self.collection.kind).map_err(|why| unreadable(object, &why))?;
                stored.push(match &self.hooks.storage.custom_versions {
                    Some(fit) => fit.whole(read),
                    None => read,
                });
            }
            let converted = converter.convert(stored, &self.api_version).await?;
            for (value, (form, _, object)) in converted.into_iter().zip(batch) {
                object.fitted(*form, || encode::json(&self.named(value), &self.kind.root).into());
            }
        }
        Ok(())
    }

    /// An object of this version in another version of the kind.
    pub async fn convert_to(&self, other: &Resource, object: Value) -> Result<Value, ApiError> {
        if self.api_version == other.api_version {
            return Ok(object);
        }
        let Some(CustomVersions { converter: Some(converter), .. }) = &self.hooks.storage.custom_versions
        else {
            return Ok(other.from(self, object));
        };
        let converted = converter.convert(vec![object], &other.api_version).await?;
        Ok(other.fitted(converted.into_iter().next().ok_or_else(no_object)?))
    }

    /// An object of this version in the stored version, where that takes a converter.
    pub(crate) async fn converted_for_store(&self, object: Value) -> Result<Value, ApiError> {
        let Some(CustomVersions { stored, converter: Some(converter), .. }) =
            &self.hooks.storage.custom_versions
        else {
            return Ok(object);
        };
        if *stored == self.api_version {
            return Ok(object);
        }
        let converted = converter.convert(vec![object], stored).await?;
        converted.into_iter().next().ok_or_else(no_object)
    }

    /// The tree of an object in this version.
    pub fn tree(&self, object: &Object) -> Result<Value, ApiError> {
        if let Some(fit) = &self.hooks.storage.custom_versions {
            let json = self.fitted_json(fit, object);
            let decoded = decode::canonical_json(&json, &self.kind.root);
            return Ok(decoded.map_err(|why| unreadable(object, &why))?.value);
        }
        let stored = object.value(&self.collection.kind).map_err(|why| unreadable(object, &why))?;
        Ok(match self.hooks.storage.convert {
            None => stored,
            Some(convert) => self.as_served(convert, stored),
        })
    }
}

fn unreadable(object: &Object, why: &DecodeError) -> ApiError {
    ApiError::internal_error(format!("the stored object {:?} cannot be read: {why}", object.name))
}

fn no_object() -> ApiError {
    ApiError::internal("the conversion gave no object")
}
