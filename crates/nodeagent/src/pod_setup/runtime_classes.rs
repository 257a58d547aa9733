//! The handlers of runtime classes.
//!
//! An informer of all classes starts with the first pod that names one, so that sandboxes are made while the API server is
//! away; a node without such pods watches nothing. A class that the informer does not have, or not yet, is read by a
//! request: it may have been created just before its pod, and the agent may have no right to list. An agent without an
//! API server uses the usual handler for all pods, as upstream.

use api::Kinded;
use api::core::v1::Pod;
use api::node::v1::RuntimeClass;
use client::{Api, InformerFactory, Key};

/// See the module.
pub struct RuntimeClasses {
    /// Absent without an API server.
    factory: Option<InformerFactory>,
}

fn class_of(pod: &Pod) -> Option<&str> {
    pod.spec.runtime_class_name.as_deref().filter(|it| !it.is_empty())
}

impl RuntimeClasses {
    pub fn new(factory: Option<InformerFactory>) -> Self {
        RuntimeClasses { factory }
    }

    /// Begins to watch classes if a pod names one.
    pub fn expect(&self, pod: &Pod) {
        if let Some(factory) = self.factory.as_ref().filter(|_| class_of(pod).is_some()) {
            drop(factory.informer::<RuntimeClass>());
        }
    }

    /// The handler of a pod's class; empty for the usual one.
    pub async fn handler(&self, pod: &Pod) -> Result<String, String> {
        let (Some(class), Some(factory)) = (class_of(pod), &self.factory) else {
            return Ok(String::new());
        };
        if let Some(found) = factory.informer::<RuntimeClass>().get(&Key::new("", class)) {
            return Ok(found.handler.clone());
        }
        match Api::<RuntimeClass>::all(factory.client()).get(class).await {
            Ok(found) => Ok(found.handler),
            Err(why) if why.is_not_found() => {
                let (kind, group) = (RuntimeClass::kind(), RuntimeClass::group());
                Err(format!("{}.{group} \"{class}\" not found", kind.name.to_lowercase()))
            }
            Err(why) => Err(format!("failed to lookup RuntimeClass {class}: {}", why.message())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::pod;
    use client::{Body, Client};
    use http::{Request, Response};
    use parking_lot::Mutex;
    use std::future::{Ready, ready};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    const CLASS: &str = r#"{"metadata":{"name":"sandboxed","resourceVersion":"1"},"handler":"runsc"}"#;

    /// An API server with one class.
    #[derive(Clone, Default)]
    struct ApiServer {
        is_away: Arc<AtomicBool>,
        /// Whether lists and watches are forbidden.
        has_get_alone: bool,
        requests: Arc<Mutex<Vec<String>>>,
    }

    impl tower_service::Service<Request<Body>> for ApiServer {
        type Response = Response<Body>;
        type Error = io::Error;
        type Future = Ready<Result<Response<Body>, io::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let path = request.uri().path().trim_start_matches("/apis/node.k8s.io/v1/").to_owned();
            self.requests.lock().push(path.clone());
            let status = |code: u16, reason: &str| {
                (code, format!(r#"{{"kind":"Status","status":"Failure","code":{code},"reason":"{reason}"}}"#))
            };
            let list = || format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{CLASS}]}}"#);
            let is_watch = request.uri().query().is_some_and(|it| it.contains("watch="));
            let (code, text) = match &*path {
                _ if self.is_away.load(Ordering::Acquire) || is_watch => {
                    return ready(Err(io::ErrorKind::ConnectionRefused.into()));
                }
                "runtimeclasses" if self.has_get_alone => status(403, "Forbidden"),
                "runtimeclasses" => (200, list()),
                "runtimeclasses/sandboxed" => (200, CLASS.to_owned()),
                _ => status(404, "NotFound"),
            };
            ready(Ok(Response::builder().status(code).body(text.into()).unwrap()))
        }
    }

    fn pod_with(class: &str) -> Arc<Pod> {
        pod(&format!(r#"{{"runtimeClassName":"{class}"}}"#))
    }

    #[tokio::test]
    async fn a_runtime_class_is_known_while_the_api_server_is_away() {
        let server = ApiServer::default();
        let factory = InformerFactory::new(Client::new(server.clone()));
        let classes = RuntimeClasses::new(Some(factory.clone()));
        let pod = pod_with("sandboxed");
        classes.expect(&pod);
        factory.informer::<RuntimeClass>().synced().await;
        server.is_away.store(true, Ordering::Release);
        assert_eq!(classes.handler(&pod).await, Ok("runsc".to_owned()));
        let why = classes.handler(&pod_with("other")).await.unwrap_err();
        assert!(why.starts_with("failed to lookup RuntimeClass other: "), "{why}");
    }

    #[tokio::test]
    async fn a_runtime_class_needs_no_right_to_list() {
        let server = ApiServer { has_get_alone: true, ..ApiServer::default() };
        let classes = RuntimeClasses::new(Some(InformerFactory::new(Client::new(server))));
        assert_eq!(classes.handler(&pod_with("sandboxed")).await, Ok("runsc".to_owned()));
        let why = classes.handler(&pod_with("other")).await;
        assert_eq!(why, Err("runtimeclass.node.k8s.io \"other\" not found".to_owned()));
    }

    #[tokio::test]
    async fn pods_without_a_runtime_class_cause_no_request() {
        let server = ApiServer::default();
        let classes = RuntimeClasses::new(Some(InformerFactory::new(Client::new(server.clone()))));
        for spec in ["{}", r#"{"runtimeClassName":""}"#] {
            classes.expect(&pod(spec));
            assert_eq!(classes.handler(&pod(spec)).await, Ok(String::new()));
        }
        tokio::task::yield_now().await;
        assert!(server.requests.lock().is_empty(), "{:?}", server.requests.lock());
    }

    #[tokio::test]
    async fn an_agent_without_an_api_server_uses_the_usual_handler() {
        let classes = RuntimeClasses::new(None);
        assert_eq!(classes.handler(&pod_with("sandboxed")).await, Ok(String::new()));
    }
}
