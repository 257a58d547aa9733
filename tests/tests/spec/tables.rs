//! "Table": rows for people, with columns by kind.

use super::*;
use std::time::Duration;
use tests::Cluster;

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

fn columns(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().unwrap_or_else(|| panic!("no columns: {table}"));
    columns.iter().map(|column| column["name"].as_str().unwrap()).collect()
}

fn cells(table: &Value, row: usize) -> Vec<String> {
    let cells = table["rows"][row]["cells"].as_array().unwrap_or_else(|| panic!("no row {row}: {table}"));
    cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)).collect()
}

#[tokio::test]
async fn objects_and_lists_come_as_tables() {
    let cluster = Cluster::start().await;
    let created =
        cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}})).await;
    cluster.advance(Duration::from_secs(90));
    for path in [format!("{CONFIGMAPS}/x"), CONFIGMAPS.to_owned()] {
        let answer = cluster.get(&path).accept(TABLE).await.code(200);
        let table = answer.json();
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        assert_eq!(columns(&table), ["Name", "Data", "Age"]);
        assert_eq!(cells(&table, 0), ["x", "2", "90s"]);
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"]["metadata"], created["metadata"]);
        for column in table["columnDefinitions"].as_array().unwrap() {
            for attribute in ["name", "type", "format", "description", "priority"] {
                assert!(column.get(attribute).is_some(), "{attribute}: {column}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_cannot_have_a_table_falls_back() {
    let cluster = Cluster::start().await;
    let accept = format!("{TABLE}, application/json");
    let answer = cluster.get("/api/v1").accept(&accept).await.code(200).json();
    assert_eq!(answer["kind"], "APIResourceList", "discovery has no table form");
    assert_eq!(cluster.get(CONFIGMAPS).accept(&accept).await.code(200).json()["kind"], "Table");
}

#[tokio::test]
async fn rows_include_the_requested_part_of_the_object() {
    let cluster = Cluster::start().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": "v"}})).await;
    let object = async |include: &str| {
        let ask = cluster.get(&format!("{CONFIGMAPS}?includeObject={include}")).accept(TABLE);
        ask.await.code(200).json()["rows"][0]["object"].clone()
    };
    assert_eq!(object("None").await, Value::Null);
    assert_eq!(object("Metadata").await["metadata"], created["metadata"]);
    assert_eq!(object("Object").await["data"], json!({"k": "v"}));
    let ask = cluster.get(&format!("{CONFIGMAPS}?includeObject=Some")).accept(TABLE);
    ask.await.refused(400, "BadRequest");
}

#[tokio::test]
async fn every_kind_has_its_columns() {
    let cluster = Cluster::start().await;
    for (path, expected) in [
        (NAMESPACES, &["Name", "Status", "Age"][..]),
        (
            NODES,
            &[
                "Name",
                "Status",
                "Roles",
                "Age",
                "Version",
                "Internal-IP",
                "External-IP",
                "OS-Image",
                "Kernel-Version",
                "Container-Runtime",
            ],
        ),
        (
            PODS,
            &[
                "Name",
                "Ready",
                "Status",
                "Restarts",
                "Age",
                "IP",
                "Node",
                "Nominated Node",
                "Readiness Gates",
            ],
        ),
        (CONFIGMAPS, &["Name", "Data", "Age"]),
        (SECRETS, &["Name", "Type", "Data", "Age"]),
        (ACCOUNTS, &["Name", "Secrets", "Age"]),
        (
            EVENTS,
            &[
                "Last Seen",
                "Type",
                "Reason",
                "Object",
                "Subobject",
                "Source",
                "Message",
                "First Seen",
                "Count",
                "Name",
            ],
        ),
        (LEASES, &["Name", "Holder", "Age"]),
        (CLASSES, &["Name", "Handler", "Age"]),
        (REQUESTS, &["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"]),
    ] {
        let table = cluster.get(path).accept(TABLE).await.code(200).json();
        assert_eq!(columns(&table), expected, "{path}");
    }
}

#[tokio::test]
async fn cells_show_the_state() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let table = cluster.get(PODS).accept(TABLE).await.code(200).json();
    assert_eq!(&cells(&table, 0)[..5], ["p", "0/1", "Pending", "0", "0s"]);
    let table = cluster.get(NAMESPACES).accept(TABLE).await.code(200).json();
    assert_eq!(cells(&table, 0), ["default", "Active", "0s"]);
    cluster.create(CLASSES, runtime_class("r")).await;
    let table = cluster.get(CLASSES).accept(TABLE).await.code(200).json();
    assert_eq!(cells(&table, 0), ["r", "plain", "0s"]);
}

#[tokio::test]
async fn a_table_is_chunked_like_its_list() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    let first = cluster.get(&format!("{CONFIGMAPS}?limit=2")).accept(TABLE).await.code(200).json();
    assert_eq!(first["rows"].as_array().unwrap().len(), 2);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest =
        cluster.get(&format!("{CONFIGMAPS}?limit=2&continue={token}")).accept(TABLE).await.code(200).json();
    assert_eq!(cells(&rest, 0)[0], "c");
    assert_eq!(version(&rest), version(&first));
}

#[tokio::test]
async fn a_watch_sends_the_columns_once() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).accept(TABLE).watch().await;
    let first = watch.some().await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(columns(&first["object"]), ["Name", "Data", "Age"]);
    cluster.named(CONFIGMAPS, "b").await;
    let second = watch.some().await;
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(cells(&second["object"], 0)[0], "b");
}
