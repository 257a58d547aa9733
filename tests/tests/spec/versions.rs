//! "Resource version query semantics": every cell of the two tables.

use super::*;
use std::time::Duration;
use tests::{ApiResponse, Cluster};

/// Four states of a collection and the version of each: `a`, `a b`, `b`, `b c`.
async fn history() -> (Cluster, [String; 4]) {
    let cluster = Cluster::start().await;
    let first = version(&cluster.named(CONFIGMAPS, "a").await);
    let second = version(&cluster.named(CONFIGMAPS, "b").await);
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    let third = version(&cluster.read(CONFIGMAPS).await);
    let fourth = version(&cluster.named(CONFIGMAPS, "c").await);
    (cluster, [first, second, third, fourth])
}

async fn list(cluster: &Cluster, query: &str) -> ApiResponse {
    cluster.get(&format!("{CONFIGMAPS}?{query}")).await
}

/// The list must be of the newest state.
async fn newest(cluster: &Cluster, query: &str) -> Value {
    let found = list(cluster, query).await.code(200).json();
    assert_eq!(names(&found), ["b", "c"], "{query}");
    found
}

#[tokio::test]
async fn get_is_most_recent_any_or_not_older_than() {
    let (cluster, versions) = history().await;
    for query in ["", "?resourceVersion=", "?resourceVersion=0", &format!("?resourceVersion={}", versions[1])]
    {
        let read = cluster.read(&format!("{CONFIGMAPS}/b{query}")).await;
        assert_eq!(version(&read), versions[1], "{query}");
    }
    // not older than: `a` was there at this version, but is not any more
    cluster.get(&format!("{CONFIGMAPS}/a?resourceVersion={}", versions[0])).await.refused(404, "NotFound");
}

#[tokio::test]
async fn list_without_match_and_limit() {
    let (cluster, versions) = history().await;
    newest(&cluster, "").await;
    newest(&cluster, "resourceVersion=0").await;
    let found = newest(&cluster, &format!("resourceVersion={}", versions[0])).await;
    assert_eq!(version(&found), versions[3], "not older, and this server has newer");
}

#[tokio::test]
async fn list_without_match_but_with_a_limit() {
    let (cluster, versions) = history().await;
    let found = list(&cluster, "limit=1").await.code(200).json();
    assert_eq!((names(&found), version(&found)), (vec!["b"], versions[3].clone()));
    // any age: the server may give all of it
    newest(&cluster, "limit=1&resourceVersion=0").await;
    let exact = list(&cluster, &format!("limit=1&resourceVersion={}", versions[1])).await.code(200).json();
    assert_eq!((names(&exact), version(&exact)), (vec!["a"], versions[1].clone()));
}

#[tokio::test]
async fn list_with_a_token() {
    let (cluster, versions) = history().await;
    let first = list(&cluster, &format!("limit=1&resourceVersion={}", versions[1])).await.code(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    for query in [format!("limit=1&continue={token}"), format!("limit=1&continue={token}&resourceVersion=0")]
    {
        let rest = list(&cluster, &query).await.code(200).json();
        assert_eq!((names(&rest), version(&rest)), (vec!["b"], versions[1].clone()), "{query}");
    }
    let status = list(&cluster, &format!("limit=1&continue={token}&resourceVersion={}", versions[1])).await;
    let status = status.refused(400, "BadRequest");
    assert_eq!(status["message"], "specifying resource version is not allowed when using continue");
    let other = format!("limit=1&continue={token}&resourceVersionMatch=Exact&resourceVersion=0");
    list(&cluster, &other).await.refused(422, "Invalid");
}

#[tokio::test]
async fn list_exact() {
    let (cluster, versions) = history().await;
    for limit in ["", "&limit=5"] {
        for unset in ["resourceVersionMatch=Exact", "resourceVersionMatch=Exact&resourceVersion=0"] {
            let status = list(&cluster, &format!("{unset}{limit}")).await.refused(422, "Invalid");
            assert_eq!(fields(&status), ["resourceVersionMatch"]);
        }
        let states = [vec!["a"], vec!["a", "b"], vec!["b"], vec!["b", "c"]];
        // in no particular order: going back must not depend on where one comes from
        for at in [1, 3, 0, 2] {
            let query = format!("resourceVersionMatch=Exact&resourceVersion={}{limit}", versions[at]);
            let found = list(&cluster, &query).await.code(200).json();
            assert_eq!(
                (names(&found), version(&found)),
                (states[at].clone(), versions[at].clone()),
                "{query}"
            );
        }
    }
}

#[tokio::test]
async fn list_not_older_than() {
    let (cluster, versions) = history().await;
    for limit in ["", "&limit=5"] {
        let unset = format!("resourceVersionMatch=NotOlderThan{limit}");
        list(&cluster, &unset).await.refused(422, "Invalid");
        newest(&cluster, &format!("resourceVersionMatch=NotOlderThan&resourceVersion=0{limit}")).await;
        let given = format!("resourceVersionMatch=NotOlderThan&resourceVersion={}{limit}", versions[0]);
        newest(&cluster, &given).await;
    }
}

#[tokio::test]
async fn invalid_versions_are_rejected() {
    let (cluster, versions) = history().await;
    list(&cluster, "resourceVersionMatch=Bogus&resourceVersion=1").await.refused(422, "Invalid");
    let several = list(&cluster, "resourceVersionMatch=Bogus").await.refused(422, "Invalid");
    assert_eq!(fields(&several).len(), 2, "every problem is named: {several}");
    let watch = format!("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion={}", versions[0]);
    list(&cluster, &watch).await.refused(422, "Invalid");
    for bad in ["abc", "-1", "1.5", "99999999999999999999999"] {
        for path in
            [format!("{CONFIGMAPS}?resourceVersion={bad}"), format!("{CONFIGMAPS}/b?resourceVersion={bad}")]
        {
            let answer = cluster.get(&path).await;
            assert!(matches!(answer.status, 400 | 500), "{path}: {}", answer.text());
            assert_eq!(answer.json()["kind"], "Status");
        }
    }
}

#[tokio::test]
async fn a_version_that_is_no_longer_kept_is_gone() {
    let (cluster, versions) = history().await;
    cluster.advance(Duration::from_secs(301));
    cluster.named(CONFIGMAPS, "d").await;
    for query in [
        format!("resourceVersionMatch=Exact&resourceVersion={}", versions[0]),
        format!("limit=1&resourceVersion={}", versions[0]),
    ] {
        list(&cluster, &query).await.refused(410, "Expired");
    }
    // a client recovers with NotOlderThan
    let recovered = list(&cluster, &format!("resourceVersion={}", versions[0])).await.code(200).json();
    assert_eq!(names(&recovered), ["b", "c", "d"]);
}

#[tokio::test]
async fn a_version_of_the_future_is_waited_for_and_then_too_large() {
    let (cluster, versions) = history().await;
    let future = versions[3].parse::<u64>().unwrap() + 1_000;
    let ask = |path: String| {
        let ask = cluster.get(&path);
        async move { ask.await }
    };
    // one after the other this would take as many times the server's patience
    let answers = futures_util::future::join_all([
        ask(format!("{CONFIGMAPS}/b?resourceVersion={future}")),
        ask(format!("{CONFIGMAPS}?resourceVersion={future}")),
        ask(format!("{CONFIGMAPS}?limit=1&resourceVersion={future}")),
        ask(format!("{CONFIGMAPS}?resourceVersionMatch=Exact&resourceVersion={future}")),
        ask(format!("{CONFIGMAPS}?resourceVersionMatch=NotOlderThan&resourceVersion={future}")),
    ])
    .await;
    // a list in chunks is not read from a cache that could catch up
    for (answer, retry_after) in answers.into_iter().zip(["1", "1", "", "1", "1"]) {
        assert_eq!(answer.header("retry-after"), retry_after);
        let status = answer.refused(504, "Timeout");
        assert!(status["message"].as_str().unwrap().contains("Too large resource version"), "{status}");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["causes"][0]["message"], "Too large resource version");
    }
}

#[tokio::test]
async fn a_version_of_the_near_future_is_waited_for() {
    let (cluster, versions) = history().await;
    let next = versions[3].parse::<u64>().unwrap() + 1;
    let path = format!("{CONFIGMAPS}?resourceVersionMatch=Exact&resourceVersion={next}");
    let (list, _) = futures_util::future::join(cluster.read(&path), cluster.named(CONFIGMAPS, "d")).await;
    assert_eq!((names(&list), version(&list)), (vec!["b", "c", "d"], next.to_string()));
}

#[tokio::test]
async fn watch_without_a_version_begins_with_the_state() {
    let (cluster, _) = history().await;
    for query in ["", "&resourceVersion=", "&resourceVersion=0"] {
        let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1{query}")).watch().await;
        watch.expect("ADDED", "b").await;
        watch.expect("ADDED", "c").await;
        cluster.named(CONFIGMAPS, "d").await;
        watch.expect("ADDED", "d").await;
        cluster.delete(&format!("{CONFIGMAPS}/d")).await.code(200);
        watch.expect("DELETED", "d").await;
    }
}

#[tokio::test]
async fn a_watch_from_a_version_has_later_events_only() {
    let (cluster, versions) = history().await;
    let mut watch =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", versions[0])).watch().await;
    watch.expect("ADDED", "b").await;
    let gone = watch.expect("DELETED", "a").await;
    assert_eq!(version(&gone), versions[2], "a deletion has the version at which it happened");
    watch.expect("ADDED", "c").await;
    let mut late =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", versions[3])).watch().await;
    cluster.named(CONFIGMAPS, "d").await;
    late.expect("ADDED", "d").await;
    watch.expect("ADDED", "d").await;
}
