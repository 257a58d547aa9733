//! Loopback writes: API writes in the name of the server itself.
//!
//! They pass the whole write path. The server is in the masters group, so every write is authorized.

use rest::options::WriteOptions;
use rest::{Api, ApiError, Requester, Resource, WriteOutcome, WriteRequest};
use rest::{Format, Input};
use schema::Value;
use std::sync::Arc;

/// The target of a write.
pub(crate) struct WriteTarget<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    /// Name of the object to update; empty to create one.
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
}

impl<'a> WriteTarget<'a> {
    fn write_request(
        self,
        options: &'a WriteOptions,
        user: &'a Requester,
        manager: &'a str,
    ) -> WriteRequest<'a> {
        let WriteTarget { resource, namespace, name, subresource } = self;
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

/// The server's own user.
pub(crate) fn own_user() -> Requester {
    Requester {
        name: auth::APISERVER.to_owned(),
        groups: vec![auth::MASTERS.to_owned()],
        ..Requester::default()
    }
}

/// Creates or updates an object.
pub(crate) async fn write(
    api: &Api,
    target: WriteTarget<'_>,
    object: &Value,
) -> Result<WriteOutcome, ApiError> {
    write_as(api, target, &own_manager(api), object).await
}

/// Like [`write`], with a field manager of its own.
pub(crate) async fn write_as(
    api: &Api,
    target: WriteTarget<'_>,
    manager: &str,
    object: &Value,
) -> Result<WriteOutcome, ApiError> {
    let new = target.name.is_empty();
    let (options, user) = (WriteOptions::default(), own_user());
    let mut write_request = target.write_request(&options, &user, manager);
    if new {
        api.create(&mut write_request, &input(object)).await
    } else {
        api.update(&mut write_request, &input(object)).await
    }
}

/// Treats a conflict as success, for objects that every server of a cluster creates at startup.
pub(crate) fn ignore_conflict(result: Result<(), ApiError>) -> Result<(), ApiError> {
    result.or_else(|why| if why.code == 409 { Ok(()) } else { Err(why) })
}

/// Changes an object in place, without encoding it.
pub(crate) async fn change(
    api: &Api,
    target: WriteTarget<'_>,
    change: &(dyn Fn(&mut Value) + Send + Sync),
) -> Result<WriteOutcome, ApiError> {
    let (options, user) = (WriteOptions::default(), own_user());
    let manager = own_manager(api);
    api.alter(&mut target.write_request(&options, &user, &manager), change).await
}

/// The field manager of the server.
fn own_manager(api: &Api) -> String {
    format!("{}-apiserver", api.names.prefix)
}

/// Applies an object by force.
pub(crate) async fn apply(
    api: &Api,
    target: WriteTarget<'_>,
    manager: &str,
    object: &Value,
) -> Result<WriteOutcome, ApiError> {
    let options =
        WriteOptions { force: Some(true), field_manager: manager.to_owned(), ..WriteOptions::default() };
    let user = own_user();
    api.apply(&mut target.write_request(&options, &user, manager), &input(object)).await
}

fn input(object: &Value) -> Input {
    Input { bytes: schema::encode::untyped(object).into(), format: Format::Json }
}
