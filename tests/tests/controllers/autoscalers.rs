//! Horizontal pod autoscalers.

use apiserver::serve::{Body, InMemory};
use auth::User;
use bytes::Bytes;
use controllers::{Context, horizontalpodautoscaling, registry};
use http::{Request, Response};
use http_body_util::{Either, Full};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, Client};
use names::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Waker, Poll};
use std::time::Duration;
use tests::agent::set_status;
use tests::{Cluster, ManagedCluster, Options, until};
use tower_service::Service;

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// The measured values, by path.
type Measured = Arc<Mutex<BTreeMap<String, Value>>>;

/// A way to the server behind which others serve metrics.
#[derive(Clone)]
struct WithMetrics {
    inner: InMemory,
    measured: Measured,
}

impl<B> Service<Request<B>> for WithMetrics
where
    InMemory: Service<Request<B>, Response = Response<Body>, Error = io::Error>,
    <InMemory as Service<Request<B>>>::Future: Send + 'static,
{
    type Response = Response<Either<Full<Bytes>, Body>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Waker<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let found = self.measured.lock().unwrap().get(request.uri().path()).cloned();
        if let Some(found) = found {
            let body = Full::new(Bytes::from(found.to_string()));
            return Box::pin(async { Ok(Response::new(Either::Left(body))) });
        }
        let answer = self.inner.call(request);
        Box::pin(async { Ok(answer.await?.map(Either::Right)) })
    }
}

fn autoscaler(name: &str, spec: Value) -> Value {
    let mut base = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
        "minReplicas": 2, "maxReplicas": 8,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]
    });
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": base})
}

/// A replica set with so many replicas, whose status says that they are there, and pods.
async fn replica_set(cluster: &Cluster, replicas: i32, pods: &[&str]) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    cluster.create(SETS, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let status = json!({"status": {"replicas": pods.len()}});
    cluster.patch(&format!("{SETS}/web/status"), status).await.code(200);
    for name in pods {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": template["spec"]});
        cluster.create("/api/v1/namespaces/default/pods", pod).await;
        let api: Api<Pod> = Api::namespaced(client(cluster), "default");
        set_status(&api, name, "Running", "True").await;
        let begun = json!({"status": {"startTime": "2023-11-14T00:00:00Z"}});
        cluster.patch(&format!("/api/v1/namespaces/default/pods/{name}/status"), begun).await.code(200);
    }
}

fn client(cluster: &Cluster) -> Client {
    let transport = InMemory::new(cluster.server.service.clone(), User::apiserver(), "test");
    Client::new(transport, names::DEFAULT_NAMESPACE)
}

async fn status(
    client: Client,
    what: &str,
    name: &str,
    holds: impl Fn(&HorizontalPodAutoscalerStatus) -> bool,
) -> HorizontalPodAutoscalerStatus {
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client, "default");
    let all = until(what, &api, |all| all[name].status.as_ref().is_some_and(&holds)).await;
    all[name].status.clone().unwrap()
}

fn condition(status: &HorizontalPodAutoscalerStatus, kind: &str) -> (String, String) {
    let found = status.conditions.iter().flatten().find(|it| it.type_ == kind);
    found.map_or_else(Default::default, |it| (it.status.clone(), it.reason.clone().unwrap_or_default()))
}

fn is(status: &HorizontalPodAutoscalerStatus, kind: &str, holds: &str, reason: &str) -> bool {
    condition(status, kind) == (holds.to_owned(), reason.to_owned())
}

fn used(cpu: &[(&str, &str)]) -> Value {
    let of = |(name, cpu): &(&str, &str)| {
        json!({
            "metadata": {"name": name}, "timestamp": "2023-11-14T22:13:20Z", "window": "30s",
            "containers": [{"name": "c", "usage": {"cpu": cpu}}]
        })
    };
    json!({"items": cpu.iter().map(of).collect::<Vec<_>>()})
}

#[tokio::test]
async fn without_metrics_only_the_limits_apply() {
    let mut managed = ManagedCluster::start(&["horizontalpodautoscaling"]).await;
    replica_set(&managed.cluster, 1, &["a"]).await;
    managed.cluster.create(AUTOSCALERS, autoscaler("h", json!({}))).await;
    let raised = status(managed.client(), "to be raised", "h", |it| it.desired_replicas == 2).await;
    assert!(is(&raised, "AbleToScale", "True", "SucceededRescale") && raised.last_scale_time.is_some());
    assert_eq!(managed.cluster.read(&format!("{SETS}/web")).await["spec"]["replicas"], 2);
    // no metrics API is served here
    managed.restart_loops().await;
    let unknown =
        |it: &HorizontalPodAutoscalerStatus| is(it, "ScalingActive", "False", "FailedGetResourceMetric");
    let lost = status(managed.client(), "metrics to be missed", "h", unknown).await;
    assert_eq!(lost.current_replicas, Some(2));
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    until("events", &events, |all| {
        let has_reason = |reason: &str| all.values().any(|it| it.reason.as_deref() == Some(reason));
        has_reason("SuccessfulRescale")
            && has_reason("FailedGetResourceMetric")
            && has_reason("FailedComputeMetricsReplicas")
    })
    .await;
    // none at all is how people switch it off
    managed.cluster.patch(&format!("{SETS}/web"), json!({"spec": {"replicas": 0}})).await.code(200);
    managed.restart_loops().await;
    let off = |it: &HorizontalPodAutoscalerStatus| is(it, "ScalingActive", "False", "ScalingDisabled");
    status(managed.client(), "to be switched off", "h", off).await;
    managed.cluster.patch(&format!("{SETS}/web"), json!({"spec": {"replicas": 20}})).await.code(200);
    managed.restart_loops().await;
    status(managed.client(), "to be lowered", "h", |it| it.desired_replicas == 8).await;
    // the target is deleted
    managed.cluster.delete(&format!("{SETS}/web")).await.code(200);
    managed.restart_loops().await;
    let gone = |it: &HorizontalPodAutoscalerStatus| is(it, "AbleToScale", "False", "FailedGetScale");
    status(managed.client(), "its target to be missed", "h", gone).await;
}

#[tokio::test]
async fn replicas_follow_metrics() {
    let cluster = Cluster::with(Options::default()).await;
    replica_set(&cluster, 3, &["a", "b", "c"]).await;
    let measured = Measured::default();
    let measure = |path: &str, value: Value| measured.lock().unwrap().insert(path.to_owned(), value);
    let usage = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
    measure(usage, used(&[("a", "900m"), ("b", "900m"), ("c", "900m")]));
    let inner = InMemory::new(cluster.server.service.clone(), User::apiserver(), "test");
    let transport = WithMetrics { inner, measured: measured.clone() };
    let client = Client::new(transport.clone(), names::DEFAULT_NAMESPACE);
    let context = Context::new(client::Client::new(transport), cluster.world.clone(), Names::kubernetes());
    let scaling = horizontalpodautoscaling::Options {
        sync_period: Duration::from_millis(20),
        ..horizontalpodautoscaling::Options::default()
    };
    let controllers = vec!["horizontalpodautoscaling".to_owned()];
    let options = registry::Options {
        controllers,
        horizontal_pod_autoscaling: scaling,
        ..registry::Options::default()
    };
    let running = tokio::spawn(async move { registry::run(context, &options).await });
    let rules = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    cluster.create(AUTOSCALERS, autoscaler("h", rules)).await;
    let up = status(client.clone(), "to be raised", "h", |it| it.desired_replicas == 6).await;
    assert!(is(&up, "ScalingActive", "True", "ValidMetricFound"), "{up:?}");
    let seen = up.current_metrics.as_ref().unwrap()[0].resource.as_ref().unwrap();
    assert_eq!(seen.current.average_utilization, Some(90));
    assert_eq!(seen.current.average_value.as_ref().unwrap().0, "900m");
    measure(usage, used(&[("a", "100m"), ("b", "100m"), ("c", "100m")]));
    status(client.clone(), "to be lowered", "h", |it| it.desired_replicas == 2).await;
    // the metric that asks for the most counts
    measure(
        "/apis/custom.metrics.k8s.io",
        json!({
            "name": "custom.metrics.k8s.io", "versions": [], "preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"}
        }),
    );
    let value = |name: &str, value: &str| json!({"describedObject": {"name": name}, "metric": {"name": "m"}, "timestamp": "2023-11-14T22:13:20Z", "value": value});
    let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
    measure(
        &format!("{custom}/pods/*/qps"),
        json!({"items": [value("a", "20"), value("b", "30"), value("c", "40")]}),
    );
    measure(&format!("{custom}/services/front/hits"), json!({"items": [value("front", "1k")]}));
    measure(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/waiting",
        json!({"items": [{"value": "3"}, {"value": "4"}]}),
    );
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": average("15")}});
    let front = json!({"apiVersion": "v1", "kind": "Service", "name": "front"});
    let object = json!({"type": "Object", "object": {"describedObject": front, "metric": {"name": "hits"}, "target": {"type": "Value", "value": "600"}}});
    let external =
        json!({"type": "External", "external": {"metric": {"name": "waiting"}, "target": average("1")}});
    let set =
        |metrics: Value| cluster.patch(&format!("{AUTOSCALERS}/h"), json!({"spec": {"metrics": metrics}}));
    set(json!([pods])).await.code(200);
    status(client.clone(), "twice as many", "h", |it| it.desired_replicas == 6).await;
    set(json!([pods, object, external])).await.code(200);
    let most = status(client.clone(), "what the outside asks for", "h", |it| {
        it.desired_replicas == 7 && it.current_metrics.as_ref().is_some_and(|it| it.len() == 3)
    })
    .await;
    let metrics = most.current_metrics.unwrap();
    assert_eq!(metrics[0].pods.as_ref().unwrap().current.average_value.as_ref().unwrap().0, "30");
    assert_eq!(metrics[1].object.as_ref().unwrap().current.value.as_ref().unwrap().0, "1k");
    running.abort();
}
