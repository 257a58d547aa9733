//! Where the volumes of CSI drivers are, below the agent's directory.
//!
//! ```text
//! plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/vol_data.json
//! plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/globalmount    staged, for all pods
//! pods/<uid>/volumes/kubernetes.io~csi/<name>/vol_data.json
//! pods/<uid>/volumes/kubernetes.io~csi/<name>/mount                        published, for one pod
//!
//! plugins/kubernetes.io/csi/volumeDevices/<name>/data/vol_data.json        of block volumes
//! plugins/kubernetes.io/csi/volumeDevices/staging/<name>
//! plugins/kubernetes.io/csi/volumeDevices/publish/<name>/<uid>
//! plugins/kubernetes.io/csi/volumeDevices/<name>/dev/<uid>                 the device, mounted
//! pods/<uid>/volumeDevices/kubernetes.io~csi/<name>                        a link to the device
//! ```

use super::volume::{VolumeId, digest};
use crate::container::node_facts::pod_dir;
use crate::volumes::block_map::{BlockMap, DEVICES};
use names::node::{CSI_DIRECTORY, CSI_PLUGIN};
use std::path::{Path, PathBuf};

const GLOBAL_MOUNT: &str = "globalmount";
const MOUNT: &str = "mount";
const STAGING: &str = "staging";
const PUBLISH: &str = "publish";

/// See the module.
#[derive(Debug, Clone)]
pub struct CsiPaths {
    root: PathBuf,
}

impl CsiPaths {
    pub fn new(root: &Path) -> Self {
        CsiPaths { root: root.to_owned() }
    }

    /// The directories of pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directories of drivers, and that of block volumes.
    pub fn plugin(&self) -> PathBuf {
        self.root.join("plugins").join(CSI_PLUGIN)
    }

    /// The directory of a volume on the node.
    pub fn global(&self, id: &VolumeId) -> PathBuf {
        self.plugin().join(&id.driver).join(digest(&id.handle))
    }

    pub fn global_mount(&self, id: &VolumeId) -> PathBuf {
        self.global(id).join(GLOBAL_MOUNT)
    }

    /// Where a volume is staged, in its directory.
    pub fn mount_in(global: &Path) -> PathBuf {
        global.join(GLOBAL_MOUNT)
    }

    /// The directories of the volumes of a pod.
    pub fn of_pod(&self, uid: &str) -> PathBuf {
        pod_dir(&self.root, uid).join("volumes").join(CSI_DIRECTORY)
    }

    /// Where a volume is published, in its directory of a pod.
    pub fn target_in(directory: &Path) -> PathBuf {
        directory.join(MOUNT)
    }

    pub fn target(&self, uid: &str, name: &str) -> PathBuf {
        Self::target_in(&self.of_pod(uid).join(name))
    }

    /// The links to the devices of a pod.
    pub fn devices_of_pod(&self, uid: &str) -> PathBuf {
        pod_dir(&self.root, uid).join(DEVICES).join(CSI_DIRECTORY)
    }

    pub fn device_link(&self, uid: &str, name: &str) -> PathBuf {
        self.devices_of_pod(uid).join(name)
    }

    /// Where the device of a volume is for a pod.
    pub fn block_map(&self, uid: &str, name: &str) -> BlockMap {
        BlockMap { file: self.device_map(name).join(uid), link: self.device_link(uid, name) }
    }

    /// The directories of block volumes, beside two others.
    pub fn devices(&self) -> PathBuf {
        self.plugin().join(DEVICES)
    }

    /// Whether a directory beside those of block volumes is one of them.
    pub fn is_device_name(name: &str) -> bool {
        name != STAGING && name != PUBLISH
    }

    pub fn device(&self, name: &str) -> PathBuf {
        self.devices().join(name)
    }

    pub fn device_data(&self, name: &str) -> PathBuf {
        self.device(name).join("data")
    }

    /// The mounts of a device by the uids of pods.
    pub fn device_map(&self, name: &str) -> PathBuf {
        self.device(name).join("dev")
    }

    pub fn device_staging(&self, name: &str) -> PathBuf {
        self.devices().join(STAGING).join(name)
    }

    pub fn device_publish_dir(&self, name: &str) -> PathBuf {
        self.devices().join(PUBLISH).join(name)
    }

    pub fn device_publish(&self, name: &str, uid: &str) -> PathBuf {
        self.device_publish_dir(name).join(uid)
    }
}
