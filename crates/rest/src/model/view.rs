//! Views: subresources that show their object as another kind, such as `scale`.
//!
//! A view and its object have one field in common; a write through the view can change that field and no other.

use crate::model::error::ApiError;
use crate::model::form::Form;
use bytes::Bytes;
use schema::problem::Problems;
use schema::table::{Kind, Ref, Text};
use schema::{Value, encode};
use std::sync::Arc;
use std::time::Duration;

/// How objects of one kind are shown as another.
#[derive(Clone)]
pub struct View {
    /// The name of the subresource.
    pub name: Text,
    pub kind: Ref<Kind>,
    /// The path of the common field in the object.
    pub inside: Vec<Text>,
    /// The path of the common field in the view.
    pub outside: Vec<Text>,
    /// The value of the common field when the view leaves it out.
    pub absent: Value,
    /// Everything of the view but its kind and metadata.
    pub show: Arc<dyn Fn(&Value) -> Value + Send + Sync>,
    /// Rules of the view beyond those of its metadata and table.
    pub validate: fn(&Value) -> Problems,
    pub cells: Option<fn(&Value, Duration) -> Vec<Value>>,
    pub missing: NotFoundSubject,
    /// The path of the common field as a custom resource definition declares it: an object without the field cannot
    /// be read, and a write need not name a version.
    pub declared_at: Option<Text>,
    /// The error of an object whose values do not have the types of the view.
    pub mismatch: Option<Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>>,
}

/// How the error of a missing object names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFoundSubject {
    /// As an object: `things.group`.
    Object,
    /// As a part of an object: `things/view.group`.
    Part,
    /// As a part of an object, in the group of the view.
    PartOfView,
}

impl View {
    /// The view of an object, as clients read it.
    pub(crate) fn of(&self, object: &Value, served: Form<'_>) -> Value {
        let mut view = (self.show)(object);
        view.set(&["kind"], served.kind);
        view.set(&["apiVersion"], served.api_version);
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object.at(&["metadata", field]) {
                view.set(&["metadata", field], value.clone());
            }
        }
        view
    }

    /// Checks that an object can be shown.
    pub(crate) fn check(&self, object: &Value) -> Result<(), ApiError> {
        let why = self.mismatch.as_ref().and_then(|mismatch| mismatch(object));
        why.map_or(Ok(()), |why| Err(ApiError::internal(why)))
    }

    pub(crate) fn json(&self, object: &Value, served: Form<'_>) -> Bytes {
        encode::json(&self.of(object, served), served.ty).into()
    }
}

/// The field at a path; absent where it is null.
pub(crate) fn field_at<'v>(value: &'v Value, path: &[Text]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| value.as_map()?.get(step)).filter(|it| !it.is_null())
}
