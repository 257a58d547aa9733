//! The specification as tests: one module for each of its headings, against a real server over TLS.
//!
//! `docs/spec.md` says which test shows which statement. What always holds: a test has a server of its own
//! (see the harness in `tests/src`), so all of them run at once and in any order.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod attacks;
mod controllers;

mod spec {
    mod admission;
    mod admission_connect;
    mod admission_loops;
    mod admission_policies;
    mod admission_reach;
    mod admission_reviews;
    mod admission_webhooks;
    mod aggregation;
    mod apply;
    mod audit;
    mod authentication;
    mod bad_input;
    mod bulk;
    mod callers;
    mod cases;
    mod client_certificates;
    mod cluster_dns;
    mod cors;
    mod custom_conversion;
    mod custom_definitions;
    mod custom_limits;
    mod custom_operator;
    mod custom_resources;
    mod custom_rules;
    mod custom_upgrade;
    mod custom_values;
    mod debug;
    mod defaults;
    mod deletion;
    mod dialects;
    mod discovery;
    mod disks;
    mod dry_run;
    mod egress;
    mod encryption;
    mod endpoints;
    mod errors;
    mod escalation;
    mod fairness;
    mod field_validation;
    mod gates;
    mod health;
    mod identity;
    mod image_policies;
    mod kms_plugins;
    mod kube_client;
    mod lifecycle;
    mod limits;
    mod lists;
    mod many_items;
    mod map;
    mod metrics;
    mod negotiation;
    mod node_requests;
    mod nodes;
    mod oidc;
    mod openapi;
    mod parity;
    mod parity_bodies;
    mod parity_custom;
    mod parity_custom_mutations;
    mod parity_generated;
    mod parity_mutations;
    mod parity_ownership;
    mod parity_patches;
    mod parity_paths;
    mod parity_reads;
    mod parity_subresources;
    mod parity_writes;
    mod patches;
    mod plugins;
    mod pod_plugins;
    mod pod_security;
    mod policies;
    mod pressure;
    mod protobuf;
    mod resource_metrics;
    mod resources;
    mod restart;
    mod roles;
    mod runtime_classes;
    mod runtime_kind;
    mod samples;
    mod scheduling;
    mod sent_paths;
    mod service_accounts;
    mod services;
    mod serving;
    mod shared_store;
    mod signing_requests;
    mod states;
    mod stored_versions;
    mod tables;
    mod tokens;
    mod traces;
    mod versions;
    mod virtual_resources;
    mod watch;
    mod webhooks;
    mod websockets;

    use serde_json::{Value, json};

    const NAMESPACES: &str = "/api/v1/namespaces";
    const NODES: &str = "/api/v1/nodes";
    const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

    /// A pod that the API takes.
    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    }

    /// A pod that a node has been chosen for, whose deletion therefore takes time.
    fn assigned_pod(name: &str) -> Value {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = "n".into();
        pod
    }

    fn runtime_class(name: &str) -> Value {
        json!({"metadata": {"name": name}, "handler": "plain"})
    }

    /// An object's or a list's version.
    fn version(object: &Value) -> String {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_else(|| panic!("no version: {object}"))
            .to_owned()
    }

    fn uid(object: &Value) -> String {
        object["metadata"]["uid"].as_str().unwrap_or_else(|| panic!("no uid: {object}")).to_owned()
    }

    /// The names in a list, in its order.
    fn names(list: &Value) -> Vec<&str> {
        let items = list["items"].as_array().unwrap_or_else(|| panic!("no items: {list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// The fields that a refusal names.
    fn fields(status: &Value) -> Vec<&str> {
        let causes = status["details"]["causes"].as_array().unwrap_or_else(|| panic!("no causes: {status}"));
        causes.iter().map(|cause| cause["field"].as_str().unwrap_or("")).collect()
    }
}
