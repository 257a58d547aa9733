//! Why a volume is not mounted.

use client::Note;
use std::fmt::Display;

/// The step that failed, as events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    NodeAffinity,
    /// The source of the volume is looked at.
    Initialize,
    Attach,
    WaitForAttach,
    Stage,
    Publish,
    ExpandOnMount,
    /// The growth of a volume that is in use.
    Expand,
    /// The device of a block volume gets its place for a pod.
    Map,
}

impl Operation {
    fn text(self, is_block: bool) -> &'static str {
        match (self, is_block) {
            (Operation::NodeAffinity, false) => "MountVolume.NodeAffinity check failed",
            (Operation::NodeAffinity, true) => "MapVolume.NodeAffinity check failed",
            (Operation::Initialize, false) => "MountVolume.NewMounter initialization failed",
            (Operation::Initialize, true) => "MapVolume.EvalHostSymlinks failed",
            (Operation::Attach, _) => "AttachVolume.Attach failed",
            (Operation::WaitForAttach, false) => "MountVolume.WaitForAttach failed",
            (Operation::WaitForAttach, true) => "MapVolume.WaitForAttach failed",
            (Operation::Stage, false) => "MountVolume.MountDevice failed",
            (Operation::Stage, true) => "MapVolume.SetUpDevice failed",
            (Operation::Publish, false) => "MountVolume.SetUp failed",
            (Operation::Publish, true) => "MapVolume.MapPodDevice failed",
            (Operation::ExpandOnMount, false) => "MountVolume.Setup failed while expanding volume",
            (Operation::ExpandOnMount, true) => "MapVolume.MarkVolumeAsMounted failed while expanding volume",
            (Operation::Expand, _) => "NodeExpandVolume.NodeExpandVolume failed",
            (Operation::Map, _) => "MapVolume.MapBlockVolume failed",
        }
    }

    fn reason(self, is_block: bool) -> &'static str {
        match (self, is_block) {
            (Operation::Attach, _) => "FailedAttachVolume",
            (Operation::Expand, _) => "VolumeResizeFailed",
            (Operation::NodeAffinity, _) | (_, false) => "FailedMount",
            (_, true) => "FailedMapVolume",
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub enum MountError {
    /// Others have to act first: the volume is not attached, or an operation on it is under way.
    Waiting,
    /// An event about the pod.
    Failed(Note),
}

impl MountError {
    pub fn failed(operation: Operation, is_block: bool, name: &str, why: impl Display) -> Self {
        let message = format!("{} for volume {name:?} : {why}", operation.text(is_block));
        MountError::Failed(Note::warning(operation.reason(is_block), message))
    }
}
