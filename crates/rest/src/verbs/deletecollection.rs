//! Deletecollection: deletes the objects of a list, a few at a time.

use crate::model::context::Requester;
use crate::model::error::ApiError;
use crate::model::options::{DeleteOptions, ListOptions};
use crate::pipeline::api::Api;
use crate::storage::resource::Resource;
use crate::verbs::list::Page;
use std::sync::Arc;
use tokio::task::JoinSet;

impl Api {
    /// Deletes the objects of a list with these options; returns the list.
    pub async fn delete_collection(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        namespace: &str,
        list: &ListOptions,
        options: &DeleteOptions,
        user: &Requester,
        workers: usize,
    ) -> Result<Page, ApiError> {
        let page = self.list(resource, namespace, list).await?;
        let mut running: JoinSet<Result<(), ApiError>> = JoinSet::new();
        let mut first_error = None;
        for object in &page.items {
            while running.len() >= workers.max(1) {
                note(running.join_next().await, &mut first_error);
            }
            if first_error.is_some() {
                break;
            }
            let (api, resource, object) = (self.clone(), resource.clone(), object.clone());
            let (options, user) = (options.clone(), user.clone());
            running.spawn(async move {
                match api.delete_unnamed(&resource, (&object.namespace, &object.name), &options, &user).await
                {
                    // another request has deleted it
                    Err(why) if why.code == 404 => Ok(()),
                    other => other.map(|_| ()),
                }
            });
        }
        while let Some(done) = running.join_next().await {
            note(Some(done), &mut first_error);
        }
        first_error.map_or(Ok(page), Err)
    }
}

fn note(done: Option<Result<Result<(), ApiError>, tokio::task::JoinError>>, first: &mut Option<ApiError>) {
    let failed = match done {
        Some(Ok(Err(why))) => why,
        Some(Err(why)) => ApiError::internal_error(why.to_string()),
        _ => return,
    };
    first.get_or_insert(failed);
}
