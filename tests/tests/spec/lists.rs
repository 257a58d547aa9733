//! "List, chunking": `limit` and `continue`, and the selectors.

use super::*;
use std::time::Duration;
use tests::{Cluster, escape};

async fn with_seven() -> Cluster {
    let cluster = Cluster::start().await;
    for n in 0..7 {
        cluster.labelled(CONFIGMAPS, &format!("c{n}"), json!({"odd": (n % 2).to_string()})).await;
    }
    cluster
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or_else(|| panic!("no token: {}", list["metadata"]))
}

#[tokio::test]
async fn chunks_are_one_consistent_list() {
    let cluster = with_seven().await;
    let first = cluster.read(&format!("{CONFIGMAPS}?limit=3")).await;
    assert_eq!(names(&first), ["c0", "c1", "c2"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    // later changes are not visible
    cluster.named(CONFIGMAPS, "c33").await;
    cluster.delete(&format!("{CONFIGMAPS}/c4")).await.code(200);
    cluster.patch(&format!("{CONFIGMAPS}/c5"), json!({"data": {"k": "v"}})).await.code(200);
    let second = cluster.read(&format!("{CONFIGMAPS}?limit=3&continue={}", token(&first))).await;
    assert_eq!(names(&second), ["c3", "c4", "c5"]);
    assert_eq!(second["items"][2].get("data"), None);
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let third = cluster.read(&format!("{CONFIGMAPS}?limit=3&continue={}", token(&second))).await;
    assert_eq!(names(&third), ["c6"]);
    let metadata = third["metadata"].as_object().unwrap();
    assert!(!metadata.contains_key("continue") && !metadata.contains_key("remainingItemCount"), "{third}");
    assert_eq!(version(&second), version(&first));
    assert_eq!(version(&third), version(&first));
    // a token may be used again, and without a limit it gives the rest
    let rest = cluster.read(&format!("{CONFIGMAPS}?continue={}", token(&first))).await;
    assert_eq!(names(&rest), ["c3", "c4", "c5", "c6"]);
    assert_eq!(version(&rest), version(&first));
}

#[tokio::test]
async fn chunks_span_namespaces() {
    let cluster = Cluster::start().await;
    let mut expected = Vec::new();
    for namespace in ["one", "two"] {
        cluster.named(NAMESPACES, namespace).await;
        for name in ["a", "b", "c"] {
            cluster.named(&format!("{NAMESPACES}/{namespace}/configmaps"), name).await;
            expected.push(format!("{namespace}/{name}"));
        }
    }
    let mut found = Vec::new();
    let mut next = "/api/v1/configmaps?limit=2".to_owned();
    loop {
        let list = cluster.read(&next).await;
        let items = list["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        for item in items {
            let part = |field: &str| item["metadata"][field].as_str().unwrap();
            found.push(format!("{}/{}", part("namespace"), part("name")));
        }
        if list["metadata"].get("continue").is_none() {
            break;
        }
        next = format!("/api/v1/configmaps?limit=2&continue={}", token(&list));
    }
    // the server keeps one itself
    found.retain(|name| !name.starts_with("kube-system/"));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_remaining_items_are_counted_only_without_selectors() {
    let cluster = with_seven().await;
    for query in ["limit=2&labelSelector=odd%3D1", "limit=2&fieldSelector=metadata.name!%3Dc0"] {
        let first = cluster.read(&format!("{CONFIGMAPS}?{query}")).await;
        assert_eq!(first["metadata"].get("remainingItemCount"), None);
        let rest = cluster.read(&format!("{CONFIGMAPS}?{query}&continue={}", token(&first))).await;
        assert_eq!(rest["metadata"].get("remainingItemCount"), None);
    }
    let chunk = cluster.read(&format!("{CONFIGMAPS}?limit=2&labelSelector=odd%3D1")).await;
    assert_eq!(names(&chunk), ["c1", "c3"]);
    let rest =
        cluster.read(&format!("{CONFIGMAPS}?limit=2&labelSelector=odd%3D1&continue={}", token(&chunk))).await;
    assert_eq!(names(&rest), ["c5"]);
    // a list that is complete says nothing either
    for query in ["", "?limit=7", "?limit=100", "?limit=0", "?limit=-1"] {
        let list = cluster.read(&format!("{CONFIGMAPS}{query}")).await;
        assert_eq!(names(&list).len(), 7);
        assert_eq!(list["metadata"], json!({"resourceVersion": version(&list)}), "{query}");
    }
}

#[tokio::test]
async fn a_full_page_is_followed_by_another_if_any_object_is_behind_it() {
    let cluster = with_seven().await;
    let odd = format!("{CONFIGMAPS}?limit=3&labelSelector=odd%3D1");
    let first = cluster.read(&odd).await;
    assert_eq!(names(&first), ["c1", "c3", "c5"]);
    let last = cluster.read(&format!("{odd}&continue={}", token(&first))).await;
    assert_eq!((names(&last).len(), last["metadata"].get("continue")), (0, None), "{last}");
    // nothing is behind the last object, and a list of one name has no pages
    for query in [
        "limit=3&labelSelector=odd!%3D1&fieldSelector=metadata.name!%3Dc0",
        "limit=1&fieldSelector=metadata.name%3Dc0",
    ] {
        let list = cluster.read(&format!("{CONFIGMAPS}?{query}")).await;
        assert_eq!(list["metadata"].get("continue"), None, "{list}");
    }
}

#[tokio::test]
async fn events_are_listed_in_pages_at_version_0_too() {
    let cluster = with_seven().await;
    for name in ["a", "b", "c"] {
        let object = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        cluster.create(EVENTS, json!({"metadata": {"name": name}, "involvedObject": object})).await;
    }
    let page = cluster.read(&format!("{EVENTS}?limit=2&resourceVersion=0")).await;
    assert_eq!((names(&page).len(), &page["metadata"]["remainingItemCount"]), (2, &json!(1)), "{page}");
    let whole = cluster.read(&format!("{CONFIGMAPS}?limit=2&resourceVersion=0")).await;
    assert_eq!(names(&whole).len(), 7);
}

/// More than the five minutes for which history is kept.
const LONG: Duration = Duration::from_secs(301);

#[tokio::test]
async fn a_token_lives_for_five_minutes() {
    let cluster = with_seven().await;
    let first = cluster.read(&format!("{CONFIGMAPS}?limit=3")).await;
    let next = format!("{CONFIGMAPS}?limit=3&continue={}", token(&first));
    cluster.advance(Duration::from_secs(290));
    cluster.patch(&format!("{CONFIGMAPS}/c0"), json!({"data": {"k": "v"}})).await.code(200);
    assert_eq!(version(&cluster.read(&next).await), version(&first));
}

#[tokio::test]
async fn an_expired_token_is_gone_and_offers_an_inconsistent_rest() {
    let cluster = with_seven().await;
    let first = cluster.read(&format!("{CONFIGMAPS}?limit=3")).await;
    cluster.advance(LONG);
    cluster.delete(&format!("{CONFIGMAPS}/c4")).await.code(200);
    cluster.advance(LONG);
    cluster.named(CONFIGMAPS, "c7").await;
    let status = cluster
        .get(&format!("{CONFIGMAPS}?limit=3&continue={}", token(&first)))
        .await
        .refused(410, "Expired");
    assert!(status["message"].as_str().unwrap().contains("continue"), "{status}");
    // the Status has a token that continues with the current state
    let rest = cluster.read(&format!("{CONFIGMAPS}?limit=10&continue={}", token(&status))).await;
    assert_eq!(names(&rest), ["c3", "c5", "c6", "c7"]);
    assert_ne!(version(&rest), version(&first));
}

#[tokio::test]
async fn bad_tokens_and_limits_are_bad_requests() {
    let cluster = with_seven().await;
    for query in [
        "limit=abc",
        "limit=99999999999999999999",
        "continue=abc",
        "continue=%00",
        // another server's, one that climbs, one that names the root
        "continue=eyJ2IjoiYm9ndXMiLCJydiI6MSwic3RhcnQiOiJhIn0",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
    ] {
        cluster.get(&format!("{CONFIGMAPS}?{query}")).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn labels_are_selected_by_equality_and_by_sets() {
    let cluster = Cluster::start().await;
    for (name, labels) in [
        ("a", json!({"tier": "front", "n": "1"})),
        ("b", json!({"tier": "back", "n": "5"})),
        ("c", json!({"tier": "cache"})),
        ("d", json!({})),
    ] {
        cluster.labelled(CONFIGMAPS, name, labels).await;
    }
    for (selector, expected) in [
        ("tier=front", &["a"][..]),
        ("tier==front", &["a"]),
        ("tier!=front", &["b", "c", "d"]),
        ("tier in (front, back)", &["a", "b"]),
        ("tier notin (front,back)", &["c", "d"]),
        ("tier", &["a", "b", "c"]),
        ("!tier", &["d"]),
        ("n>1", &["b"]),
        ("n<5", &["a"]),
        ("tier,!n", &["c"]),
        ("tier!=back,tier", &["a", "c"]),
        ("tier=front,tier=back", &[]),
        ("", &["a", "b", "c", "d"]),
    ] {
        let list = cluster.read(&format!("{CONFIGMAPS}?labelSelector={}", escape(selector))).await;
        assert_eq!(names(&list), expected, "{selector}");
    }
}

/// Each version of events has labels of its own, for the same stored fields.
#[tokio::test]
async fn events_are_selected_by_the_labels_of_each_version() {
    const CORE: &str = "/api/v1/namespaces/default/events";
    const NEWER: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    let cluster = Cluster::start().await;
    let about = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "u",
        "resourceVersion": "7", "fieldPath": "f"});
    let old = json!({"metadata": {"name": "old"}, "involvedObject": about, "reason": "R", "type": "Normal",
        "source": {"component": "kubelet"}});
    cluster.create(CORE, old).await;
    let new = json!({"metadata": {"name": "new"}, "regarding": about, "reason": "R", "type": "Normal",
        "action": "A", "reportingController": "c", "reportingInstance": "i", "note": "n",
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    cluster.create(NEWER, new).await;
    let selected = async |path: &str, selector: &str| {
        let list = cluster.read(&format!("{path}?fieldSelector={}", escape(selector))).await;
        names(&list).into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    for (field, value) in about.as_object().unwrap() {
        let value = value.as_str().unwrap();
        for (path, label, other) in
            [(CORE, "involvedObject", "regarding"), (NEWER, "regarding", "involvedObject")]
        {
            assert_eq!(selected(path, &format!("{label}.{field}={value}")).await, ["new", "old"], "{field}");
            assert!(selected(path, &format!("{label}.{field}!={value}")).await.is_empty(), "{field}");
            let refused = cluster.get(&format!("{path}?fieldSelector={other}.{field}%3Dx")).await;
            let refused = refused.refused(400, "BadRequest");
            assert_eq!(refused["message"], format!("field label not supported: {other}.{field}"));
        }
    }
    for (path, selector, expected) in [
        (CORE, "source=kubelet", &["old"][..]),
        // the reporting component replaces an absent source
        (CORE, "source=c", &["new"]),
        (CORE, "source=", &[]),
        (CORE, "reportingComponent=c", &["new"]),
        (CORE, "reportingComponent=", &["old"]),
        (NEWER, "reportingController=c", &["new"]),
        (NEWER, "reportingController!=c", &["old"]),
        (NEWER, "reason=R,type=Normal,metadata.name=old", &["old"]),
    ] {
        assert_eq!(selected(path, selector).await, expected, "{selector}");
    }
    for label in ["source", "reportingComponent"] {
        cluster.get(&format!("{NEWER}?fieldSelector={label}%3Dc")).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn fields_are_selected_where_the_kind_has_them() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, assigned_pod("a")).await;
    cluster.create(PODS, pod("b")).await;
    for (selector, expected) in [
        ("metadata.name=a", &["a"][..]),
        ("metadata.name!=a", &["b"]),
        ("metadata.namespace=default", &["a", "b"]),
        ("metadata.namespace=other", &[]),
        ("spec.nodeName=n", &["a"]),
        ("spec.nodeName=", &["b"]),
        ("spec.nodeName!=n,metadata.name=b", &["b"]),
        ("status.phase=Pending", &["a", "b"]),
        ("status.phase==Running", &[]),
        ("spec.restartPolicy=Always", &["a", "b"]),
    ] {
        let list = cluster.read(&format!("{PODS}?fieldSelector={}", escape(selector))).await;
        assert_eq!(names(&list), expected, "{selector}");
    }
    for selector in ["spec.hostname=x", "data.k=v", "metadata.labels=x", "metadata.name", "a=b=c"] {
        let path = format!("{PODS}?fieldSelector={}", escape(selector));
        cluster.get(&path).await.refused(400, "BadRequest");
    }
}
