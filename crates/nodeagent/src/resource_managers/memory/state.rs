//! The memory of NUMA nodes, its assignment to containers, and the file of both.

use crate::resource_managers::checkpoint::{CORRUPT, checksum, list_text, map_text, struct_text};
use crate::resource_managers::policy_state::State;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of one kind of memory of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryTable {
    pub total: u64,
    pub system_reserved: u64,
    pub allocatable: u64,
    /// Assigned to containers.
    pub reserved: u64,
    pub free: u64,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Blocks of containers that are on this node.
    pub assignments: i64,
    /// By resource: `memory`, `hugepages-2Mi`.
    pub tables: BTreeMap<String, MemoryTable>,
    /// The node, and those with which it is used together.
    pub group: Vec<u32>,
}

/// Memory of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryBlock {
    pub nodes: Vec<u32>,
    pub resource: String,
    pub size: u64,
}

/// Blocks by pod and container.
pub type Assignments = BTreeMap<String, BTreeMap<String, Vec<MemoryBlock>>>;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryState {
    pub nodes: BTreeMap<u32, NodeState>,
    pub assignments: Assignments,
}

impl MemoryState {
    pub fn blocks(&self, uid: &str, container: &str) -> Option<&Vec<MemoryBlock>> {
        self.assignments.get(uid)?.get(container)
    }

    pub fn set_blocks(&mut self, uid: &str, container: &str, blocks: Vec<MemoryBlock>) {
        self.assignments.entry(uid.to_owned()).or_default().insert(container.to_owned(), blocks);
    }

    pub fn remove_blocks(&mut self, uid: &str, container: &str) -> Option<Vec<MemoryBlock>> {
        let containers = self.assignments.get_mut(uid)?;
        let removed = containers.remove(container);
        if containers.is_empty() {
            self.assignments.remove(uid);
        }
        removed
    }

    fn checksum(&self, policy: &str) -> u64 {
        let number = |value: u64| value.to_string();
        let table = |it: &MemoryTable| {
            let fields = struct_text(&[
                ("TotalMemSize", "uint64", number(it.total)),
                ("SystemReserved", "uint64", number(it.system_reserved)),
                ("Allocatable", "uint64", number(it.allocatable)),
                ("Reserved", "uint64", number(it.reserved)),
                ("Free", "uint64", number(it.free)),
            ]);
            format!("<*>{fields}")
        };
        let node = |it: &NodeState| {
            let tables = map_text(it.tables.iter().map(|(name, it)| (name, table(it))));
            let fields = struct_text(&[
                ("NumberOfAssignments", "int", it.assignments.to_string()),
                ("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", tables),
                ("Cells", "[]int", list_text(&it.group)),
            ]);
            format!("<*>{fields}")
        };
        let block = |it: &MemoryBlock| {
            struct_text(&[
                ("NUMAAffinity", "[]int", list_text(&it.nodes)),
                ("Type", "v1.ResourceName", it.resource.clone()),
                ("Size", "uint64", number(it.size)),
            ])
        };
        let containers = |all: &BTreeMap<String, Vec<MemoryBlock>>| {
            map_text(all.iter().map(|(name, blocks)| (name, list_text(blocks.iter().map(block)))))
        };
        let entries = map_text(self.assignments.iter().map(|(uid, all)| (uid, containers(all))));
        let fields = struct_text(&[
            ("PolicyName", "string", policy.to_owned()),
            ("MachineState", "state.NUMANodeMap", map_text(self.nodes.iter().map(|(id, it)| (id, node(it))))),
            ("Entries", "state.ContainerMemoryAssignments", entries),
            ("Checksum", "checksum.Checksum", "0".to_owned()),
        ]);
        checksum(&format!("(*state.MemoryManagerCheckpoint){fields}"))
    }
}

impl State for MemoryState {
    const FILE: &'static str = "memory_manager_state";
    const MANAGER: &'static str = "memory manager";

    fn text(&self, policy: &str) -> String {
        let table = |it: &MemoryTable| {
            json!({"total": it.total, "systemReserved": it.system_reserved, "allocatable": it.allocatable,
                   "reserved": it.reserved, "free": it.free})
        };
        let node = |it: &NodeState| {
            let tables: BTreeMap<&String, Value> =
                it.tables.iter().map(|(name, it)| (name, table(it))).collect();
            json!({"numberOfAssignments": it.assignments, "memoryMap": tables, "cells": it.group})
        };
        let block =
            |it: &MemoryBlock| json!({"numaAffinity": it.nodes, "type": it.resource, "size": it.size});
        let containers = |all: &BTreeMap<String, Vec<MemoryBlock>>| -> BTreeMap<String, Vec<Value>> {
            all.iter().map(|(name, blocks)| (name.clone(), blocks.iter().map(block).collect())).collect()
        };
        let nodes: BTreeMap<String, Value> =
            self.nodes.iter().map(|(id, it)| (id.to_string(), node(it))).collect();
        let entries: BTreeMap<&String, _> =
            self.assignments.iter().map(|(uid, all)| (uid, containers(all))).collect();
        let entries = match entries.is_empty() {
            true => String::new(),
            false => format!("\"entries\":{},", json!(entries)),
        };
        format!(
            "{{\"policyName\":{},\"machineState\":{},{entries}\"checksum\":{}}}",
            json!(policy),
            json!(nodes),
            self.checksum(policy)
        )
    }

    fn parse(text: &str, policy: &str) -> Result<Self, String> {
        let corrupt = || CORRUPT.to_owned();
        let value: Value = serde_json::from_str(text).map_err(|_| corrupt())?;
        let state = state(&value).ok_or_else(corrupt)?;
        let written = value.get("policyName").and_then(Value::as_str).unwrap_or_default();
        if value.get("checksum").and_then(Value::as_u64) != Some(state.checksum(written)) {
            return Err(corrupt());
        }
        if written != policy {
            return Err(format!(
                "[memorymanager] configured policy {policy:?} differs from state checkpoint policy {written:?}"
            ));
        }
        Ok(state)
    }
}

fn members<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn numbers(value: Option<&Value>) -> Option<Vec<u32>> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.map(|it| it.as_u64().and_then(|it| u32::try_from(it).ok())).collect()
}

fn state(value: &Value) -> Option<MemoryState> {
    let mut state = MemoryState::default();
    for (id, node) in members(value, "machineState") {
        let mut next = NodeState {
            assignments: node.get("numberOfAssignments")?.as_i64()?,
            group: numbers(node.get("cells"))?,
            ..NodeState::default()
        };
        for (resource, table) in members(node, "memoryMap") {
            let size = |name: &str| table.get(name).and_then(Value::as_u64);
            let table = MemoryTable {
                total: size("total")?,
                system_reserved: size("systemReserved")?,
                allocatable: size("allocatable")?,
                reserved: size("reserved")?,
                free: size("free")?,
            };
            next.tables.insert(resource.clone(), table);
        }
        state.nodes.insert(id.parse().ok()?, next);
    }
    for (uid, containers) in members(value, "entries") {
        for (name, blocks) in containers.as_object()? {
            let block = |it: &Value| {
                Some(MemoryBlock {
                    nodes: numbers(it.get("numaAffinity"))?,
                    resource: it.get("type")?.as_str()?.to_owned(),
                    size: it.get("size")?.as_u64()?,
                })
            };
            let blocks = blocks.as_array()?.iter().map(block).collect::<Option<Vec<_>>>()?;
            state.set_blocks(uid, name, blocks);
        }
    }
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_upstream() {
        assert_eq!(
            MemoryState::default().text("None"),
            r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#
        );
        let mut count = 0;
        for row in include_str!("sequences.jsonl").lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            let text = row["checkpoint"].as_str().unwrap();
            let state = MemoryState::parse(text, "Static").unwrap_or_else(|why| panic!("{text}: {why}"));
            let same = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(same(&state.text("Static")), same(text));
            count += 1;
        }
        assert!(count > 10);
    }

    #[test]
    fn damaged_files_and_those_of_another_policy_are_refused() {
        let text = MemoryState::default().text("None");
        let error = |text: &str, policy: &str| MemoryState::parse(text, policy).unwrap_err();
        assert_eq!(
            error(&text, "Static"),
            "[memorymanager] configured policy \"Static\" differs from state checkpoint policy \"None\""
        );
        assert_eq!(error(&text.replace("None", "Nine"), "None"), CORRUPT);
        assert_eq!(error(r#"{"machineState":{"x":{}}}"#, "None"), CORRUPT);
        assert_eq!(error("[]", "None"), CORRUPT);
    }
}
