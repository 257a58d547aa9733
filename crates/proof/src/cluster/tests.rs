//! Short simulations.

use super::caller;
use super::choice::Choice;
use super::history::ObjectKey;
use super::invariants::Breach;
use super::objects;
use super::observer::Observer;
use super::workload::Request;
use futures_util::future::join_all;
use pintle_test::{Clock, Cluster, ClusterControls, ClusterOptions, Instruments};
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

const MAPS: &str = "configmaps";

/// Objects that come and go, always as many as the quota of their namespace permits.
async fn replace_objects(
    seed: u64,
    cluster: ClusterControls,
    mut observer: Observer,
) -> anyhow::Result<Vec<Breach>> {
    let (client, choice) = (cluster.client(), Choice::new(seed));
    let post = |resource: &str, namespace: &str, name: &str, body| {
        let key = ObjectKey::new(resource, namespace, name);
        Request { method: "POST", key, subresource: "", body }
    };
    cluster.advance(Duration::from_secs(10)).await?;
    caller::send(client, &post("namespaces", "", "n", objects::config_map("n"))).await?;
    cluster.advance(Duration::from_secs(10)).await?;
    let quota = objects::quota(json!({"count/configmaps": "5"}));
    caller::send(client, &post("resourcequotas", "n", "quota", quota)).await?;
    cluster.advance(Duration::from_secs(10)).await?;
    observer.take()?;
    for round in 0..150 {
        let names = (0..3).map(|it| format!("q-{round}-{it}"));
        let mut requests: Vec<_> =
            names.map(|name| post(MAPS, "n", &name, objects::config_map(&name))).collect();
        for (key, _) in observer.objects.within(MAPS, "n").filter(|it| it.0.name.starts_with("q-")) {
            if choice.chance(50) {
                let delete = Request { method: "DELETE", key: key.clone(), subresource: "", body: json!({}) };
                requests.insert(choice.place(&requests), delete);
            }
        }
        for answer in join_all(requests.iter().map(|it| caller::send(client, it))).await {
            answer?;
        }
        cluster.advance(Duration::from_millis(choice.between(0, 150))).await?;
        observer.take()?;
    }
    Ok(observer.breaches)
}

#[tokio::test]
async fn a_quota_is_kept_while_its_usage_is_counted() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for seed in 1..=3 {
        let (sender, incoming) = unbounded_channel();
        let instruments =
            Instruments { start: Some(1_700_000_000), varies_turns: true, ..Instruments::new(sender) };
        let options = ClusterOptions {
            clock: Clock::Manual { seed: Some(seed) },
            instruments: Some(instruments),
            ..ClusterOptions::default()
        };
        let run = move |cluster| replace_objects(seed, cluster, Observer::new(incoming));
        let breaches = Cluster::run_inside(options, run).await.unwrap().unwrap();
        assert_eq!(breaches, [], "seed {seed}");
    }
}
