//! The controller manager as a process of its own: it works while it holds the lease, over restarts of the API server,
//! and serves health and metrics to authorized users.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod components;

use components::{Process, caller, free_port, looking, post, server, until};
use outbound::{HttpClient, Target};
use std::path::Path;
use std::process::Command;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

struct Manager {
    process: Process,
    port: u16,
}

fn manager(directory: &Path, more: &[&str]) -> Manager {
    let (port, pki) = (free_port(), directory.join("pki"));
    let kubeconfig = directory.join("admin.kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["controller-manager", "--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
    for option in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(option).arg(&kubeconfig);
    }
    command.arg("--cluster-signing-cert-file").arg(pki.join("ca.crt"));
    command.arg("--cluster-signing-key-file").arg(pki.join("ca.key"));
    command.arg("--service-account-private-key-file").arg(pki.join("sa.key"));
    // a slow disk may hold a renewal for seconds, which must not cost the lease
    command.args(["--leader-elect-lease-duration", "15s", "--leader-elect-renew-deadline", "12s"]);
    command.args(["--leader-elect-retry-period", "200ms"]).args(more);
    Manager { process: Process(command.spawn().unwrap()), port }
}

fn account_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")
}

#[tokio::test]
async fn the_manager_survives_server_restarts_and_reports_health() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let api = server(directory.path(), port);
    let admin = caller(directory.path());
    // a lease that a restart of the server does not outlast, however slow that is
    let lease = ["--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=80s"];
    let options = ["--use-service-account-credentials", "--feature-gates=ComponentSLIs=true"];
    let mut it = manager(directory.path(), &[&lease[..], &options].concat());
    until("the account", &admin, &account_of("default"), |code, _| code == 200).await;
    // the loops write as their own accounts
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/service-account-controller";
    until("the loop's account", &admin, path, |code, _| code == 200).await;
    // health needs no authentication, metrics do
    let (anonymous, known) =
        (looking(directory.path(), it.port, false), looking(directory.path(), it.port, true));
    until("health", &anonymous, "/healthz?verbose", |code, text| {
        code == 200 && text.contains("[+]csrsigning ok")
    })
    .await;
    let refused = anonymous.get("/metrics").await.unwrap();
    assert_eq!(refused.status, 403, "{}", String::from_utf8_lossy(&refused.body));
    // a loop has its metrics from its start on
    let parts = [
        "workqueue_adds_total{name=\"serviceaccount\"} ",
        "workqueue_queue_duration_seconds_bucket{name=\"certificate\",le=\"+Inf\"} ",
        "rest_client_requests_total{code=\"200\",host=",
        "rest_client_request_duration_seconds_bucket{host=",
        "rest_client_rate_limiter_duration_seconds_count{host=",
        "rest_client_request_size_bytes_sum{host=",
        "rest_client_response_size_bytes_sum{host=",
        "workqueue_depth{name=\"serviceaccount\"} ",
        "workqueue_work_duration_seconds_count{name=\"serviceaccount\"} ",
        "workqueue_unfinished_work_seconds{name=\"serviceaccount\"} ",
        "workqueue_longest_running_processor_seconds{name=\"serviceaccount\"} ",
        "workqueue_retries_total{name=\"serviceaccount\"} ",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "kubernetes_build_info{",
        "kubernetes_feature_enabled{name=\"ComponentSLIs\",stage=\"ALPHA\"} 1",
        "leader_election_master_status{name=\"kube-controller-manager\"} 1",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"csrsigning\"} 1",
        "registered_metric_total{deprecated_version=\"\",stability_level=\"STABLE\"} ",
        "cronjob_controller_job_creation_skew_duration_seconds_bucket{le=\"512\"} 0",
        "ttl_after_finished_controller_job_deletion_duration_seconds_count 0",
        "pod_gc_collector_force_delete_pods_total 0",
    ];
    for part in parts {
        until(part, &known, "/metrics", |code, text| code == 200 && text.contains(part)).await;
    }
    loops_count_what_they_do(&admin, &known).await;
    // so is the inside of the process
    assert_eq!(anonymous.get("/debug/pprof/").await.unwrap().status, 403);
    until("pages", &known, "/debug/pprof/", |code, text| code == 200 && text.contains("goroutine")).await;
    let waiting = until("queues", &known, "/debug/pprof/heap", |code, _| code == 200).await;
    assert!(waiting.contains("  serviceaccount\n"), "{waiting}");
    let line = until("command line", &known, "/debug/pprof/cmdline", |code, _| code == 200).await;
    assert!(line.contains("controller-manager\0--bind-address"), "{line}");
    assert_eq!(known.get("/debug/flags/v").await.unwrap().status, 406);
    assert_eq!(known.get("/debug/nothing").await.unwrap().status, 404);
    // the health SLIs are served to authorized users
    assert_eq!(anonymous.get("/metrics/slis").await.unwrap().status, 403);
    let checks = until("checks", &known, "/metrics/slis", |code, _| code == 200).await;
    assert!(checks.contains("kubernetes_healthcheck{name=\"csrsigning\",type=\"healthz\"} 1\n"), "{checks}");
    // the server goes and comes again
    drop(api);
    let _api = server(directory.path(), port);
    let later = serde_json::json!({"metadata": {"name": "later"}});
    post(&caller(directory.path()), "/api/v1/namespaces", later).await;
    until("an account after a restart", &admin, &account_of("later"), |code, _| code == 200).await;
    // after SIGTERM it ends in order, and the lease stays as it was
    assert!(it.process.0.try_wait().unwrap().is_none());
    it.process.terminate();
    assert_eq!(it.process.ends(), Some(0));
    let lease = until("the lease", &admin, LEASE, |code, _| code == 200).await;
    assert!(!lease.contains("\"holderIdentity\":\"\""), "{lease}");
}

async fn loops_count_what_they_do(admin: &HttpClient, known: &HttpClient) {
    let pod = serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let job = serde_json::json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}});
    post(admin, "/apis/batch/v1/namespaces/default/jobs", job).await;
    let spec = serde_json::json!({"ports": [{"port": 80}], "selector": {"a": "b"}});
    let service = serde_json::json!({"metadata": {"name": "s"}, "spec": spec});
    post(admin, "/api/v1/namespaces/default/services", service).await;
    let labels = "completion_mode=\"NonIndexed\",result=\"success\"";
    let made = format!("job_controller_job_syncs_total{{action=\"pods_created\",{labels}}} 1\n");
    let parts = [
        made.as_str(),
        "root_ca_cert_publisher_sync_total{code=\"200\"} ",
        "endpoint_slice_controller_changes{operation=\"create\"} 1\n",
        "endpoint_slice_controller_endpointslices_changed_per_sync_sum{topology=\"Disabled\"} 1\n",
        "endpoint_slice_controller_num_endpoint_slices 1\n",
        "endpoint_slice_controller_desired_endpoint_slices 1\n",
        "endpoint_slice_controller_endpoints_desired 0\n",
    ];
    until("counts of the loops", known, "/metrics", |_, text| parts.iter().all(|it| text.contains(it))).await;
}

#[tokio::test]
async fn a_standby_manager_takes_over() {
    let directory = tempfile::tempdir().unwrap();
    let _api = server(directory.path(), free_port());
    let admin = caller(directory.path());
    let holder = |text: &str| -> String {
        let lease: serde_json::Value = serde_json::from_str(text).unwrap();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let mut first = manager(directory.path(), &[]);
    let held = holder(&until("the lease", &admin, LEASE, |code, _| code == 200).await);
    let mut second = manager(directory.path(), &["--profiling=false"]);
    let port = second.port;
    until("the second waits", &looking(directory.path(), port, false), "/healthz", |code, _| code == 200)
        .await;
    let inside = looking(directory.path(), port, true).get("/debug/pprof/").await.unwrap();
    assert_eq!(inside.status, 404, "{}", String::from_utf8_lossy(&inside.body));
    // one that crashes is replaced when its lease has run out
    first.process.0.kill().unwrap();
    first.process.ends();
    until("the second leads", &admin, LEASE, |_, text| holder(text) != held).await;
    let later = serde_json::json!({"metadata": {"name": "later"}});
    post(&admin, "/api/v1/namespaces", later).await;
    until("an account", &admin, &account_of("later"), |code, _| code == 200).await;
    // one that loses its lease ends at once and says so
    let taken = serde_json::json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}});
    let kubeconfig = directory.path().join("admin.kubeconfig");
    let target = Target::from_kubeconfig(&kubeconfig).unwrap();
    let transport = client::transport::transport(&target, "test", &Default::default()).unwrap();
    let mut put = transport.clone();
    let body = client::Body::from(taken.to_string().into_bytes());
    let request = http::Request::patch(LEASE)
        .header("content-type", "application/merge-patch+json")
        .body(body)
        .unwrap();
    let answer = tower_service::Service::call(&mut put, request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(second.process.ends(), Some(1));
}

#[test]
fn a_wrong_command_line_is_reported() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
        let out = command.arg("controller-manager").args(arguments).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, message) =
        run(&["--master", "http://127.0.0.1:1", "--controllers", "*,-nothing", "--root-ca-file", "/none"]);
    assert!(code.is_some_and(|code| code != 0));
    assert!(message.contains("nothing") && message.contains("/none"), "{message}");
    let (_, message) = run(&["--master", "http://127.0.0.1:1", "--leader-elect-renew-deadline", "20s"]);
    assert!(message.contains("--leader-elect-lease-duration"), "{message}");
}
