//! The file of the device manager: devices of containers with the responses of plugins, and registered resources.

use super::device::{AllocatedDevices, DeviceRecord};
use super::device_state::DeviceState;
use crate::resource_managers::checkpoint::{CORRUPT, checksum, list_text, map_text, struct_text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use grpc::Message;
use grpc::device_plugin::ContainerAllocateResponse;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of the file beside the sockets of plugins.
pub const FILE: &str = "kubelet_internal_checkpoint";

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checkpoint {
    entries: Vec<Entry>,
    registered: BTreeMap<String, Vec<String>>,
}

/// A record with the bytes of the response: its encoding is not unique.
#[derive(Debug, Clone, Default, PartialEq)]
struct Entry {
    uid: String,
    container: String,
    resource: String,
    by_node: BTreeMap<i64, Vec<String>>,
    response: Vec<u8>,
}

impl Checkpoint {
    pub fn new(state: &DeviceState) -> Self {
        let mut entries = Vec::new();
        for (uid, containers) in &state.pods {
            for (container, resources) in containers {
                for (resource, devices) in resources {
                    entries.push(Entry {
                        uid: uid.clone(),
                        container: container.clone(),
                        resource: resource.clone(),
                        by_node: devices.by_node.clone(),
                        response: devices.response.encode_to_vec(),
                    });
                }
            }
        }
        let healthy = |name: &String| state.healthy(name).into_iter().collect();
        let registered = state.resources.keys().map(|name| (name.clone(), healthy(name))).collect();
        Checkpoint { entries, registered }
    }

    /// The devices of containers, and the names of registered resources.
    pub fn into_parts(self) -> (Vec<DeviceRecord>, Vec<String>) {
        let record = |entry: Entry| {
            let response = ContainerAllocateResponse::decode(Bytes::from(entry.response));
            let response = response
                .inspect_err(|why| tracing::warn!(%why, pod = entry.uid, "a stored response is not readable"))
                .ok()?;
            Some(DeviceRecord {
                uid: entry.uid,
                container: entry.container,
                resource: entry.resource,
                devices: AllocatedDevices { by_node: entry.by_node, response },
            })
        };
        (self.entries.into_iter().filter_map(record).collect(), self.registered.into_keys().collect())
    }

    fn checksum(&self) -> u64 {
        let entry = |it: &Entry| {
            struct_text(&[
                ("PodUID", "string", it.uid.clone()),
                ("ContainerName", "string", it.container.clone()),
                ("ResourceName", "string", it.resource.clone()),
                (
                    "DeviceIDs",
                    "checkpoint.DevicesPerNUMA",
                    map_text(it.by_node.iter().map(|(node, ids)| (node, list_text(ids)))),
                ),
                ("AllocResp", "[]uint8", list_text(&it.response)),
            ])
        };
        let entries = match self.entries.is_empty() {
            true => "<nil>".to_owned(),
            false => list_text(self.entries.iter().map(entry)),
        };
        let registered = map_text(self.registered.iter().map(|(name, ids)| (name, list_text(ids))));
        let fields = struct_text(&[
            ("PodDeviceEntries", "[]checkpoint.PodDevicesEntry", entries),
            ("RegisteredDevices", "map[string][]string", registered),
        ]);
        checksum(&format!("(checkpoint.checkpointData){fields}"))
    }

    pub fn text(&self) -> String {
        let entry = |it: &Entry| {
            let ids: BTreeMap<String, &Vec<String>> =
                it.by_node.iter().map(|(node, ids)| (node.to_string(), ids)).collect();
            format!(
                "{{\"PodUID\":{},\"ContainerName\":{},\"ResourceName\":{},\"DeviceIDs\":{},\"AllocResp\":{}}}",
                json!(it.uid),
                json!(it.container),
                json!(it.resource),
                json!(ids),
                json!(STANDARD.encode(&it.response))
            )
        };
        let entries = match self.entries.is_empty() {
            true => "null".to_owned(),
            false => format!("[{}]", self.entries.iter().map(entry).collect::<Vec<_>>().join(",")),
        };
        format!(
            "{{\"Data\":{{\"PodDeviceEntries\":{entries},\"RegisteredDevices\":{}}},\"Checksum\":{}}}",
            json!(self.registered),
            self.checksum()
        )
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let corrupt = || CORRUPT.to_owned();
        let value: Value = serde_json::from_str(text).map_err(|_| corrupt())?;
        let checkpoint = content(&value["Data"]).ok_or_else(corrupt)?;
        match value["Checksum"].as_u64() == Some(checkpoint.checksum()) {
            true => Ok(checkpoint),
            false => Err(corrupt()),
        }
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let items = value.as_array().into_iter().flatten();
    items.map(|it| it.as_str().map(str::to_owned)).collect()
}

fn content(data: &Value) -> Option<Checkpoint> {
    let entry = |it: &Value| {
        let text = |name: &str| it[name].as_str().map(str::to_owned);
        let by_node = it["DeviceIDs"].as_object()?.iter();
        let by_node = by_node.map(|(node, ids)| Some((node.parse().ok()?, texts(ids)?)));
        // no bytes are null
        let response = it["AllocResp"].as_str().unwrap_or_default();
        Some(Entry {
            uid: text("PodUID")?,
            container: text("ContainerName")?,
            resource: text("ResourceName")?,
            by_node: by_node.collect::<Option<_>>()?,
            response: STANDARD.decode(response).ok()?,
        })
    };
    let entries = data["PodDeviceEntries"].as_array().into_iter().flatten().map(entry);
    let registered = data["RegisteredDevices"].as_object().into_iter().flatten();
    let registered = registered.map(|(name, ids)| Some((name.clone(), texts(ids)?)));
    Some(Checkpoint {
        entries: entries.collect::<Option<_>>()?,
        registered: registered.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_upstream() {
        for text in include_str!("checkpoints.txt").lines() {
            let checkpoint = Checkpoint::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(checkpoint.text(), text);
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let text = Checkpoint::default().text();
        assert!(Checkpoint::parse(&text).is_ok());
        for text in
            ["", "[]", "{}", &text.replace("null", r#"[{"PodUID":1}]"#), &text.replace("{}", r#"{"a":[]}"#)]
        {
            assert_eq!(Checkpoint::parse(text), Err(CORRUPT.to_owned()), "{text}");
        }
    }
}
