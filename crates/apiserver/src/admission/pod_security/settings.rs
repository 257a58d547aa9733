//! Configuration of PodSecurity: default standards and exemptions.

use super::policy::{LEVEL_RULE, Level, MODES, Policy, Standard, VERSION_RULE, Version};
use crate::admission::configuration::{Part, Wrong, whole};
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
        let (mut wrong, mut settings) = (Wrong::default(), Settings::default());
        let group = names.group("pod-security.admission.config");
        let kind = (group.as_str(), &VERSIONS[..], "PodSecurityConfiguration");
        let root = whole(value, kind, &["defaults", "exemptions"], &mut wrong);
        let versions = MODES.map(|mode| format!("{mode}-version"));
        let fields: Vec<&str> = MODES.into_iter().chain(versions.iter().map(String::as_str)).collect();
        if let Some(defaults) = root.part("defaults", &fields, &mut wrong) {
            let mut standard = |at: usize| standard(&defaults, MODES[at], &versions[at], &mut wrong);
            settings.defaults = Policy { enforce: standard(0), audit: standard(1), warn: standard(2) };
        }
        let fields = ["usernames", "namespaces", "runtimeClasses"];
        if let Some(exempt) = root.part("exemptions", &fields, &mut wrong) {
            let mut set = |field: &str, fits: fn(&str) -> bool| exempted(&exempt, field, fits, &mut wrong);
            settings.users = set("usernames", |name| !name.is_empty());
            settings.namespaces = set("namespaces", |name| format::dns1123_label(name).is_empty());
            settings.runtime_classes =
                set("runtimeClasses", |name| format::dns1123_subdomain(name).is_empty());
        }
        wrong.unless(settings)
    }
}

fn standard(of: &Part<'_>, mode: &str, version: &str, wrong: &mut Wrong) -> Standard {
    let mut standard = Standard::default();
    if let Some(text) = of.text(mode, wrong) {
        match Level::parse(text) {
            Some(level) => standard.level = level,
            None => wrong.say(&of.at(mode), format!("{text:?} {LEVEL_RULE}")),
        }
    }
    if let Some(text) = of.text(version, wrong) {
        match Version::parse(text) {
            Some(version) => standard.version = version,
            None => wrong.say(&of.at(version), format!("{text:?} {VERSION_RULE}")),
        }
    }
    standard
}

/// A set of names that must look like such names, each once.
fn exempted(of: &Part<'_>, field: &str, fits: fn(&str) -> bool, wrong: &mut Wrong) -> BTreeSet<String> {
    let mut set = BTreeSet::new();
    for (at, name) in of.texts(field, wrong).into_iter().enumerate() {
        let place = format!("{}[{at}]", of.at(field));
        if !fits(name) {
            wrong.say(&place, format!("{name:?} is no such name"));
        } else if !set.insert(name.to_owned()) {
            wrong.say(&place, format!("{name:?} is there twice"));
        }
    }
    set
}
