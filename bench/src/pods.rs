//! Pods that are written in large numbers.

use serde_json::{Value, json};

/// A pod as a chart would render it: a few kilobytes, never scheduled.
pub fn pod(nth: u64) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "initialDelaySeconds": 5, "periodSeconds": 10});
    let secret = json!({"secretKeyRef": {"name": "orders-db", "key": "password"}});
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:2.14.3"),
            "args": ["serve", "--config", "/etc/shop/config.yaml"],
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9102}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "eu-west-1"},
                    {"name": "DB_HOST", "value": "orders-db.shop.svc"},
                    {"name": "DB_PASSWORD", "valueFrom": secret}],
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/shop", "readOnly": true},
                             {"name": "tmp", "mountPath": "/tmp"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(nth),
            "labels": {"app": "checkout", "instance": format!("checkout-{:02}", nth % 50), "tier": "backend"},
            "annotations": {"example.com/scrape": "true", "example.com/port": "9102"},
        },
        "spec": {
            "automountServiceAccountToken": false, "nodeSelector": {"example.com/never": "true"},
            "securityContext": {"runAsNonRoot": true, "runAsUser": 10001, "fsGroup": 10001},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}],
            "volumes": [{"name": "config", "configMap": {"name": "checkout-config"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}],
            "containers": [container("checkout"), container("proxy")],
        },
    })
}

pub fn pod_name(nth: u64) -> String {
    format!("pod-{nth:06}")
}
