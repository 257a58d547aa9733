//! The configuration with all defaults.

use super::fields::FieldRow;
use super::flags::Flags;
use super::{cpuset, fields};
use names::Names;
use schema::{Value, encode};
use std::collections::BTreeMap;
use std::time::Duration;

/// The complete configuration. Its tree has upstream's names; typed reads are below.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    tree: Value,
}

impl Default for Configuration {
    fn default() -> Self {
        Configuration::with_defaults(Value::map())
    }
}

impl Configuration {
    /// Fills in the defaults of given values.
    pub fn with_defaults(given: Value) -> Self {
        let mut tree = given;
        let has_update_frequency = tree.at(&["nodeStatusUpdateFrequency"]).is_some_and(|it| nanos(it) != 0);
        if has_update_frequency && tree.at(&["nodeStatusReportFrequency"]).is_none() {
            let frequency = tree.text(&["nodeStatusUpdateFrequency"]).to_owned();
            tree.set(&["nodeStatusReportFrequency"], frequency);
        }
        for row in fields::rows() {
            let Some(default) = row.default else { continue };
            let is_unset = match tree.at(&row.steps()) {
                None | Some(Value::Null) => true,
                Some(value) => !row.is_pointer() && is_zero(value),
            };
            if is_unset {
                tree.set(&row.steps(), fields::literal(&row, default));
            }
        }
        if tree.at(&["evictionHard"]).is_none() {
            let thresholds = [
                ("memory.available", "100Mi"),
                ("nodefs.available", "10%"),
                ("nodefs.inodesFree", "5%"),
                ("imagefs.available", "15%"),
            ];
            let mut map = Value::map();
            for (signal, quantity) in thresholds {
                map.make_map().insert(signal, Value::from(quantity));
            }
            tree.set(&["evictionHard"], map);
        }
        if tree.at(&["enforceNodeAllocatable"]).is_none() {
            tree.set(&["enforceNodeAllocatable"], vec![Value::from("pods")]);
        }
        Configuration { tree }
    }

    /// Puts the values of a command line over those of the file and the defaults, which a zero does not bring back.
    pub fn with_flags(mut self, flags: &Flags) -> Self {
        flags.apply_to(&mut self.tree);
        self
    }

    /// The whole configuration as a file.
    pub fn to_yaml(&self, names: &Names) -> String {
        let mut file = Value::map();
        file.set(&["apiVersion"], format!("{}/v1beta1", names.group(&format!("{}.config", names.agent))));
        file.set(&["kind"], "KubeletConfiguration");
        let fields = self.tree.as_map().into_iter().flat_map(|map| map.iter());
        for (name, value) in fields.filter(|(name, _)| !matches!(&**name, "apiVersion" | "kind")) {
            file.make_map().insert(name.to_string(), value.clone());
        }
        schema::yaml::emit(&file)
    }

    /// The whole configuration as JSON, for `/configz`.
    pub fn json(&self) -> Vec<u8> {
        encode::json(&self.tree, fields::table())
    }

    /// The fields without effect that differ from their defaults, and why they have none.
    pub fn ineffective_fields(&self) -> Vec<(&'static str, &'static str)> {
        let defaults = Configuration::default();
        let is_set = |row: &FieldRow| self.tree.at(&row.steps()) != defaults.tree.at(&row.steps());
        fields::rows().filter(is_set).filter_map(|row| Some((row.path, row.why_ignored?))).collect()
    }

    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        self.tree.at(path)
    }

    pub fn text(&self, path: &[&str]) -> &str {
        self.tree.text(path)
    }

    pub fn int(&self, field: &str) -> i64 {
        self.tree.at(&[field]).and_then(Value::as_int).unwrap_or(0)
    }

    pub fn flag(&self, path: &[&str]) -> bool {
        self.tree.at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Nanoseconds of a duration, which may be negative.
    pub fn nanos(&self, path: &[&str]) -> i64 {
        self.tree.at(path).map_or(0, nanos)
    }

    /// A duration; a negative one is zero.
    pub fn duration(&self, path: &[&str]) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos(path)).unwrap_or(0))
    }

    pub fn texts(&self, field: &str) -> Vec<String> {
        self.tree.items(&[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub fn map(&self, field: &str) -> BTreeMap<String, String> {
        let map = self.tree.at(&[field]).and_then(Value::as_map);
        let pairs = map.into_iter().flat_map(|map| map.iter());
        pairs.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or("").to_owned())).collect()
    }

    pub fn feature_gates(&self) -> Vec<(String, bool)> {
        let map = self.tree.at(&["featureGates"]).and_then(Value::as_map);
        let pairs = map.into_iter().flat_map(|map| map.iter());
        pairs.map(|(key, value)| (key.to_string(), value.as_bool().unwrap_or(false))).collect()
    }

    /// The number of CPUs that are reserved for the system, if they are listed.
    pub fn reserved_cpus(&self) -> Option<i64> {
        let text = Some(self.text(&["reservedSystemCPUs"])).filter(|it| !it.is_empty())?;
        i64::try_from(cpuset::parse(text).ok()?.len()).ok()
    }

    pub fn float(&self, field: &str) -> f64 {
        match self.tree.at(&[field]) {
            Some(Value::Float(number)) => *number,
            // whole numbers here are far below the precision of a float
            Some(Value::Int(number)) => *number as f64,
            _ => 0.0,
        }
    }
}

fn nanos(value: &Value) -> i64 {
    value.as_str().and_then(|text| schema::time::parse_duration(text).ok()).unwrap_or(0)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Int(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::String(text) => text.is_empty() || schema::time::parse_duration(text) == Ok(0),
        Value::List(_) | Value::Map(_) | Value::Json(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_effect_are_listed_if_they_are_set() {
        assert!(Configuration::default().ineffective_fields().is_empty());
        let mut given = Value::map();
        given.set(&["enableContentionProfiling"], true);
        given.set(&["hairpinMode"], "promiscuous-bridge".to_owned());
        given.set(&["contentType"], "application/json".to_owned());
        given.set(&["maxPods"], 5);
        let fields = Configuration::with_defaults(given).ineffective_fields();
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["enableContentionProfiling", "contentType"]);
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let config = Configuration::default();
        assert_eq!((config.int("port"), config.int("maxPods"), config.int("readOnlyPort")), (10250, 110, 0));
        assert!(
            config.flag(&["authentication", "webhook", "enabled"])
                && !config.flag(&["authentication", "anonymous", "enabled"])
        );
        assert_eq!(config.duration(&["nodeStatusUpdateFrequency"]), Duration::from_secs(10));
        assert_eq!(config.duration(&["nodeStatusReportFrequency"]), Duration::from_secs(300));
        assert_eq!(config.texts("enforceNodeAllocatable"), ["pods"]);
        assert_eq!(config.map("evictionHard")["memory.available"], "100Mi");
        let mut given = Value::map();
        given.set(&["nodeStatusUpdateFrequency"], "3s");
        given.set(&["maxPods"], 0);
        given.set(&["healthzPort"], 0);
        let config = Configuration::with_defaults(given);
        assert_eq!(config.duration(&["nodeStatusReportFrequency"]), Duration::from_secs(3));
        assert_eq!((config.int("maxPods"), config.int("healthzPort")), (110, 0));
    }
}
