//! Removal of the tracking finalizer from pods.

use super::view::TrackingNames;
use crate::Context;
use api::Resource;
use api::core::v1::Pod;
use client::{Api, Failure, Patch, unless};
use serde_json::json;

/// Removes the finalizer from a pod. Returns `None` if the pod is gone.
pub(super) async fn release(
    context: &Context,
    tracking: &TrackingNames,
    pod: &Pod,
) -> Result<Option<Pod>, Failure> {
    let metadata = json!({"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [tracking.finalizer]});
    let patch = Patch::strategic(json!({ "metadata": metadata }));
    let pods = Api::<Pod>::beside(&context.client, pod);
    match unless(404, pods.patch(pod.name(), &patch).await) {
        // another pod may have the name by now; otherwise it was a conflict, and the finalizer is still there
        Err(why) if why.is(409) || why.is(422) => match pods.get_opt(pod.name()).await? {
            Some(current) if current.uid() == pod.uid() => Err(why.into()),
            _ => Ok(None),
        },
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, server};
    use client::{Body, Client};
    use env::Simulated;
    use http::{Method, Request, Response};
    use names::Names;
    use serde_json::Value;
    use std::future::ready;

    /// The result for a pod with uid `a`, where the server answers patches with this code and has this pod.
    async fn released(code: u16, pod: Option<Value>) -> Result<Option<Pod>, Failure> {
        let client = Client::new(server(move |request: Request<Body>| {
            let (code, body) = match (request.method() == Method::PATCH, &pod) {
                (true, _) => {
                    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}))
                }
                (false, Some(pod)) => (200, pod.clone()),
                (false, None) => {
                    (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}))
                }
            };
            let response = Response::builder().status(code).header("Content-Type", "application/json");
            ready(Ok(response.body(Body::from(body.to_string())).unwrap()))
        }));
        let context = Context::new(client, Simulated::new(0, 7), Names::kubernetes());
        let pod = object(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "a"}}));
        release(&context, &TrackingNames::new(&Names::kubernetes()), &pod).await
    }

    #[tokio::test]
    async fn a_conflict_about_the_same_pod_is_a_failure() {
        let pod = |uid: &str| json!({"metadata": {"name": "p", "namespace": "ns", "uid": uid}});
        for code in [409, 422] {
            assert!(released(code, Some(pod("a"))).await.is_err(), "it has its finalizer still");
            assert!(released(code, Some(pod("b"))).await.unwrap().is_none(), "another pod has the name");
            assert!(released(code, None).await.unwrap().is_none());
        }
        assert!(released(404, Some(pod("a"))).await.unwrap().is_none());
        assert!(released(500, None).await.is_err());
    }
}
