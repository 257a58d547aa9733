//! Writes to objects that others write, too: a conflict is retried on the newest state.
//!
//! A write names the resource version that it was decided from, and fails with a conflict if the object has changed. If the
//! change does not affect the decision, the write is repeated on the new state.

use crate::client::Client;
use crate::error::{Failure, unless};
use crate::resource_api::Api;
use api::Resource;

/// The number of attempts before the key is reconciled anew.
const TRIES: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Main,
    Status,
}

/// Writes the status, which belongs to this loop alone, whatever else changes meanwhile. `None` if the object is gone.
pub async fn status<K: Resource>(
    client: &Client,
    object: &K,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    write(client, object, Part::Status, change).await
}

/// Writes an object, unless its generation has changed meanwhile: then the decision may be another, and the write fails
/// with a conflict. `None` if the object is gone.
pub async fn object<K: Resource>(
    client: &Client,
    object: &K,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    write(client, object, Part::Main, change).await
}

async fn write<K: Resource>(
    client: &Client,
    object: &K,
    part: Part,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    let api: Api<K> = Api::beside(client, object);
    let mut next = object.clone();
    let mut tries = 0;
    loop {
        tries += 1;
        change(&mut next);
        let written = match part {
            Part::Main => api.replace(&next).await,
            Part::Status => api.replace_status(&next).await,
        };
        match unless(404, written) {
            Err(conflict) if conflict.is_conflict() && tries < TRIES => {
                let Some(now) = api.get_opt(object.name()).await? else { return Ok(None) };
                if now.uid() != object.uid() {
                    return Ok(None);
                }
                if part == Part::Main && now.metadata().generation != object.metadata().generation {
                    return Err(conflict.into());
                }
                next = now;
            }
            answer => return Ok(answer?),
        }
    }
}
