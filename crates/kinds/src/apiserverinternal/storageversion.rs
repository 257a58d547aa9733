//! StorageVersions: the versions that the servers of a cluster write, and their agreement.
//!
//! Servers report through the status. It names the common version if, and only if, all servers write the same one.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::hooks::{
    Context, CreateHooks, Hooks, ReadHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::table::Format;
use schema::{Path, Value};
use std::collections::HashSet;
use std::time::Duration;

/// The condition that says whether all servers write the same version.
const AGREEMENT: &str = "AllEncodingVersionsEqual";

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| validate(object)), ..UpdateHooks::default() },
        write: WriteHooks { name_rule: Some(name), ..WriteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(Some(status))];

/// `<group>.<resource>`; the group of core is spelled out.
fn name(name: &str, _: bool) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = check::why(Format::Dns1123Subdomain, group);
    let resource = check::why(Format::Dns1035Label, resource);
    let group = group.iter().map(|why| format!("the group segment {why}"));
    group.chain(resource.iter().map(|why| format!("the resource segment {why}"))).collect()
}

fn status(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    validate(new)
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let servers = object.items(&["status", "storageVersions"]);
    for (at, one) in servers.iter().enumerate() {
        server(one, &path.field("storageVersions").index(at), &mut out);
    }
    agreement(object, servers, &path.field("commonEncodingVersion"), &mut out);
    let mut seen = HashSet::new();
    let path = path.field("conditions");
    for (at, one) in object.items(&["status", "conditions"]).iter().enumerate() {
        let path = path.index(at);
        let kind = one.text(&["type"]);
        if !seen.insert(kind) {
            out.push(check::duplicate_text(&path.field("type"), kind));
        }
        for field in ["type", "status", "reason"] {
            check::required_field(one, field, &path, &mut out);
        }
    }
    out
}

fn server(one: &Value, path: &Path<'_>, out: &mut Problems) {
    check::subdomain(one.text(&["apiServerID"]), &path.field("apiServerID"), out);
    let written = one.text(&["encodingVersion"]);
    api_version(written, &path.field("encodingVersion"), out);
    let readable = one.items(&["decodableVersions"]);
    let path = path.field("decodableVersions");
    for (at, version) in readable.iter().enumerate() {
        api_version(read::text(version), &path.index(at), out);
    }
    if !readable.iter().any(|version| read::text(version) == written) {
        let why = format!("decodableVersions must include encodingVersion {written}");
        out.push(check::invalid_formatted(&path, &check::format_texts(readable), &why));
    }
}

/// A version, with its group unless that is the core.
fn api_version(text: &str, path: &Path<'_>, out: &mut Problems) {
    let (group, version) = text.rsplit_once('/').unwrap_or(("", text));
    let mut why = Vec::new();
    if text.contains('/') {
        why.extend(check::why(Format::Dns1123Subdomain, group));
    }
    why.extend(check::why(Format::Dns1035Label, version));
    out.extend(why.iter().map(|why| Problem::invalid_text(path, text, why)));
}

/// The version that all servers write, if there is one.
fn agreed(servers: &[Value]) -> Option<&str> {
    let (first, rest) = servers.split_first()?;
    let version = first.text(&["encodingVersion"]);
    rest.iter().all(|one| one.text(&["encodingVersion"]) == version).then_some(version)
}

fn agreement(object: &Value, servers: &[Value], path: &Path<'_>, out: &mut Problems) {
    match (agreed(servers), read::opt_text(object, &["status", "commonEncodingVersion"])) {
        (None, Some(given)) => {
            const WHY: &str = "should be nil if servers do not agree on the same encoding version, or if there \
                               is no server reporting the supported versions yet";
            out.push(Problem::invalid_text(path, given, WHY));
        }
        (Some(version), given) if given != Some(version) => {
            let why = format!("the common encoding version is {version}");
            out.push(check::invalid_formatted(path, &given.map_or("null".to_owned(), quoted), &why));
        }
        _ => {}
    }
}

/// Adds the report of a server to the status, and updates the agreement of all servers; returns whether the object
/// changed.
pub fn report(object: &mut Value, reported: Value, now: &str) -> bool {
    let server = reported.text(&["apiServerID"]);
    let mut servers = object.items(&["status", "storageVersions"]).to_vec();
    match servers.iter_mut().find(|one| one.text(&["apiServerID"]) == server) {
        Some(old) => *old = reported,
        None => servers.push(reported),
    }
    let common = agreed(&servers).map(str::to_owned);
    let turned = read::opt_text(object, &["status", "commonEncodingVersion"]) != common.as_deref();
    let (state, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let same = |one: &Value| one.text(&["type"]) == AGREEMENT;
    let since = conditions.iter().find(|one| same(one) && one.text(&["status"]) == state && !turned);
    let since = since.map_or(now, |one| one.text(&["lastTransitionTime"])).to_owned();
    conditions.retain(|one| !same(one));
    let mut condition = Value::map();
    condition.set(&["type"], AGREEMENT);
    condition.set(&["status"], state);
    condition.set(&["lastTransitionTime"], since);
    condition.set(&["reason"], reason);
    condition.set(&["message"], message);
    if let Some(generation) = object.at(&["metadata", "generation"]) {
        condition.set(&["observedGeneration"], generation.clone());
    }
    conditions.push(condition);
    let mut status = Value::map();
    status.set(&["storageVersions"], Value::List(servers));
    if let Some(common) = common {
        status.set(&["commonEncodingVersion"], common);
    }
    status.set(&["conditions"], Value::List(conditions));
    if object.at(&["status"]) == Some(&status) {
        return false;
    }
    object.set(&["status"], status);
    true
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    const SHOWN: usize = 4;
    let servers = object.items(&["status", "storageVersions"]);
    let formatted: Vec<_> = servers
        .iter()
        .take(SHOWN)
        .map(|one| format!("{}={}", one.text(&["apiServerID"]), one.text(&["encodingVersion"])))
        .collect();
    let formatted = match servers.len().saturating_sub(SHOWN) {
        0 if formatted.is_empty() => "<none>".to_owned(),
        0 => formatted.join(","),
        more => format!("{} + {more} more...", formatted.join(",")),
    };
    vec![
        metadata::name(object),
        object.text(&["status", "commonEncodingVersion"]).into(),
        formatted.into(),
        metadata::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn servers_agree_or_do_not() {
        let check = |servers: &[&str], common: Option<&str>, fine: bool| {
            let servers: Vec<_> = servers
                .iter()
                .map(|v| {
                    format!(r#"{{"apiServerID":"a","encodingVersion":"{v}","decodableVersions":["{v}"]}}"#)
                })
                .collect();
            let common = common.map_or(String::new(), |v| format!(r#","commonEncodingVersion":"{v}""#));
            let object =
                json(&format!(r#"{{"status":{{"storageVersions":[{}]{common}}}}}"#, servers.join(",")));
            assert_eq!(validate(&object).is_empty(), fine, "{object:?}");
        };
        check(&[], None, true);
        check(&["apps/v1"], Some("apps/v1"), true);
        check(&["apps/v1"], None, false);
        check(&["v1", "v2"], None, true);
        check(&["v1", "v2"], Some("v1"), false);
    }

    #[test]
    fn servers_report_beside_each_other() {
        let reported = |server: &str, version: &str| {
            json(&format!(
                r#"{{"apiServerID":"{server}","encodingVersion":"{version}","decodableVersions":["{version}"]}}"#
            ))
        };
        let summary = |object: &Value| {
            let one = &object.items(&["status", "conditions"])[0];
            let common = object.text(&["status", "commonEncodingVersion"]).to_owned();
            let since = one.text(&["lastTransitionTime"]).to_owned();
            (
                object.items(&["status", "storageVersions"]).len(),
                common,
                one.text(&["status"]).to_owned(),
                since,
            )
        };
        let expected = |servers: usize, common: &str, state: &str, since: &str| {
            (servers, common.to_owned(), state.to_owned(), since.to_owned())
        };
        let mut object = json("{}");
        assert!(report(&mut object, reported("a", "v1"), "1"));
        assert_eq!(summary(&object), expected(1, "v1", "True", "1"));
        assert!(!report(&mut object, reported("a", "v1"), "2"));
        assert!(report(&mut object, reported("b", "v1"), "2"));
        assert_eq!(summary(&object), expected(2, "v1", "True", "1"));
        assert!(report(&mut object, reported("b", "v2"), "3"));
        assert_eq!(summary(&object), expected(2, "", "False", "3"));
        assert!(report(&mut object, reported("a", "v2"), "4"));
        assert_eq!(summary(&object), expected(2, "v2", "True", "4"));
        assert!(validate(&object).is_empty());
    }

    #[test]
    fn names_have_a_group() {
        assert!(name("apps.deployments", false).is_empty());
        assert_eq!(name("deployments", false).len(), 1);
        assert_eq!(name("a.B", false).len(), 1);
    }
}
