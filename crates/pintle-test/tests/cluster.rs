//! Clusters in the process of a test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use api::apps::v1::Deployment;
use api::batch::v1::{CronJob, Job};
use api::core::v1::ConfigMap;
use client::ListParams;
use pintle_test::{Api, Clock, Cluster, ClusterOptions, CrashPoint, Instruments, Observation};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;

const MANUAL: Clock = Clock::Manual { seed: Some(7) };

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web"}]}})
}

fn read<T: api::Json>(object: &Value) -> T {
    api::from_json(object.to_string().as_bytes()).unwrap()
}

fn deployment() -> Deployment {
    read(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                 "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template()}}))
}

fn config_map(name: &str) -> ConfigMap {
    read(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}))
}

fn config_maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), "default")
}

#[tokio::test]
async fn a_deployment_becomes_available_and_cron_jobs_run_as_time_passes() {
    let options = ClusterOptions { nodes: 2, clock: MANUAL, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.unwrap();
    let deployments = Api::<Deployment>::namespaced(cluster.client(), "default");
    deployments.create(&deployment()).await.unwrap();
    cluster.settle().await.unwrap();
    let available = deployments.get("web").await.unwrap().status.available_replicas;
    assert_eq!(available, 3);
    let mut pod = template();
    pod["spec"]["restartPolicy"] = json!("Never");
    let often = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
        "spec": {"schedule": "*/10 * * * *", "jobTemplate": {"spec": {"template": pod}}}});
    Api::<CronJob>::namespaced(cluster.client(), "default").create(&read(&often)).await.unwrap();
    let movement = cluster.advance(Duration::from_secs(1800)).await.unwrap();
    let is_job = |it: &String| it.starts_with("ADDED jobs.batch default/often-");
    assert_eq!(movement.changes.iter().filter(|it| is_job(it)).count(), 3, "{movement:?}");
    let jobs =
        Api::<Job>::namespaced(cluster.client(), "default").list(&ListParams::default()).await.unwrap();
    assert_eq!(jobs.items.len(), 3);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn requests_meet_the_faults_of_a_test() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let maps = config_maps(&cluster);
    cluster.set_faults("rules:\n- {verbs: [create], status: 500, times: 1}\n").await.unwrap();
    assert!(maps.create(&config_map("a")).await.is_err());
    maps.create(&config_map("a")).await.unwrap();
    assert!(cluster.set_faults("rules: [{}]").await.unwrap_err().to_string().contains("needs a fault"));
    cluster.clear_faults().await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn forks_begin_with_the_same_objects_and_go_their_own_ways() {
    let options = ClusterOptions { nodes: 1, clock: MANUAL, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.unwrap();
    config_maps(&cluster).create(&config_map("prepared")).await.unwrap();
    cluster.settle().await.unwrap();
    let (one, two) = (cluster.fork().await.unwrap(), cluster.fork().await.unwrap());
    for fork in [&one, &two] {
        config_maps(fork).get("prepared").await.unwrap();
    }
    config_maps(&one).create(&config_map("own")).await.unwrap();
    assert!(config_maps(&two).get_opt("own").await.unwrap().is_none());
    assert!(config_maps(&cluster).get_opt("own").await.unwrap().is_none());
    // each has a clock of its own
    let before = two.advance(Duration::ZERO).await.unwrap().now;
    one.advance(Duration::from_secs(60)).await.unwrap();
    assert_eq!(two.advance(Duration::ZERO).await.unwrap().now, before);
    // a fork of a fork
    let three = one.fork().await.unwrap();
    config_maps(&three).get("own").await.unwrap();
    one.stop().await.unwrap();
    assert!(config_maps(&three).get("own").await.is_err(), "the forks of a cluster end with it");
    config_maps(&two).get("prepared").await.unwrap();
    cluster.stop().await.unwrap();
    assert!(config_maps(&two).get("prepared").await.is_err());
}

#[tokio::test]
async fn wrong_flags_are_reported() {
    let options = ClusterOptions { flags: vec!["--nodes=many".to_owned()], ..ClusterOptions::default() };
    let error = Cluster::start(options).await.err().unwrap().to_string();
    assert!(error.contains("--nodes"), "{error}");
}

#[tokio::test]
async fn components_that_crash_begin_anew_and_an_observer_sees_all_changes() {
    let (observer, mut observed) = mpsc::unbounded_channel();
    let names =
        ["scheduler-0", "scheduler-1", "controller-manager-0", "controller-manager-1", "simulated nodes"];
    let crash_points: Vec<_> = names.map(|it| (it.to_owned(), CrashPoint::default())).into();
    let instruments =
        Instruments { candidates: 2, crash_points: crash_points.clone(), ..Instruments::new(observer) };
    let options = ClusterOptions {
        nodes: 2,
        clock: MANUAL,
        instruments: Some(instruments),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await.unwrap();
    cluster.advance(Duration::from_secs(30)).await.unwrap();
    let deployments = Api::<Deployment>::namespaced(cluster.client(), "default");
    deployments.create(&deployment()).await.unwrap();
    for (at, (_, point)) in crash_points.iter().enumerate() {
        point.arm(20 + at as u64, Duration::from_secs(5));
    }
    cluster.advance(Duration::from_secs(120)).await.unwrap();
    assert_eq!(deployments.get("web").await.unwrap().status.available_replicas, 3);
    for (name, point) in &crash_points {
        assert_eq!((point.crashes(), point.is_down()), (1, false), "{name}");
    }
    let (mut leaders, mut pods) = (0, 0);
    while let Ok(observation) = observed.try_recv() {
        match observation {
            Observation::Leadership { begins: true, .. } => leaders += 1,
            Observation::Change(change) if change.resource == "pods" => pods += 1,
            Observation::Lagged => panic!("changes are missing"),
            _ => {}
        }
    }
    assert!(leaders >= 4, "another candidate leads after a crash: {leaders}");
    assert!(pods >= 3 * 3, "each pod was made, bound and ready: {pods}");
    cluster.stop().await.unwrap();
}
