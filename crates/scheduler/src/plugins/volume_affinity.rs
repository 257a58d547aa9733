//! The nodes that can reach a persistent volume, by its node affinity.
//!
//! On a node where a CSI driver serves the in-tree plugin of the volume, its zones have the names of the driver.

use api::core::v1::PersistentVolume;
use api::node_selector::NodeMatcher;
use client::csi_translation::{InTreePlugin, translate};

use crate::framework::Features;
use crate::node_info::NodeInfo;
use crate::plugins::volumes::{lists_migrated, may_be_migrated};
use crate::storage::Storage;

/// The nodes of a volume; `None` for all.
type Nodes = Option<NodeMatcher>;

#[derive(Debug, Clone)]
pub struct VolumeAffinity {
    declared: Nodes,
    /// Those of the volume as its driver has it, or why it has none.
    of_driver: Option<(InTreePlugin, Result<Nodes, String>)>,
}

impl VolumeAffinity {
    /// The affinity of a bound volume.
    pub fn new(volume: &PersistentVolume, features: Features) -> Self {
        let plugin = InTreePlugin::of(volume).filter(|it| may_be_migrated(*it, features));
        let of_driver = plugin.zip(plugin.and_then(|_| translate(volume))).map(|(plugin, translated)| {
            let nodes = translated.map(|it| nodes(&it));
            (plugin, nodes.map_err(|why| format!("could not translate pv: {why}")))
        });
        VolumeAffinity { of_driver, ..Self::declared(volume) }
    }

    /// The affinity of a volume that is not bound: as with upstream, as it is declared.
    pub fn declared(volume: &PersistentVolume) -> Self {
        VolumeAffinity { declared: nodes(volume), of_driver: None }
    }

    pub fn admits(&self, node: &NodeInfo, storage: &Storage) -> Result<bool, String> {
        let csi_node = || storage.csi_nodes.get(node.name()).map(|it| &**it);
        let nodes = match &self.of_driver {
            Some((plugin, nodes)) if lists_migrated(csi_node(), *plugin) => {
                nodes.as_ref().map_err(String::clone)?
            }
            _ => &self.declared,
        };
        Ok(nodes.as_ref().is_none_or(|nodes| nodes.matches("", node.labels())))
    }
}

fn nodes(volume: &PersistentVolume) -> Nodes {
    let affinity = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    affinity.map(|selector| NodeMatcher::new(selector))
}
