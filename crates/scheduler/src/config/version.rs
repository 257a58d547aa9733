//! Versions of the configuration.

use names::Names;

/// A version of `KubeSchedulerConfiguration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V1beta2,
    V1beta3,
    V1,
}

impl Version {
    pub const ALL: [Version; 3] = [Version::V1beta2, Version::V1beta3, Version::V1];

    pub fn name(self) -> &'static str {
        match self {
            Version::V1beta2 => "v1beta2",
            Version::V1beta3 => "v1beta3",
            Version::V1 => "v1",
        }
    }

    /// The value of `apiVersion`.
    pub fn api_version(self, names: &Names) -> String {
        format!("{}/{}", group(names), self.name())
    }

    pub fn from_api_version(text: &str, names: &Names) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.api_version(names) == text)
    }

    /// The notice of a version that upstream will remove.
    pub fn deprecation(self) -> Option<&'static str> {
        match self {
            Version::V1beta2 => {
                Some("KubeSchedulerConfiguration v1beta2 is deprecated in v1.25, will be removed in v1.28")
            }
            Version::V1beta3 => {
                Some("KubeSchedulerConfiguration v1beta3 is deprecated in v1.26, will be removed in v1.29")
            }
            Version::V1 => None,
        }
    }
}

/// The group of the configuration's kinds.
pub(super) fn group(names: &Names) -> String {
    names.group("kubescheduler.config")
}
