//! An operator as the `kube` library's examples have it: it applies its definition, waits until that is established,
//! and brings about what objects of its kind ask for, with a finalizer and a status of its own.

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use tests::Cluster;

const FINALIZER: &str = "documents.example.com/cleanup";
const MANAGER: &str = "documents-operator";

fn definition() -> Value {
    let spec = json!({"type": "object", "required": ["title"], "properties": {
        "title": {"type": "string", "minLength": 1}, "hide": {"type": "boolean", "default": false},
        "content": {"type": "string", "nullable": true}}});
    let status = json!({"type": "object", "nullable": true, "required": ["hidden"],
        "properties": {"hidden": {"type": "boolean"}, "checksum": {"type": "string", "nullable": true}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "documents.kube.example.com"},
        "spec": {"group": "kube.example.com", "scope": "Namespaced",
            "names": {"categories": [], "kind": "Document", "plural": "documents", "shortNames": ["doc"],
                "singular": "document"},
            "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [],
                "schema": {"openAPIV3Schema": {"type": "object", "title": "Document", "required": ["spec"],
                    "properties": {"spec": spec, "status": status}}},
                "subresources": {"status": {}}}]}})
}

struct Operator {
    documents: Api<DynamicObject>,
    maps: Api<ConfigMap>,
}

impl Operator {
    /// Applies the definition, and waits until its kind is served.
    async fn install(client: Client) -> Operator {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let apply = PatchParams::apply(MANAGER).force();
        let created =
            definitions.patch("documents.kube.example.com", &apply, &Patch::Apply(definition())).await;
        let named = format!("metadata.name={}", created.unwrap().name_any());
        let mut events = pin!(definitions.watch(&WatchParams::default().fields(&named), "0").await.unwrap());
        loop {
            let event = tests::soon("the definition", events.try_next()).await.unwrap();
            let Some(WatchEvent::Added(it) | WatchEvent::Modified(it)) = event else { continue };
            let conditions = it.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|it| it.type_ == "Established" && it.status == "True") {
                break;
            }
        }
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kube.example.com", "v1", "Document"));
        Operator {
            documents: Api::default_namespaced_with(client.clone(), &kind),
            maps: Api::default_namespaced(client),
        }
    }

    /// Reconciles one document.
    async fn reconcile(&self, document: &DynamicObject) {
        let name = document.name_any();
        let marked = document.finalizers().iter().any(|it| it == FINALIZER);
        if document.metadata.deletion_timestamp.is_some() {
            if marked {
                self.maps.delete(&name, &DeleteParams::default()).await.unwrap();
                let others = document.finalizers().iter().filter(|it| *it != FINALIZER);
                self.mark(document, &others.cloned().collect::<Vec<_>>()).await;
            }
            return;
        }
        if !marked {
            self.mark(document, &[document.finalizers(), &[FINALIZER.to_owned()]].concat()).await;
            return;
        }
        let owner = OwnerReference {
            api_version: "kube.example.com/v1".to_owned(),
            kind: "Document".to_owned(),
            name: name.clone(),
            uid: document.uid().unwrap(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let text = document.data["spec"]["content"].as_str().unwrap_or("").to_owned();
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([("content".to_owned(), text)])),
            ..ConfigMap::default()
        };
        let apply = PatchParams::apply(MANAGER).force();
        self.maps.patch(&name, &apply, &Patch::Apply(&map)).await.unwrap();
        let status = json!({"apiVersion": "kube.example.com/v1", "kind": "Document",
            "status": {"hidden": document.data["spec"]["hide"]}});
        self.documents.patch_status(&name, &apply, &Patch::Apply(status)).await.unwrap();
    }

    /// Sets the finalizers of a document; a conflict is retried with the next event.
    async fn mark(&self, document: &DynamicObject, finalizers: &[String]) {
        let metadata = json!({"finalizers": finalizers, "resourceVersion": document.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.documents.patch(&document.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(why) => panic!("{why}"),
        }
    }

    /// Follows documents until one that is not to be found again is gone.
    async fn run_until_gone(&self, gone: &str) {
        let list = self.documents.list(&ListParams::default()).await.unwrap();
        for document in &list.items {
            self.reconcile(document).await;
        }
        let from = list.metadata.resource_version.unwrap();
        let mut events = pin!(self.documents.watch(&WatchParams::default(), &from).await.unwrap());
        loop {
            match tests::soon("a document", events.try_next()).await.unwrap().unwrap() {
                WatchEvent::Added(it) | WatchEvent::Modified(it) => self.reconcile(&it).await,
                WatchEvent::Deleted(it) if it.name_any() == gone => return,
                other => {
                    assert!(matches!(other, WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)), "{other:?}")
                }
            }
        }
    }
}

fn document(name: &str, spec: Value) -> DynamicObject {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kube.example.com", "v1", "Document"));
    DynamicObject::new(name, &kind).data(json!({"spec": spec}))
}

#[tokio::test]
async fn an_operator_does_its_work() {
    let cluster = Cluster::start().await;
    let operator = Operator::install(cluster.kube("default").await).await;
    // once more, as after a restart: nothing changes
    Operator::install(cluster.kube("default").await).await;
    let user: Api<DynamicObject> = operator.documents.clone();
    let work = async {
        let created =
            user.create(&PostParams::default(), &document("a", json!({"title": "A"}))).await.unwrap();
        assert_eq!(created.data["spec"]["hide"], false, "with its default");
        let state = async |wanted: Value, text: &str| loop {
            let now = user.get("a").await.unwrap();
            let map = operator.maps.get_opt("a").await.unwrap();
            let text = map.and_then(|it| it.data).is_some_and(|it| it["content"] == text);
            if now.data["status"] == wanted && text {
                return now;
            }
            tokio::task::yield_now().await;
        };
        let now = tests::soon("the status", state(json!({"hidden": false}), "")).await;
        assert_eq!(now.metadata.generation, Some(1), "neither finalizer nor status is a wish");
        let patch = Patch::Merge(json!({"spec": {"hide": true, "content": "text"}}));
        user.patch("a", &PatchParams::default(), &patch).await.unwrap();
        tests::soon("the status", state(json!({"hidden": true}), "text")).await;
        assert!(user.delete("a", &DeleteParams::default()).await.unwrap().is_left(), "it is still there");
    };
    tokio::join!(work, operator.run_until_gone("a"));
    assert!(operator.maps.get_opt("a").await.unwrap().is_none(), "cleaned up before it went");
    // invalid objects are rejected with the errors
    let wrong = user.create(&PostParams::default(), &document("b", json!({"title": ""}))).await;
    let message = wrong.unwrap_err().to_string();
    assert!(message.contains("spec.title in body should be at least 1 chars long"), "{message}");
}
