use super::*;
use crate::tables::{KINDS, TRAVELLING};
use std::collections::BTreeSet;

/// Kinds of which no version is served or stored any more: bodies of requests, and policies of the past.
const GONE: &[&str] = &["DeploymentRollback", "Eviction", "JobTemplate", "PodSecurityPolicy", "Scale"];

fn name(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version} {kind}")
}

#[test]
fn each_retired_version_is_declared_once_and_is_not_served() {
    let all = KINDS.iter().chain(TRAVELLING);
    let mut seen: BTreeSet<String> =
        all.map(|it| name(&it.group.full("k8s.io"), &it.version, &it.name)).collect();
    for one in RETIRED {
        let name = name(&one.group.full("k8s.io"), &one.version, &one.form.name);
        assert!(seen.insert(name.clone()), "{name} is there twice");
    }
}

#[test]
fn each_retired_version_leads_to_a_stored_kind() {
    let stored: Vec<&Kind> =
        KINDS.iter().copied().filter(|it| it.stored_as.is_none() && !it.unstored).collect();
    for one in RETIRED {
        let found = stored.iter().filter(|stored| is_kept_as(one.form, stored)).count();
        let wanted = usize::from(!GONE.contains(&&*one.form.name));
        assert_eq!(found, wanted, "{} {}", one.version, one.form.name);
    }
}

#[test]
fn differences_are_of_versions_that_there_were() {
    let differ = RETIRED.iter().filter(|one| {
        let it = differences(one);
        it.own_default.is_some() || it.convert.is_some() || it.skips_default
    });
    let found: Vec<String> =
        differ.map(|it| name(&it.group.full("k8s.io"), &it.version, &it.form.name)).collect();
    // every arm of the list above is reached: one misspelled name would leave a version out
    assert_eq!(found.len(), 19, "{found:#?}");
}
