//! Secrets that must not leave the server, and test features that must not be there.

use super::arena::{Arena, Attack, Attacker, TREASURE, attack};
use super::*;
use apiserver::Faults;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use env::{Paused, Seeded, World};
use http::Method;
use std::sync::Arc;
use std::time::Duration;

/// Requests of users to the pages of clusters for tests.
fn pages(by: Attacker, names: [&'static str; 5]) -> Vec<Attack> {
    let [clock, faults, clear, forks, stop] = names.map(|name| attack(name).by(by.clone()));
    vec![
        clock.send(Method::POST, "/simulation/clock?advance=24h").forbidden("cannot post path"),
        faults.put("/simulation/faults", json!({"rules": []})).forbidden("cannot put path"),
        clear.delete("/simulation/faults").forbidden("cannot delete path"),
        forks.send(Method::POST, "/simulation/clusters").forbidden("cannot post path"),
        stop.delete("/simulation/clusters/x").forbidden("cannot delete path"),
    ]
}

#[tokio::test]
async fn test_features_are_for_administrators() {
    let arena = Arena::with(|options| {
        let world: World = Seeded::new(tests::NOW, 7);
        options.deployment.clock = Some(Paused::new(Duration::ZERO, world.clone()));
        options.deployment.faults = Some(Arc::new(Faults::new(Some(7), &world)));
    })
    .await;
    let stranger = [
        "a user without roles moves the clock of a test",
        "a user without roles injects faults",
        "a user without roles removes faults",
        "a user without roles forks a cluster",
        "a user without roles stops a fork",
    ];
    let owner = [
        "the owner of a namespace moves the clock of a test",
        "the owner of a namespace injects faults",
        "the owner of a namespace removes faults",
        "the owner of a namespace forks a cluster",
        "the owner of a namespace stops a fork",
    ];
    let mut attacks = pages(Attacker::Stranger, stranger);
    attacks.extend(pages(Attacker::Owner, owner));
    arena.run("Test features", attacks).await;
}

#[tokio::test]
async fn test_features_are_absent_by_default() {
    let arena = Arena::start().await;
    for path in ["/simulation/clock", "/simulation/faults", "/simulation/clusters", "/simulation"] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let response = arena.cluster.request(method.clone(), path).await;
            assert_eq!(response.status, 404, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn secrets_are_in_no_audit_event_and_no_metric() {
    let arena = Arena::start().await;
    let cluster = &arena.cluster;
    let path = format!("{SECRETS}/treasure");
    cluster.read(&path).await;
    cluster.patch(&path, json!({"stringData": {"again": TREASURE}})).await.code(200);
    let invalid = json!({"metadata": {"name": "B A D"}, "stringData": {"key": TREASURE}});
    let refused = cluster.post(SECRETS, invalid).await.refused(422, "Invalid");
    assert!(!refused.to_string().contains(TREASURE), "{refused}");
    let wrong = json!({"metadata": {"name": "x"}, "data": {"key": TREASURE}});
    let refused = cluster.post(SECRETS, wrong).await.refused(400, "BadRequest");
    assert!(!refused.to_string().contains(TREASURE), "{refused}");
    let token = format!("Bearer {TREASURE}");
    let bad = cluster.get(SECRETS).user(&tests::TestUser::Anonymous).header("authorization", &token);
    assert!(!bad.await.code(401).text().contains(TREASURE));
    let requested =
        cluster.post(&format!("{ACCOUNTS}/robot/token"), json!({"spec": {}})).await.code(201).json();
    let issued = requested["status"]["token"].as_str().unwrap();
    let (log, metrics) = (arena.audit_log(), cluster.get("/metrics").await.code(200).text());
    for text in [&log, &metrics] {
        assert!(!text.contains(TREASURE) && !text.contains(&STANDARD.encode(TREASURE)));
        assert!(!text.contains(issued) && !text.contains(issued.rsplit('.').next().unwrap()));
    }
    assert!(log.contains("/secrets/treasure"), "the requests are recorded");
}
