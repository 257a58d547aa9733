//! How a node behaves: the annotations of its object.
//!
//! Unlike those of pods they take effect while the node runs.

use crate::behaviour::{boolean, duration};
use names::simulation::PREFIX;
use nodeagent::node::conditions::Pressures;
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// Whether the node is silent now: no lease, no status, no status of its pods.
    pub is_silent: bool,
    /// The age from which on it is silent, and for how long.
    pub silent_after: Option<Duration>,
    pub silent_for: Option<Duration>,
    /// Names a loss of the disk: with each new text all containers and images are gone.
    pub disk_loss: String,
    /// Why the node is not ready.
    pub not_ready: Option<String>,
    pub pressures: Pressures,
}

/// Applies the value of a setting. The error says what is wrong with it.
type Apply = fn(&mut NodeSettings, &str) -> Result<(), String>;

/// Names of settings, and their effect.
pub const SETTINGS: &[(&str, Apply)] = &[
    ("silent", |it, text| {
        it.is_silent = boolean(text)?;
        Ok(())
    }),
    ("silent-after", |it, text| {
        it.silent_after = Some(duration(text)?);
        Ok(())
    }),
    ("silent-for", |it, text| {
        it.silent_for = Some(duration(text)?);
        Ok(())
    }),
    ("disk-lost", |it, text| {
        text.clone_into(&mut it.disk_loss);
        Ok(())
    }),
    ("not-ready", |it, text| {
        it.not_ready = Some(text.to_owned());
        Ok(())
    }),
    ("pressure", |it, text| {
        for kind in text.split(',').map(str::trim) {
            match kind {
                "memory" => it.pressures.has_memory_pressure = true,
                "disk" => it.pressures.has_disk_pressure = true,
                "pid" => it.pressures.has_pid_pressure = true,
                _ => return Err("must be memory, disk or pid, or several with commas".to_owned()),
            }
        }
        Ok(())
    }),
];

impl NodeSettings {
    /// Reads annotations. A setting that is wrong has no effect, and is among the errors.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let (mut settings, mut errors) = (NodeSettings::default(), Vec::new());
        for (key, value) in annotations {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            let applied = match SETTINGS.iter().find(|it| it.0 == name) {
                Some((_, apply)) => {
                    apply(&mut settings, value).map_err(|why| format!("{key}: {value:?}: {why}"))
                }
                None => Err(format!("{key} is not a setting of nodes")),
            };
            errors.extend(applied.err());
        }
        (settings, errors)
    }

    /// Whether a node of this age is silent.
    pub fn is_silent_at(&self, age: Duration) -> bool {
        let is_in_time = self.silent_after.is_some_and(|after| {
            age >= after && self.silent_for.is_none_or(|length| age < after.saturating_add(length))
        });
        self.is_silent || is_in_time
    }

    /// The ages at which this changes by itself.
    pub fn changes(&self) -> Vec<Duration> {
        let end = self.silent_after.zip(self.silent_for).map(|(begin, length)| begin.saturating_add(length));
        self.silent_after.into_iter().chain(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (NodeSettings, Vec<String>) {
        let annotations = pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        NodeSettings::read(&annotations.collect())
    }

    #[test]
    fn a_node_is_silent_for_a_time() {
        let (settings, errors) = read(&[("silent-after", "10s"), ("silent-for", "5s")]);
        assert!(errors.is_empty(), "{errors:?}");
        let silent: Vec<bool> =
            [9, 10, 14, 15].iter().map(|it| settings.is_silent_at(Duration::from_secs(*it))).collect();
        assert_eq!(silent, [false, true, true, false]);
        assert_eq!(settings.changes(), [10, 15].map(Duration::from_secs));
        assert!(read(&[("silent", "true")]).0.is_silent_at(Duration::ZERO));
    }

    #[test]
    fn pressures_and_losses_are_read() {
        let (settings, _) = read(&[("pressure", "memory, pid"), ("disk-lost", "1"), ("not-ready", "broken")]);
        let Pressures { has_memory_pressure, has_disk_pressure, has_pid_pressure } = settings.pressures;
        assert_eq!((has_memory_pressure, has_disk_pressure, has_pid_pressure), (true, false, true));
        assert_eq!((&*settings.disk_loss, settings.not_ready.as_deref()), ("1", Some("broken")));
    }

    #[test]
    fn wrong_settings_are_reported_and_have_no_effect() {
        let (settings, errors) = read(&[("pressure", "steam"), ("loud", "x"), ("silent", "perhaps")]);
        assert!(!settings.is_silent);
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(
            errors.contains(&"simulation.pintle.io/loud is not a setting of nodes".to_owned()),
            "{errors:?}"
        );
    }
}
