//! Writes in the server's own name.
//!
//! They pass what every write passes. The server is among the masters, so nothing is forbidden to it.

use rest::options::WriteOptions;
use rest::{Api, ApiError, Requester, Resource, WriteOutcome, WriteRequest};
use rest::{Format, Input};
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

impl<'a> Place<'a> {
    fn writing(self, options: &'a WriteOptions, user: &'a Requester, manager: &'a str) -> WriteRequest<'a> {
        let Place { resource, namespace, name, subresource } = self;
        WriteRequest {
            resource,
            namespace,
            name,
            subresource,
            options,
            user,
            manager,
            owned: false,
            warnings: Vec::new(),
        }
    }
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
pub(crate) async fn write(api: &Api, place: Place<'_>, object: &Value) -> Result<WriteOutcome, ApiError> {
    write_as(api, place, &own_name(api), object).await
}

/// The same in the name of a part of the server: it owns the fields.
pub(crate) async fn write_as(
    api: &Api,
    place: Place<'_>,
    manager: &str,
    object: &Value,
) -> Result<WriteOutcome, ApiError> {
    let new = place.name.is_empty();
    let (options, user) = (WriteOptions::default(), itself());
    let mut writing = place.writing(&options, &user, manager);
    if new {
        api.create(&mut writing, &input(object)).await
    } else {
        api.update(&mut writing, &input(object)).await
    }
}

/// What came of making something that every server of a cluster makes when it starts: one that was faster did the same.
pub(crate) fn or_another_did(made: Result<(), ApiError>) -> Result<(), ApiError> {
    made.or_else(|why| if why.code == 409 { Ok(()) } else { Err(why) })
}

/// Changes an object where it is, which spares it the way through text.
pub(crate) async fn change(
    api: &Api,
    place: Place<'_>,
    change: &(dyn Fn(&mut Value) + Send + Sync),
) -> Result<WriteOutcome, ApiError> {
    let (options, user) = (WriteOptions::default(), itself());
    let manager = own_name(api);
    api.alter(&mut place.writing(&options, &user, &manager), change).await
}

/// What it is called as an owner of fields.
fn own_name(api: &Api) -> String {
    format!("{}-apiserver", api.names.prefix)
}

/// Applies an object, whoever else owns its fields.
pub(crate) async fn apply(
    api: &Api,
    place: Place<'_>,
    manager: &str,
    object: &Value,
) -> Result<WriteOutcome, ApiError> {
    let options =
        WriteOptions { force: Some(true), field_manager: manager.to_owned(), ..WriteOptions::default() };
    let user = itself();
    api.apply(&mut place.writing(&options, &user, manager), &input(object)).await
}

fn input(object: &Value) -> Input {
    Input { bytes: schema::encode::untyped(object).into(), format: Format::Json }
}
