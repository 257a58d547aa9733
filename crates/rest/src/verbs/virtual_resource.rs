//! Answer: kinds whose objects are made to be answered and never kept.
//!
//! A creation passes what every creation passes, decoding, defaults and the record of who owns which field,
//! and is then filled in rather than stored. Reading shows what there is at the moment. Nothing has a uid, a
//! revision or a time of creation.

use crate::model::error::ApiError;
use crate::model::hooks::{Part, Requester};
use crate::model::object::Object;
use crate::model::options::ListOptions;
use crate::model::selector::Selector;
use crate::pipeline::admission::{AdmissionAttributes, Form, Operation};
use crate::pipeline::api::Api;
use crate::pipeline::decode::{Expected, Input};
use crate::pipeline::write::{WriteOutcome, WriteRequest};
use crate::storage::resource::Resource;
use crate::verbs::list::Page;
use env::MaybeReady;
use schema::{Value, defaults, encode};
use std::sync::Arc;

/// What there is to say about a kind. What the kind's verbs do not reach need not be there.
pub trait Answer: Send + Sync {
    /// The object as it is answered, given as it was sent.
    fn create<'a>(&'a self, _: Value, _: &'a Asking<'a>) -> MaybeReady<'a, Result<Value, ApiError>> {
        Err(ApiError::method_not_allowed()).into()
    }

    /// Fills in what those are shown who have the last word about what was sent.
    fn prepare(&self, _: &mut Value, _: &Asking<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// All objects that there are now, with their metadata.
    fn all(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Told for a name that none of them has.
    fn missing(&self, resource: &Resource, name: &str) -> ApiError {
        ApiError::not_found(resource.subject(name))
    }
}

/// Who asks, and where.
pub struct Asking<'a> {
    pub api: &'a Api,
    pub resource: &'a Resource,
    pub namespace: &'a str,
    /// The object whose subresource is meant; empty otherwise.
    pub name: &'a str,
    pub user: &'a Requester,
}

impl Api {
    /// Answers a creation.
    pub async fn answer(
        &self,
        writing: &mut WriteRequest<'_>,
        answer: &dyn Answer,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let mut object = self.read(writing, input)?;
        writing.place(&mut object)?;
        writing.default(&mut object, &self.names);
        self.track(writing, None, &mut object);
        let name = object.text(&["metadata", "name"]).to_owned();
        let write = writing.admitted(self, Operation::Create, &name);
        self.admit(&write, Some(&mut object), None).await?;
        self.settle_admission(&write, &object, None).await?;
        let answered = answer.create(object, &self.asking(writing)).get().await?;
        Ok(WriteOutcome { created: true, json: writing.encode(&answered), revision: None })
    }

    /// Answers a post to a subresource.
    pub async fn answer_part(
        &self,
        writing: &mut WriteRequest<'_>,
        part: &Part,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let root = &part.kind.root;
        let group = part.kind.group.full(&self.names.api_domain);
        let api_version = crate::storage::resource::api_version(&group, &part.kind.version);
        let expected = Expected {
            ty: root,
            kind: &part.kind.name,
            api_version: &api_version,
            known: &|version, kind| self.resources().has_kind(version, kind),
        };
        let mut object = input.typed(&expected, writing.options.field_validation, &mut writing.warnings)?;
        writing.user.notes.saw_object(&object, || {
            let mut shown = object.clone();
            defaults::apply(root, &mut shown);
            encode::json(&shown, root).into()
        });
        writing.place(&mut object)?;
        defaults::apply(root, &mut object);
        self.track_as(writing, writing.resource, (root, &api_version), None, &mut object);
        let form = Form { kind: &part.kind.name, api_version: &api_version, ty: root };
        let write = AdmissionAttributes {
            other: Some(form),
            ..writing.admitted(self, Operation::Create, writing.name)
        };
        self.admit(&write, Some(&mut object), None).await?;
        part.answer.prepare(&mut object, &self.asking(writing))?;
        self.settle_admission(&write, &object, None).await?;
        let answered = part.answer.create(object, &self.asking(writing)).get().await?;
        Ok(WriteOutcome { created: true, json: encode::json(&answered, root).into(), revision: None })
    }

    fn asking<'a>(&'a self, writing: &WriteRequest<'a>) -> Asking<'a> {
        let WriteRequest { resource, namespace, name, user, .. } = writing;
        Asking { api: self, resource, namespace, name, user }
    }

    /// All that there is now and that the selectors let through, in one page without a revision.
    pub fn answer_list(
        &self,
        resource: &Resource,
        answer: &dyn Answer,
        options: &ListOptions,
    ) -> Result<Page, ApiError> {
        let selector = Selector::parse(&options.label_selector, &options.field_selector, resource)?;
        let made = answer.all().into_iter().map(|value| self.passing(resource, value));
        let items = made.filter(|object| selector.matches(object)).collect();
        Ok(Page { revision: 0, items, continue_token: String::new(), remaining: None })
    }

    /// One of them.
    pub fn answer_get(
        &self,
        resource: &Resource,
        answer: &dyn Answer,
        name: &str,
    ) -> Result<Arc<Object>, ApiError> {
        let mut all = answer.all().into_iter();
        let found = all.find(|value| value.text(&["metadata", "name"]) == name);
        match found {
            Some(value) => Ok(self.passing(resource, value)),
            None => Err(answer.missing(resource, name)),
        }
    }

    fn passing(&self, resource: &Resource, mut value: Value) -> Arc<Object> {
        value.set(&["kind"], &*resource.kind.name);
        value.set(&["apiVersion"], &*resource.api_version);
        Object::passing(&value, &resource.collection)
    }
}
