//! Kinds whose objects are kept as they were written, in whichever version, and fitted to a table when they are read.
//!
//! The versions of a custom kind come and go, and so do their schemas, while objects stay in the store as they were
//! written. What a version shows of an object is made when it is first asked for and kept with the object:
//!
//! ```text
//! stored         v1, before `late` had a default     {"apiVersion":"g/v1","kind":"T","spec":{"x":1,"old":2}}
//! fitted to v1   the present table                   {"apiVersion":"g/v1","kind":"T","spec":{"x":1,"late":"L"}}
//! fitted to v2   another table                       {"apiVersion":"g/v2","kind":"T","spec":{"x":1}}
//! ```
//!
//! The version that an object was stored in decides about what is absent in it: its defaults are filled in, and the
//! version that is asked for leaves out what it does not know. On the way in it is the other way round.
//!
//! Always true: an object that was written in the stored version under the present table is its own form, so most
//! objects are there once. Where another server converts, it is asked [before](Api::ready) the form is needed, about
//! all objects of an answer at once. What it said of a state of an object is believed for a while: it may come to
//! know better.

use crate::model::error::ApiError;
use crate::model::object::Object;
use crate::pipeline::api::Api;
use crate::storage::resource::Resource;
use bytes::Bytes;
use schema::table::{Ref, Type};
use schema::{Value, decode, defaults, encode};
use std::pin::Pin;
use std::sync::Arc;

/// How a version of such a kind relates to what is stored.
#[derive(Clone)]
pub struct Fit {
    /// Tells the table from all others that objects of the kind are or were fitted to; not 0.
    pub form: u64,
    /// The group and version that objects are stored in from now on.
    pub stored: String,
    /// Who converts between versions, where more than the name of the version changes.
    pub converter: Option<Arc<dyn Converter>>,
    /// The tables of all versions that there are.
    pub versions: Arc<[(String, Ref<Type>)]>,
}

pub type Converting<'a> = Pin<Box<dyn Future<Output = Result<Vec<Value>, ApiError>> + Send + 'a>>;

/// Converts objects to another version.
pub trait Converter: Send + Sync {
    /// Changes by one when what was answered so far is to be asked again.
    fn epoch(&self) -> u64;

    /// The objects in the version, in the same order; none of them is in it already.
    fn convert<'a>(&'a self, objects: Vec<Value>, version: &'a str) -> Converting<'a>;
}

/// How many objects one question is about.
const AT_ONCE: usize = 500;

impl Fit {
    /// Tells what was converted in this epoch, or one before.
    fn converted_form(&self, converter: &dyn Converter, before: u64) -> u64 {
        self.form.wrapping_add(converter.epoch().wrapping_sub(before))
    }

    /// Whether the object's own bytes are what a version of this form shows.
    pub(crate) fn is_form_of(&self, object: &Object) -> bool {
        object.made_for() == self.form
    }
}

impl Fit {
    fn table(&self, version: &str) -> Option<&Type> {
        self.versions.iter().find(|(name, _)| name == version).map(|(_, table)| &**table)
    }

    /// An object in the version that it is stored in, of which there may be no table any more.
    fn whole(&self, stored: Value) -> Value {
        let Some(table) = self.table(stored.text(&["apiVersion"])) else { return stored };
        let mut value = pruned(stored, table);
        defaults::apply(table, &mut value);
        value
    }

    /// An object of any version as it is kept.
    pub(crate) fn kept(&self, mut object: Value, version: &str) -> Value {
        object.set(&["apiVersion"], &*self.stored);
        let Some(table) = self.table(&self.stored).filter(|_| self.stored != version) else { return object };
        // metadata is the same in every version
        let metadata = object.unset(&["metadata"]).unwrap_or_default();
        let mut kept = pruned(object, table);
        kept.set(&["metadata"], metadata);
        kept
    }
}

/// What a table knows of an object. What does not fit at all is shown as it is rather than not at all.
fn pruned(object: Value, table: &Type) -> Value {
    let as_it_is = object.clone();
    decode::tree(object, table).map_or(as_it_is, |decoded| decoded.value)
}

impl Resource {
    /// What this version shows of an object, which was stored in this version or differs in its name only.
    pub(crate) fn fitted(&self, mut stored: Value) -> Value {
        stored.set(&["kind"], &*self.kind.name);
        let version = stored.text(&["apiVersion"]);
        let other = |fit: &&Fit| version != self.api_version && fit.table(version).is_some();
        if let Some(fit) = self.hooks.fit.as_ref().filter(other) {
            return self.shown(fit.whole(stored));
        }
        let mut value = self.shown(stored);
        defaults::apply(&self.kind.root, &mut value);
        value
    }

    /// What this version shows of an object that was converted to it.
    fn shown(&self, mut converted: Value) -> Value {
        converted.set(&["apiVersion"], &*self.api_version);
        pruned(converted, &self.kind.root)
    }

    /// The object's bytes in this form.
    pub(crate) fn fitted_json(&self, fit: &Fit, object: &Object) -> Bytes {
        if fit.is_form_of(object) {
            return object.json.clone();
        }
        // an epoch may end between the question and here
        if let Some(converter) = fit.converter.as_ref().filter(|_| !self.is_of_version(object)) {
            let known = |before| object.fitted_before(fit.converted_form(&**converter, before));
            if let Some(known) = known(0).or_else(|| known(1)) {
                return known;
            }
        }
        object.fitted(fit.form, || {
            let stored = object.value(&self.collection.kind).ok();
            let made = stored.map(|stored| encode::json(&self.fitted(stored), &self.kind.root));
            // most of what was written before a restart is its own form, too, and is not kept twice
            made.filter(|made| **made != *object.json).map_or_else(|| object.json.clone(), Bytes::from)
        })
    }

    /// Whether the object is stored as it would be if it were written now.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        let Some(fit) = &self.hooks.fit else { return !object.is_stale() };
        let own = fit.stored != self.api_version || self.fitted_json(fit, object) == object.json;
        own && object.json.starts_with(format!("{{\"apiVersion\":\"{}\",", fit.stored).as_bytes())
    }

    /// Whether the object is stored in this version.
    fn is_of_version(&self, object: &Object) -> bool {
        object.json.starts_with(&self.header)
    }

    /// Who must be asked about an object before it can be shown, and the form that the answer will be.
    fn converter_for(&self, object: &Object) -> Option<(u64, &Arc<dyn Converter>)> {
        let fit = self.hooks.fit.as_ref()?;
        let converter = fit.converter.as_ref()?;
        let known = fit.is_form_of(object) || self.is_of_version(object);
        let form = fit.converted_form(&**converter, 0);
        (!known && object.fitted_before(form).is_none()).then_some((form, converter))
    }

    /// Whether the object's own bytes are what this version shows, so that all who watch it can share them.
    pub fn shows_stored(&self, object: &Object) -> bool {
        self.hooks.fit.as_ref().is_none_or(|fit| fit.is_form_of(object))
    }

    /// Whether the object can be shown without asking anybody.
    pub fn is_ready(&self, object: &Object) -> bool {
        self.converter_for(object).is_none()
    }
}

impl Api {
    /// Has objects converted to the version of a resource where that takes another server.
    pub async fn ready(&self, resource: &Resource, objects: &[Arc<Object>]) -> Result<(), ApiError> {
        let mut waiting = Vec::new();
        for object in objects {
            if let Some((form, converter)) = resource.converter_for(object) {
                waiting.push((form, converter, object));
            }
        }
        for some in waiting.chunks(AT_ONCE) {
            let Some((_, converter, _)) = some.first() else { continue };
            let mut stored = Vec::with_capacity(some.len());
            for (_, _, object) in some {
                let read = object.value(&resource.collection.kind).map_err(|why| {
                    ApiError::internal_error(format!(
                        "the stored object {:?} cannot be read: {why}",
                        object.name
                    ))
                })?;
                stored.push(match &resource.hooks.fit {
                    Some(fit) => fit.whole(read),
                    None => read,
                });
            }
            let converted = converter.convert(stored, &resource.api_version).await?;
            for (value, (form, _, object)) in converted.into_iter().zip(some) {
                object.fitted(*form, || encode::json(&resource.shown(value), &resource.kind.root).into());
            }
        }
        Ok(())
    }

    /// An object of one version of a kind in another.
    pub async fn convert(&self, from: &Resource, to: &Resource, object: Value) -> Result<Value, ApiError> {
        if from.api_version == to.api_version {
            return Ok(object);
        }
        let Some(Fit { converter: Some(converter), .. }) = &from.hooks.fit else {
            return Ok(to.from(from, object));
        };
        let converted = converter.convert(vec![object], &to.api_version).await?;
        let converted = converted.into_iter().next();
        let converted = converted.ok_or_else(|| ApiError::internal("the conversion gave no object"))?;
        Ok(to.fitted(converted))
    }

    /// An object in the version that it is stored in, where that takes another server.
    pub(crate) async fn converted(&self, resource: &Resource, object: Value) -> Result<Value, ApiError> {
        let Some(Fit { stored, converter: Some(converter), .. }) = &resource.hooks.fit else {
            return Ok(object);
        };
        if *stored == resource.api_version {
            return Ok(object);
        }
        let converted = converter.convert(vec![object], stored).await?;
        converted.into_iter().next().ok_or_else(|| ApiError::internal("the conversion gave no object"))
    }
}
