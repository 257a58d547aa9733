//! Reads each record as a server would, and collects what stands out.

use super::catalog::{Catalog, KeyClass};
use super::cluster::ClusterFacts;
use super::references::References;
use super::report::{Findings, Report, ResourceCount, Severity};
use bytes::Bytes;
use names::Names;
use schema::{Value, decode};
use std::collections::{BTreeMap, BTreeSet};
use store::{Revision, SnapshotRecord};

/// See the module.
pub struct Inspection {
    catalog: Catalog,
    names: Names,
    resources: BTreeMap<String, ResourceCount>,
    findings: Findings,
    /// Custom resources with the versions of their values, by definition: `plural.group`.
    custom: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// The versions of definitions, by the same name.
    definitions: BTreeMap<String, BTreeSet<String>>,
    references: References,
    facts: ClusterFacts,
}

impl Inspection {
    pub fn new(names: &Names) -> Self {
        Inspection {
            catalog: Catalog::new(names),
            names: names.clone(),
            resources: BTreeMap::new(),
            findings: Findings::default(),
            custom: BTreeMap::new(),
            definitions: BTreeMap::new(),
            references: References::default(),
            facts: ClusterFacts::default(),
        }
    }

    /// Adds a record and its value, or why that cannot be decrypted.
    pub fn add(&mut self, record: &SnapshotRecord, value: Result<Bytes, String>) {
        let key = &*record.key;
        let is_encrypted = record.value.starts_with(self.names.sealed_prefix().as_bytes());
        let value = match value {
            Ok(value) => value,
            Err(why) => {
                let (provider, name) = provider_and_key(&record.value, &self.names);
                let text = format!(
                    "encrypted by the provider {provider} with the key {name:?}, which the configuration does not hold \
                     (--encryption-provider-config)"
                );
                self.findings.add(Severity::Blocks, text, format!("{key}: {why}"));
                return;
            }
        };
        let resource = match self.catalog.class(key) {
            KeyClass::Server(what) => {
                self.facts.see_server_key(key, what, record.expires_at.is_some());
                return;
            }
            KeyClass::Unknown => {
                let text = "keys of no kind that is served: they stay in the etcd, and no request shows them";
                self.findings.add(Severity::Differs, text, key);
                return;
            }
            KeyClass::Custom { group, plural } => {
                let definition = format!("{plural}.{group}");
                let version = self.add_custom(key, &definition, &value);
                self.count(&definition, version, is_encrypted, record.expires_at.is_some());
                return;
            }
            KeyClass::Object(kind) => match &kind.inspector {
                Some(inspector) => match inspector.inspect(&value) {
                    Ok(seen) => (kind.resource.clone(), seen),
                    Err(why) => {
                        self.findings.add(
                            Severity::Blocks,
                            "values that cannot be decoded",
                            format!("{key}: {why}"),
                        );
                        return;
                    }
                },
                None => {
                    let text =
                        format!("objects of {}, which is served only with --runtime-config", kind.resource);
                    self.findings.add(Severity::Differs, text, key);
                    return;
                }
            },
        };
        let (resource, seen) = resource;
        if !seen.is_known_version {
            let text = format!(
                "values of the unknown version {:?}: fields that the served version does not have are left out",
                seen.api_version
            );
            self.findings.add(Severity::Differs, text, key);
        }
        for field in &seen.unknown_fields {
            let text =
                format!("{resource}: {field}: not in the tables, so the next write of the object drops it");
            self.findings.add(Severity::Differs, text, key);
        }
        for field in &seen.defaulted_fields {
            let text = format!("{resource}: {field} gets its default when the object is read");
            self.findings.add(Severity::Note, text, key);
        }
        self.count(&resource, seen.api_version, is_encrypted, record.expires_at.is_some());
        self.see(&resource, &seen.value);
    }

    fn count(&mut self, resource: &str, version: String, is_encrypted: bool, is_expiring: bool) {
        let count = self.resources.entry(resource.to_owned()).or_default();
        *count.versions.entry(version).or_default() += 1;
        count.encrypted += u64::from(is_encrypted);
        count.expiring += u64::from(is_expiring);
    }

    /// Adds a custom resource, which has no table. Returns its version.
    fn add_custom(&mut self, key: &str, definition: &str, value: &[u8]) -> String {
        let version = match decode::json_untyped(value) {
            Ok(decoded) => decoded.value.text(&["apiVersion"]).to_owned(),
            Err(why) => {
                self.findings.add(Severity::Blocks, "values that cannot be decoded", format!("{key}: {why}"));
                String::new()
            }
        };
        let versions = self.custom.entry(definition.to_owned()).or_default();
        versions.entry(version.clone()).or_default().insert(key.to_owned());
        version
    }

    fn see(&mut self, resource: &str, object: &Value) {
        if resource.starts_with("customresourcedefinitions.") {
            let group = object.text(&["spec", "group"]);
            let versions = object.items(&["spec", "versions"]).iter();
            let versions = versions.map(|it| format!("{group}/{}", it.text(&["name"]))).collect();
            self.definitions.insert(object.text(&["metadata", "name"]).to_owned(), versions);
        }
        self.references.see(resource, object, &mut self.findings);
        self.facts.see(resource, object);
    }

    pub fn finish(mut self, revision: Revision) -> Report {
        for (definition, versions) in &self.custom {
            for (version, keys) in versions {
                let text = match self.definitions.get(definition) {
                    None => format!(
                        "custom resources without their definition {definition}: no request shows them"
                    ),
                    Some(known) if !known.contains(version) => {
                        format!(
                            "custom resources of the version {version:?}, which {definition} does not have"
                        )
                    }
                    Some(_) => continue,
                };
                keys.iter().for_each(|key| self.findings.add(Severity::Differs, text.clone(), key));
            }
        }
        self.references.finish(&mut self.findings);
        let flags = self.facts.finish(&mut self.findings);
        Report { revision, resources: self.resources, findings: self.findings.finish(), flags }
    }
}

/// The provider and the name of the key in an encrypted value: `k8s:enc:aescbc:v1:NAME:...`.
fn provider_and_key(value: &[u8], names: &Names) -> (String, String) {
    let text = String::from_utf8_lossy(&value[..value.len().min(256)]).into_owned();
    let rest = text.strip_prefix(&names.sealed_prefix()).unwrap_or_default();
    let mut parts = rest.split(':');
    let (provider, _version, name) = (parts.next(), parts.next(), parts.next());
    (provider.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
