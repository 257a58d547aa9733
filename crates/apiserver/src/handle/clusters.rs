//! `/simulation/clusters`: forks of a cluster in memory, in the same process.
//!
//! POST starts one with the objects, keys and certificates of this cluster, and returns its address and kubeconfig. GET
//! lists them, DELETE of `/simulation/clusters/NAME` stops one. Only who may use these paths, the administrators by
//! default, has forks made.

use super::request_context::RequestContext;
use super::service::Service;
use crate::options::deployment::ForkInfo;
use crate::serve::Body;
use futures_util::TryStreamExt;
use http::header::{self, HeaderValue};
use http::{Method, Response};
use rest::{ApiError, Subject};
use schema::Value;

/// The path of all forks.
const PATH: &str = "/simulation/clusters";

/// The name of a fork in a path; empty for all of them.
pub(super) fn parse(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(PATH)?;
    match rest.strip_prefix('/') {
        None => rest.is_empty().then_some(""),
        Some(name) => (!name.is_empty() && !name.contains('/')).then_some(name),
    }
}

impl Service {
    pub(super) async fn serve_clusters(
        &self,
        context: &RequestContext<'_>,
        name: &str,
    ) -> Result<Response<Body>, ApiError> {
        let Some(clusters) = &self.clusters else { return Err(ApiError::no_such_path()) };
        let user = &context.user.name;
        match (&context.info.method, name) {
            (&Method::GET, "") => {
                let mut out = Value::map();
                out.set(&["items"], Value::List(clusters.list().iter().map(value).collect()));
                Ok(json(&out))
            }
            (&Method::POST, "") => {
                let unavailable = |why: store::StoreError| ApiError::unavailable(why.to_string());
                let snapshot = self.take_snapshot().await.map_err(unavailable)?;
                let pages: Vec<_> = snapshot.pages.try_collect().await.map_err(unavailable)?;
                let records = pages.into_iter().flatten().collect();
                let now = env::unix_seconds(&self.api.world);
                let fork = clusters.fork((snapshot.revision, now, records)).await;
                let fork = fork.map_err(ApiError::unavailable)?;
                tracing::info!(user, name = fork.name, server = fork.server, "the cluster was forked");
                Ok(json(&value(&fork)))
            }
            (&Method::DELETE, name) if !name.is_empty() => match clusters.stop(name).await {
                true => {
                    tracing::info!(user, name, "a fork was stopped");
                    Ok(json(&Value::map()))
                }
                false => Err(ApiError::not_found(Subject { group: "", kind: "clusters", name })),
            },
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

fn value(fork: &ForkInfo) -> Value {
    let mut out = Value::map();
    out.set(&["name"], &*fork.name);
    out.set(&["server"], &*fork.server);
    out.set(&["kubeconfig"], &*fork.kubeconfig);
    out
}

fn json(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::full(schema::encode::untyped(value)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_all_forks_or_one() {
        assert_eq!(parse("/simulation/clusters"), Some(""));
        assert_eq!(parse("/simulation/clusters/fork-1"), Some("fork-1"));
        for other in
            ["/simulation/clusters/", "/simulation/clusters/a/b", "/simulation/clustersx", "/simulation"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
