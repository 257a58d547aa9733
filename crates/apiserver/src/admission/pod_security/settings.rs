//! Configuration of PodSecurity: default standards and exemptions.

use super::policy::{LEVEL_RULE, Level, MODES, Policy, Standard, VERSION_RULE, Version};
use crate::admission::configuration::{ConfigErrors, Part, whole};
use names::Names;
use schema::Value;
use schema::format;
use std::collections::BTreeSet;

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[derive(Debug, Default)]
pub struct Settings {
    pub defaults: Policy,
    pub users: BTreeSet<String>,
    pub namespaces: BTreeSet<String>,
    pub runtime_classes: BTreeSet<String>,
}

impl Settings {
    pub fn read(value: &Value, names: &Names) -> Result<Self, String> {
        if value.is_null() {
            return Ok(Settings::default());
        }
        let (mut problems, mut settings) = (ConfigErrors::default(), Settings::default());
        let group = names.group("pod-security.admission.config");
        let kind = (group.as_str(), &VERSIONS[..], "PodSecurityConfiguration");
        let root = whole(value, kind, &["defaults", "exemptions"], &mut problems);
        let versions = MODES.map(|mode| format!("{mode}-version"));
        let fields: Vec<&str> = MODES.into_iter().chain(versions.iter().map(String::as_str)).collect();
        if let Some(defaults) = root.part("defaults", &fields, &mut problems) {
            let mut standard = |at: usize| standard(&defaults, MODES[at], &versions[at], &mut problems);
            settings.defaults = Policy { enforce: standard(0), audit: standard(1), warn: standard(2) };
        }
        let fields = ["usernames", "namespaces", "runtimeClasses"];
        if let Some(exempt) = root.part("exemptions", &fields, &mut problems) {
            let mut set =
                |field: &str, fits: fn(&str) -> bool| exempt_names(&exempt, field, fits, &mut problems);
            settings.users = set("usernames", |name| !name.is_empty());
            settings.namespaces = set("namespaces", |name| format::dns1123_label(name).is_empty());
            settings.runtime_classes =
                set("runtimeClasses", |name| format::dns1123_subdomain(name).is_empty());
        }
        problems.into_result(settings)
    }
}

fn standard(of: &Part<'_>, mode: &str, version: &str, problems: &mut ConfigErrors) -> Standard {
    let mut standard = Standard::default();
    if let Some(text) = of.text(mode, problems) {
        match Level::parse(text) {
            Some(level) => standard.level = level,
            None => problems.add(&of.at(mode), format!("{text:?} {LEVEL_RULE}")),
        }
    }
    if let Some(text) = of.text(version, problems) {
        match Version::parse(text) {
            Some(version) => standard.version = version,
            None => problems.add(&of.at(version), format!("{text:?} {VERSION_RULE}")),
        }
    }
    standard
}

/// A set of valid names without duplicates.
fn exempt_names(
    of: &Part<'_>,
    field: &str,
    fits: fn(&str) -> bool,
    problems: &mut ConfigErrors,
) -> BTreeSet<String> {
    let mut set = BTreeSet::new();
    for (at, name) in of.texts(field, problems).into_iter().enumerate() {
        let path = format!("{}[{at}]", of.at(field));
        if !fits(name) {
            problems.add(&path, format!("{name:?} is not a valid name"));
        } else if !set.insert(name.to_owned()) {
            problems.add(&path, format!("{name:?} is a duplicate"));
        }
    }
    set
}
