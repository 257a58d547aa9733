//! Writes in the server's own name: objects that every cluster has, and the books it keeps.
//!
//! They pass what every write passes. The server is among the masters, so nothing is forbidden to it.

use rest::input::{Format, Input};
use rest::options::WriteOptions;
use rest::{Api, ApiError, Requester, Resource, Writing, Written};
use schema::Value;
use std::sync::Arc;

/// Where an object is written.
pub(crate) struct Place<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    /// Of the object that is updated; empty to create one.
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
}

/// Who the server is when it writes.
pub(crate) fn itself() -> Requester {
    Requester {
        name: auth::APISERVER.to_owned(),
        groups: vec![auth::MASTERS.to_owned()],
        ..Requester::default()
    }
}

/// Creates or updates an object.
pub(crate) async fn write(api: &Api, place: Place<'_>, object: &Value) -> Result<Written, ApiError> {
    let Place { resource, namespace, name, subresource } = place;
    let mut writing = Writing {
        resource,
        namespace,
        name,
        subresource,
        options: &WriteOptions::default(),
        user: &itself(),
        manager: &format!("{}-apiserver", api.names.prefix),
        owned: false,
        warnings: Vec::new(),
    };
    let input = Input { bytes: schema::encode::untyped(object).into(), format: Format::Json };
    if name.is_empty() {
        api.create(&mut writing, &input).await
    } else {
        api.update(&mut writing, &input).await
    }
}
