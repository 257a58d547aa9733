//! The CSI drivers of the node in the API: the CSINode, and an annotation and labels of the Node.

use api::core::v1::Node;
use api::meta::v1::{ObjectMeta, OwnerReference};
use api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use client::{Api, Backoff, Client, Error, Patch};
use env::World;
use grpc::csi::NodeGetInfoResponse;
use names::labels::MIGRATED_PLUGINS;
use names::node::CSI_NODE_ID;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Attempts of a write, and the waits between them.
const ATTEMPTS: u32 = 4;
const RETRIES: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(250)).with_factor(5);
/// The waits of the first write, which is repeated until it succeeds.
const FIRST_WRITE_RETRIES: Backoff =
    Backoff::new(Duration::from_millis(15), Duration::from_secs(20)).with_factor(6);

/// The wait for the node, which another task registers: a long one would keep the node from being ready.
const REGISTRATION_POLL: Duration = Duration::from_millis(500);

/// The change of a node's metadata, if there is one.
type NodeChange<'a> = dyn Fn(&Node) -> Result<Option<Value>, String> + Sync + 'a;

/// Writes the objects. See the module.
pub struct NodeInfoWriter {
    nodes: Api<Node>,
    csi_nodes: Api<CSINode>,
    node_name: String,
    world: World,
    /// In-tree plugins whose volumes CSI drivers serve.
    migrated: BTreeSet<String>,
    /// One write at a time.
    writing: tokio::sync::Mutex<()>,
}

impl NodeInfoWriter {
    pub fn new(client: &Client, node_name: &str, world: World, migrated: BTreeSet<String>) -> Self {
        NodeInfoWriter {
            nodes: Api::all(client),
            csi_nodes: Api::all(client),
            node_name: node_name.to_owned(),
            world,
            migrated,
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Makes the CSINode, or brings its annotation up to date. `report` gets the reason why the node is not ready until
    /// then.
    pub async fn initialize(&self, report: impl Fn(Option<String>)) {
        report(Some("CSINode is not yet initialized".to_owned()));
        let mut backoff = FIRST_WRITE_RETRIES;
        while let Err(why) = self.try_initialize().await {
            let pause = match why.is_not_found() {
                true => REGISTRATION_POLL,
                false => {
                    report(Some(format!("failed to initialize CSINode: {}", why.message())));
                    backoff.pause()
                }
            };
            env::sleep(&self.world, pause).await;
        }
        report(None);
    }

    async fn try_initialize(&self) -> Result<(), Error> {
        let _one = self.writing.lock().await;
        let mut object = self.csi_node().await?;
        match self.set_migrated(&mut object) {
            true => self.csi_nodes.replace(&object).await.map(drop),
            false => Ok(()),
        }
    }

    /// The CSINode, which is made if it is absent.
    async fn csi_node(&self) -> Result<CSINode, Error> {
        if let Some(found) = self.csi_nodes.get_opt(&self.node_name).await? {
            return Ok(found);
        }
        let node = self.nodes.get(&self.node_name).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.metadata.name,
            uid: node.metadata.uid,
            ..OwnerReference::default()
        };
        let mut object = CSINode {
            metadata: ObjectMeta {
                name: self.node_name.clone(),
                owner_references: vec![owner],
                ..ObjectMeta::default()
            },
            spec: CSINodeSpec::default(),
            ..CSINode::default()
        };
        self.set_migrated(&mut object);
        self.csi_nodes.create(&object).await
    }

    /// Says whether the annotation of migrated plugins has changed.
    fn set_migrated(&self, object: &mut CSINode) -> bool {
        let annotations = &mut object.metadata.annotations;
        let text = annotations.get(MIGRATED_PLUGINS).map(String::as_str).unwrap_or_default();
        let current: BTreeSet<String> =
            text.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        if current == self.migrated {
            return false;
        }
        match self.migrated.is_empty() {
            true => drop(annotations.remove(MIGRATED_PLUGINS)),
            false => {
                let names: Vec<&str> = self.migrated.iter().map(String::as_str).collect();
                annotations.insert(MIGRATED_PLUGINS.to_owned(), names.join(","));
            }
        }
        true
    }

    /// Writes a driver that has registered.
    pub async fn install(&self, driver: &str, info: NodeGetInfoResponse) -> Result<(), String> {
        if info.node_id.is_empty() {
            return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
        }
        let topology = info.accessible_topology.map(|it| it.segments).unwrap_or_default();
        let change = |node: &Node| installed(node, driver, &info.node_id, &topology);
        self.retry("error updating node", || self.patch_node(&change))
            .await
            .map_err(|why| format!("error updating Node object with CSI driver node info: {why}"))?;
        let limit = info.max_volumes_per_node;
        let write = || self.install_in_csi_node(driver, &info.node_id, limit, &topology);
        self.retry("error updating CSINode", write)
            .await
            .map_err(|why| format!("error updating CSINode object with CSI driver node info: {why}"))
    }

    /// Removes a driver that has gone. Labels stay.
    pub async fn uninstall(&self, driver: &str) -> Result<(), String> {
        self.retry("error updating CSINode", || self.remove_from_csi_node(driver))
            .await
            .map_err(|why| format!("error uninstalling CSI driver from CSINode object {why}"))?;
        let change = |node: &Node| uninstalled(node, driver);
        self.retry("error updating node", || self.patch_node(&change))
            .await
            .map_err(|why| format!("error removing CSI driver node info from Node object {why}"))
    }

    /// Repeats a write that has failed, some times.
    async fn retry<W>(&self, prefix: &str, write: impl Fn() -> W) -> Result<(), String>
    where
        W: Future<Output = Result<(), String>>,
    {
        let mut errors: Vec<String> = Vec::new();
        let mut backoff = RETRIES;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                env::sleep(&self.world, backoff.pause()).await;
            }
            match write().await {
                Ok(()) => return Ok(()),
                Err(why) if errors.contains(&why) => {}
                Err(why) => errors.push(why),
            }
        }
        let causes = if let [one] = &*errors { one.clone() } else { format!("[{}]", errors.join(", ")) };
        Err(format!("{prefix}: timed out waiting for the condition; caused by: {causes}"))
    }

    async fn patch_node(&self, change: &NodeChange<'_>) -> Result<(), String> {
        let _one = self.writing.lock().await;
        let node = self.nodes.get(&self.node_name).await.map_err(|why| why.message())?;
        let Some(metadata) = change(&node)? else { return Ok(()) };
        let patch = Patch::strategic(json!({ "metadata": metadata }));
        self.nodes.patch_status(&self.node_name, &patch).await.map(drop).map_err(|why| why.message())
    }

    async fn install_in_csi_node(
        &self,
        driver: &str,
        node_id: &str,
        max_volumes: i64,
        topology: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let _one = self.writing.lock().await;
        let mut object = self.csi_node().await.map_err(|why| why.message())?;
        let is_migrated = self.set_migrated(&mut object);
        let keys: BTreeSet<&String> = topology.keys().collect();
        let drivers = &mut object.spec.drivers;
        let is_known = drivers.iter().any(|it| {
            it.name == driver
                && it.node_id == node_id
                && it.topology_keys.iter().collect::<BTreeSet<_>>() == keys
        });
        if is_known && !is_migrated {
            return Ok(());
        }
        if max_volumes < 0 {
            tracing::warn!(driver, max_volumes, "a CSI driver has a bad limit of volumes");
        }
        let allocatable = (max_volumes > 0).then(|| {
            let count = i32::try_from(max_volumes).unwrap_or(i32::MAX);
            Box::new(VolumeNodeResources { count: Some(count), ..VolumeNodeResources::default() })
        });
        drivers.retain(|it| it.name != driver);
        drivers.push(CSINodeDriver {
            name: driver.to_owned(),
            node_id: node_id.to_owned(),
            topology_keys: topology.keys().cloned().collect(),
            allocatable,
            ..CSINodeDriver::default()
        });
        self.csi_nodes.replace(&object).await.map(drop).map_err(|why| why.message())
    }

    async fn remove_from_csi_node(&self, driver: &str) -> Result<(), String> {
        let _one = self.writing.lock().await;
        let found = self.csi_nodes.get_opt(&self.node_name).await.map_err(|why| why.message())?;
        let Some(mut object) = found else { return Ok(()) };
        let count = object.spec.drivers.len();
        object.spec.drivers.retain(|it| it.name != driver);
        match object.spec.drivers.len() == count {
            true => Ok(()),
            false => self.csi_nodes.replace(&object).await.map(drop).map_err(|why| why.message()),
        }
    }
}

/// The ids that drivers have for a node, by driver.
fn node_ids(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let text = node.metadata.annotations.get(CSI_NODE_ID).map(String::as_str).unwrap_or_default();
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_json::from_str::<Option<BTreeMap<String, String>>>(text).map(Option::unwrap_or_default).map_err(
        |why| format!("failed to parse node's {CSI_NODE_ID:?} annotation value ({text:?}) err={why}"),
    )
}

/// The change of a node's metadata for a driver that has registered.
fn installed(
    node: &Node,
    driver: &str,
    node_id: &str,
    topology: &BTreeMap<String, String>,
) -> Result<Option<Value>, String> {
    let mut change = json!({});
    let mut ids = node_ids(node)?;
    if ids.get(driver).map(String::as_str) != Some(node_id) {
        ids.insert(driver.to_owned(), node_id.to_owned());
        change["annotations"] = json!({ CSI_NODE_ID: json!(ids).to_string() });
    }
    let labels = &node.metadata.labels;
    for (key, value) in topology {
        match labels.get(key) {
            Some(current) if current != value => {
                return Err(format!(
                    "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{current:?}"
                ));
            }
            Some(_) => {}
            None => change["labels"][key] = json!(value),
        }
    }
    Ok((change != json!({})).then_some(change))
}

/// The change of a node's metadata for a driver that has gone.
fn uninstalled(node: &Node, driver: &str) -> Result<Option<Value>, String> {
    let mut ids = node_ids(node)?;
    if ids.remove(driver).is_none() {
        return Ok(None);
    }
    let text = if ids.is_empty() { Value::Null } else { json!(json!(ids).to_string()) };
    Ok(Some(json!({ "annotations": { CSI_NODE_ID: text } })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;
    use crate::volumes::csi::testing::ObjectServer;
    use env::Simulated;
    use grpc::csi::Topology;

    fn info(id: &str, limit: i64, topology: &[(&str, &str)]) -> NodeGetInfoResponse {
        let segments = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeGetInfoResponse {
            node_id: id.to_owned(),
            max_volumes_per_node: limit,
            accessible_topology: Some(Topology { segments }),
        }
    }

    fn writer(server: &ObjectServer, migrated: &[&str]) -> (NodeInfoWriter, std::sync::Arc<Simulated>) {
        let clock = Simulated::new(1_700_000_000, 1);
        let migrated = migrated.iter().map(|it| (*it).to_owned()).collect();
        (NodeInfoWriter::new(&server.client(), "n", clock.clone(), migrated), clock)
    }

    const NODE: &str = "/api/v1/nodes/n";
    const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/n";

    #[tokio::test]
    async fn drivers_are_written_into_the_objects_of_the_node() {
        let server = ObjectServer::default();
        server.put(NODE, json!({"metadata":{"name":"n","uid":"nu","labels":{"zone":"z"}}}));
        let (writer, _) = writer(&server, &["kubernetes.io/b", "kubernetes.io/a"]);
        writer.initialize(|_| {}).await;
        let made = server.object(CSI_NODE).unwrap();
        assert_eq!(made["metadata"]["annotations"][MIGRATED_PLUGINS], "kubernetes.io/a,kubernetes.io/b");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "nu");
        assert_eq!(made["spec"], json!({"drivers": null}));
        writer.install("d1", info("id1", 5, &[("zone", "z"), ("rack", "r")])).await.unwrap();
        writer.install("d2", info("id2", 1 << 40, &[])).await.unwrap();
        let node = server.object(NODE).unwrap();
        assert_eq!(node["metadata"]["annotations"][CSI_NODE_ID], r#"{"d1":"id1","d2":"id2"}"#);
        assert_eq!(node["metadata"]["labels"], json!({"zone":"z","rack":"r"}));
        let expected = json!([
            {"name":"d1","nodeID":"id1","topologyKeys":["rack","zone"],"allocatable":{"count":5}},
            {"name":"d2","nodeID":"id2","topologyKeys":null,"allocatable":{"count":i32::MAX}}]);
        assert_eq!(server.object(CSI_NODE).unwrap()["spec"]["drivers"], expected);
        // the same again writes nothing
        let writes = server.writes();
        writer.install("d1", info("id1", 5, &[("zone", "z"), ("rack", "r")])).await.unwrap();
        assert_eq!(server.writes(), writes);
        writer.uninstall("d1").await.unwrap();
        let node = server.object(NODE).unwrap();
        assert_eq!(node["metadata"]["annotations"][CSI_NODE_ID], r#"{"d2":"id2"}"#);
        writer.uninstall("d2").await.unwrap();
        assert!(server.object(NODE).unwrap()["metadata"]["annotations"].get(CSI_NODE_ID).is_none());
        assert_eq!(server.object(CSI_NODE).unwrap()["spec"]["drivers"], Value::Null);
        assert_eq!(server.object(NODE).unwrap()["metadata"]["labels"]["rack"], "r");
    }

    #[test]
    fn bad_answers_of_drivers_are_errors() {
        let node: Node = object(&format!(
            r#"{{"metadata":{{"name":"n","labels":{{"zone":"z"}},"annotations":{{"{CSI_NODE_ID}":"{{"}}}}}}"#
        ));
        assert!(installed(&node, "d", "i", &BTreeMap::new()).unwrap_err().contains("failed to parse node's"));
        let node: Node = object(r#"{"metadata":{"name":"n","labels":{"zone":"z"}}}"#);
        let topology = BTreeMap::from([("zone".to_owned(), "y".to_owned())]);
        assert_eq!(
            installed(&node, "d", "i", &topology).unwrap_err(),
            "detected topology value collision: driver reported \"zone\":\"y\" but existing label is \"zone\":\"z\""
        );
    }

    #[tokio::test]
    async fn the_node_is_not_ready_before_its_csi_node_exists() {
        let server = ObjectServer::default();
        let (writer, clock) = writer(&server, &[]);
        let reports = parking_lot::Mutex::new(Vec::new());
        let initialized = writer.initialize(|it| reports.lock().push(it));
        tokio::pin!(initialized);
        let early = tokio::select! {
            () = &mut initialized => true,
            () = async { for _ in 0..100 { tokio::task::yield_now().await } } => false,
        };
        assert!(!early);
        assert_eq!(*reports.lock(), [Some("CSINode is not yet initialized".to_owned())]);
        server.put(NODE, json!({"metadata":{"name":"n","uid":"nu"}}));
        let moving = async {
            loop {
                clock.advance(Duration::from_millis(100));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = initialized => {}
            () = moving => {}
        }
        assert_eq!(reports.lock().last(), Some(&None));
    }
}
