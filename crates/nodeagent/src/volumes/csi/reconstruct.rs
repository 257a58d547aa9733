//! The volumes that are on the node, read from their directories.

use super::paths::CsiPaths;
use super::volume_data::VolumeData;
use super::volume_table::{VolumeEntry, VolumeTable};
use crate::volumes::block_map::DEVICES;
use std::path::Path;

/// The names in a directory, sorted; none if it cannot be read.
pub(super) fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|it| it.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The volume data of a directory. A file that cannot be read is reported.
fn data_in(directory: &Path) -> Option<VolumeData> {
    VolumeData::read(directory).unwrap_or_else(|why| {
        tracing::warn!(%why, directory = %directory.display(), "a volume cannot be reconstructed");
        None
    })
}

/// Reads all volumes with the pods that have them.
pub(super) fn reconstruct(paths: &CsiPaths) -> VolumeTable {
    let mut table = VolumeTable::default();
    for driver in names_in(&paths.plugin()).iter().filter(|it| *it != DEVICES) {
        for name in names_in(&paths.plugin().join(driver)) {
            let Some(data) = data_in(&paths.plugin().join(driver).join(name)) else { continue };
            // until its driver's object is read it counts as attached: it must not be detached while it is staged
            table.volumes.insert(data.id(), VolumeEntry { is_attached: true, ..VolumeEntry::default() });
        }
    }
    for name in names_in(&paths.devices()).into_iter().filter(|it| CsiPaths::is_device_name(it)) {
        let Some(data) = data_in(&paths.device_data(&name)) else { continue };
        let mut users = names_in(&paths.device_map(&name));
        users.extend(names_in(&paths.device_publish_dir(&name)));
        let entry = VolumeEntry {
            spec_name: name,
            is_block: true,
            is_attached: true,
            users: users.into_iter().collect(),
            ..VolumeEntry::default()
        };
        table.volumes.insert(data.id(), entry);
    }
    for uid in names_in(&paths.pods()) {
        for name in names_in(&paths.of_pod(&uid)) {
            let Some(data) = data_in(&paths.of_pod(&uid).join(&name)) else { continue };
            table.enter(&data.id(), &name, false, &uid);
            if let Some(entry) = table.volumes.get_mut(&data.id()) {
                entry.is_attached |= !data.is_ephemeral();
            }
        }
        for name in names_in(&paths.devices_of_pod(&uid)) {
            if let Some(data) = data_in(&paths.device_data(&name)) {
                table.enter(&data.id(), &name, true, &uid);
            }
        }
    }
    table
}
