//! Names of cgroups, and their spelling by the two drivers.
//!
//! ```text
//! ["kubepods", "burstable", "pod12-34"]
//! cgroupfs  /kubepods/burstable/pod12-34
//! systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice
//! ```

use std::fmt;

/// Who makes cgroups: the agent by files, or systemd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    #[default]
    Cgroupfs,
    Systemd,
}

/// A cgroup by the parts of its path, from the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// Reads a path such as `/system/agent`.
    pub fn parse(path: &str) -> Self {
        CgroupName(path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    /// Reads the path of a slice such as `/system.slice/system-agent.slice`.
    pub fn parse_systemd(path: &str) -> Self {
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let last = last.strip_suffix(".slice").unwrap_or(last);
        let parts = last.split('-').filter(|part| !part.is_empty());
        CgroupName(parts.map(|part| part.replace('_', "-")).collect())
    }

    #[must_use]
    pub fn child(&self, part: &str) -> Self {
        CgroupName(self.0.iter().cloned().chain([part.to_owned()]).collect())
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The last part.
    pub fn base(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// The path below the root of a hierarchy, with a leading slash.
    pub fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.0.join("/")),
            CgroupDriver::Systemd => {
                let slices: Vec<String> = (1..=self.0.len()).map(|length| slice(&self.0[..length])).collect();
                format!("/{}", slices.join("/"))
            }
        }
    }

    /// The name that a runtime gets for the parent of containers: a path, or the name of a slice.
    pub fn runtime_parent(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.path(driver),
            CgroupDriver::Systemd => slice(&self.0),
        }
    }

    /// The unit of systemd.
    pub fn unit(&self) -> String {
        slice(&self.0)
    }
}

/// The name of a slice: its parts, in which dashes become underscores, joined by dashes.
fn slice(parts: &[String]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| part.replace('-', "_")).collect();
    format!("{}.slice", parts.join("-"))
}

impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path(CgroupDriver::Cgroupfs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_spell_names_differently() {
        let pod = CgroupName::parse("/").child("kubepods").child("burstable").child("pod12-34");
        assert_eq!(pod.path(CgroupDriver::Cgroupfs), "/kubepods/burstable/pod12-34");
        let slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice";
        assert_eq!(pod.path(CgroupDriver::Systemd), slices);
        assert_eq!(pod.runtime_parent(CgroupDriver::Systemd), "kubepods-burstable-pod12_34.slice");
        assert_eq!(pod.runtime_parent(CgroupDriver::Cgroupfs), "/kubepods/burstable/pod12-34");
        assert_eq!(CgroupName::parse_systemd(slices), pod);
        assert_eq!(CgroupName::default().path(CgroupDriver::Cgroupfs), "/");
        assert_eq!(CgroupName::parse("/recnode/x/").child("kubepods").to_string(), "/recnode/x/kubepods");
    }
}
