//! Object metadata: the fields that the server sets, and the validation rules of all kinds.

use crate::model::error::ApiError;
use crate::model::hooks::Hooks;
use env::World;
pub use env::new_uid;
use schema::problem::{Problem, Problems, REPEATED_LIMIT, Reason, is_printable, quoted};
use schema::{Map, Path, Value, encode, format, time};
use std::collections::{BTreeSet, HashSet};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const GENERATED_SUFFIX: usize = 5;
const LONGEST_GENERATED: usize = 63;

/// A name from a prefix and five random characters that make no words.
pub fn generated_name(base: &str, world: &World) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut end = base.len().min(LONGEST_GENERATED - GENERATED_SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut random = [0u8; GENERATED_SUFFIX];
    world.fill(&mut random);
    let suffix = random.iter().map(|byte| ALPHABET[*byte as usize % ALPHABET.len()] as char);
    base[..end].chars().chain(suffix).collect()
}

/// Sets the fields of a new object that the server decides.
pub fn stamp_new(object: &mut Value, world: &World) {
    let metadata = object.as_map_mut().map(|map| map.entry("metadata").make_map());
    let Some(metadata) = metadata else { return };
    metadata.insert("uid", new_uid(world));
    metadata.insert("creationTimestamp", time::format_time(env::unix_seconds(world)));
    let name_missing = metadata.get("name").and_then(Value::as_str).unwrap_or("").is_empty();
    let base = metadata.get("generateName").and_then(Value::as_str).unwrap_or("");
    if name_missing && !base.is_empty() {
        let name = generated_name(base, world);
        metadata.insert("name", name);
    }
}

/// Clears the fields that a new object cannot have.
pub fn clear_server_fields(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid"] {
        object.unset(&["metadata", field]);
    }
    if let Some(given) = object.at_mut(&["metadata", "creationTimestamp"]) {
        *given = Value::Null;
    }
}

/// The fields of an object's metadata that the server decides.
const SERVER_FIELDS: [&str; 6] =
    ["selfLink", "generation", "creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The values that a client sends for fields that the server decides.
pub type SentFields = [(&'static str, Option<Value>); 6];

/// Reads the values that a client sends for fields that the server decides.
pub fn sent_server_fields(object: &Value) -> SentFields {
    SERVER_FIELDS.map(|field| (field, object.at(&["metadata", field]).cloned()))
}

/// Whether two objects have other values of fields that the server decides.
pub fn differ_in_server_fields(one: &Value, other: &Value) -> bool {
    SERVER_FIELDS.iter().any(|field| one.at(&["metadata", field]) != other.at(&["metadata", field]))
}

/// Sets the values that the client sent again.
pub fn set_sent_fields(object: &mut Value, sent: SentFields) {
    for (field, value) in sent {
        match value {
            Some(value) => object.set(&["metadata", field], value),
            None => drop(object.unset(&["metadata", field])),
        }
    }
}

/// Sets the deletion fields that the client sent again, unless they are ignored: their owners follow from the request.
pub fn set_sent_deletion(object: &mut Value, sent: &SentFields, ignored: &[&str]) {
    for (field, value) in sent[4..].iter().filter(|(field, _)| !ignored.contains(field)) {
        match value {
            Some(value) => object.set(&["metadata", field], value.clone()),
            None => drop(object.unset(&["metadata", field])),
        }
    }
}

/// Restores the fields that the server decides.
pub fn keep_server_fields(next: &mut Value, old: &Value) {
    let Some(map) = next.as_map_mut() else { return };
    let metadata = map.entry("metadata").make_map();
    for field in ["selfLink", "generation", "creationTimestamp"] {
        keep(metadata, old, field);
    }
    // an object that is being deleted stays so, since the same time
    if !old.text(&["metadata", "deletionTimestamp"]).is_empty() {
        keep(metadata, old, "deletionTimestamp");
    }
    // restored where the client leaves them out; validation rejects any other change
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata.get(field).is_none_or(Value::is_null)
            || metadata.get(field).and_then(Value::as_str) == Some("")
        {
            keep(metadata, old, field);
        }
    }
}

fn keep(metadata: &mut Map, old: &Value, field: &'static str) {
    match old.at(&["metadata", field]) {
        Some(value) => {
            metadata.insert(field, value.clone());
        }
        None => {
            metadata.remove(field);
        }
    }
}

/// Checks a name by which an object is looked for.
pub fn check_name_parameter(name: &str) -> Result<(), ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    match &*format::path_segment(name) {
        [] => Ok(()),
        why => {
            Err(ApiError::bad_request(format!("Name parameter invalid: {}: {}", quoted(name), why.join(";"))))
        }
    }
}

/// Drops repeated owner references; returns their uids.
pub fn dedup_owners(object: &mut Value) -> Vec<String> {
    let Some(Value::List(owners)) = object.at_mut(&["metadata", "ownerReferences"]) else {
        return Vec::new();
    };
    if owners.len() < 2 {
        return Vec::new();
    }
    let (mut seen, mut repeated) = (HashSet::with_capacity(owners.len()), BTreeSet::new());
    // equal references are equal text, which can be looked up
    owners.retain(|owner| {
        let is_new = seen.insert(encode::untyped(owner));
        if !is_new {
            repeated.insert(owner.text(&["uid"]).to_owned());
        }
        is_new
    });
    repeated.into_iter().collect()
}

/// Validates the metadata of an object by the rules of its kind.
pub fn check(object: &Value, namespaced: bool, hooks: &Hooks) -> Problems {
    check_by(hooks.write.name_rule.unwrap_or(subdomain_rule), object, namespaced)
}

/// Validates the metadata of the next state of an object by the rules of all kinds.
pub fn check_common(object: &Value, namespaced: bool) -> Problems {
    let rule = |name: &str, prefix| match prefix {
        true => format::path_segment_prefix(name),
        false => format::path_segment(name),
    };
    check_by(rule, object, namespaced)
}

fn check_by(rule: impl Fn(&str, bool) -> Vec<String>, object: &Value, namespaced: bool) -> Problems {
    let mut problems = Problems::new();
    let root = Path::ROOT.field("metadata");
    let text = |field| object.text(&["metadata", field]);
    let base = text("generateName");
    if !base.is_empty() {
        let path = root.field("generateName");
        problems.extend(rule(base, true).iter().map(|why| Problem::invalid_text(&path, base, why)));
    }
    let name = text("name");
    let path = root.field("name");
    if name.is_empty() {
        problems.push(Problem::required(&path, "name or generateName is required"));
    } else {
        problems.extend(rule(name, false).iter().map(|why| Problem::invalid_text(&path, name, why)));
    }
    let namespace = text("namespace");
    let path = root.field("namespace");
    if namespaced {
        if namespace.is_empty() {
            problems.push(Problem::required(&path, ""));
        } else {
            problems.extend(
                format::dns1123_label(namespace)
                    .iter()
                    .map(|why| Problem::invalid_text(&path, namespace, why)),
            );
        }
    } else if !namespace.is_empty() {
        problems.push(Problem::forbidden(&path, "not allowed on this type"));
    }
    if object.at(&["metadata", "generation"]).and_then(Value::as_int).is_some_and(|number| number < 0) {
        let value = object.at(&["metadata", "generation"]).cloned().unwrap_or_default();
        problems.push(Problem::invalid(
            &root.field("generation"),
            &value,
            "must be greater than or equal to 0",
        ));
    }
    check_labels(object.at(&["metadata", "labels"]), &root.field("labels"), &mut problems);
    check_annotations(object.at(&["metadata", "annotations"]), &root.field("annotations"), &mut problems);
    check_owners(object, &root.field("ownerReferences"), &mut problems);
    check_finalizers(object, &root.field("finalizers"), &mut problems);
    check_managers(object, &root.field("managedFields"), &mut problems);
    problems
}

/// Validates that finalizers have a domain in front, as most kinds require.
pub fn check_finalizer_domains(object: &Value, hooks: &Hooks) -> Problems {
    if hooks.write.plain_finalizers {
        return Problems::new();
    }
    let root = Path::ROOT.field("metadata");
    let path = root.field("finalizers");
    let finalizers = object.items(&["metadata", "finalizers"]).iter().enumerate();
    let texts = finalizers.map(|(at, one)| (at, one.as_str().unwrap_or("")));
    let strange = texts.filter(|(_, text)| !text.contains('/') && !STANDARD_FINALIZERS.contains(text));
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    strange.map(|(at, text)| Problem::invalid_text(&path.index(at), text, why)).collect()
}

fn subdomain_rule(name: &str, prefix: bool) -> Vec<String> {
    match name.strip_suffix('-') {
        // a suffix follows the prefix, so it may end with a dash
        Some(start) if prefix => format::dns1123_subdomain(&format!("{start}a")),
        _ => format::dns1123_subdomain(name),
    }
}

/// Problems of a map of labels.
pub fn check_labels(labels: Option<&Value>, path: &Path<'_>, problems: &mut Problems) {
    let Some(Value::Map(labels)) = labels else { return };
    for (key, value) in labels.iter() {
        problems.extend(format::qualified_name(key).iter().map(|why| Problem::invalid_text(path, key, why)));
        let value = value.as_str().unwrap_or("");
        problems.extend(format::label_value(value).iter().map(|why| Problem::invalid_text(path, value, why)));
    }
}

/// Problems of a map of annotations.
pub fn check_annotations(annotations: Option<&Value>, path: &Path<'_>, problems: &mut Problems) {
    let Some(Value::Map(annotations)) = annotations else { return };
    let mut size = 0;
    for (key, value) in annotations.iter() {
        problems.extend(format::annotation_key(key).iter().map(|why| Problem::invalid_text(path, key, why)));
        size += key.len() + value.as_str().unwrap_or("").len();
    }
    if size > ANNOTATIONS_LIMIT {
        problems.push(Problem::too_long(path, ANNOTATIONS_LIMIT));
    }
}

fn check_owners(object: &Value, path: &Path<'_>, problems: &mut Problems) {
    let mut controller: Option<String> = None;
    let (mut formatted, mut length) = (None, 0);
    for owner in object.items(&["metadata", "ownerReferences"]) {
        let version = owner.text(&["apiVersion"]);
        if version.is_empty() || version.matches('/').count() > 1 {
            problems.push(Problem::invalid_text(
                &path.field("apiVersion"),
                version,
                "version must not be empty",
            ));
        }
        for (field, why) in [
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ] {
            if owner.text(&[field]).is_empty() {
                problems.push(Problem::invalid_text(&path.field(field), "", why));
            }
        }
        let kind = owner.text(&["kind"]);
        if version == "v1" && kind == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            problems.push(invalid_formatted(path, &format_owner(owner), why));
        }
        if owner.at(&["controller"]) == Some(&Value::Bool(true)) {
            let named = format!("{kind}/{}", owner.text(&["name"]));
            match &controller {
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {named}"
                    );
                    let formatted = formatted.get_or_insert_with(|| format_owners(object));
                    length += formatted.len();
                    // each problem shows all references
                    if length <= REPEATED_LIMIT || length == formatted.len() {
                        problems.push(invalid_formatted(path, formatted, &why));
                    }
                }
                None => controller = Some(named),
            }
        }
    }
}

fn format_owners(object: &Value) -> String {
    let owners = object.items(&["metadata", "ownerReferences"]).iter();
    format!("[]v1.OwnerReference{{{}}}", owners.map(format_owner).collect::<Vec<_>>().join(", "))
}

fn invalid_formatted(path: &Path<'_>, formatted: &str, why: &str) -> Problem {
    let message = format!("Invalid value: {formatted}: {why}");
    Problem { reason: Reason::Invalid, field: path.to_string(), message }
}

/// An owner as messages show it; of its switches only whether they are given.
fn format_owner(owner: &Value) -> String {
    let text = |field| quoted(owner.text(&[field]));
    let switch = |field| if owner.at(&[field]).is_some() { "0x1" } else { "nil" };
    format!(
        "v1.OwnerReference{{APIVersion:{}, Kind:{}, Name:{}, UID:{}, Controller:(*bool)({}), \
         BlockOwnerDeletion:(*bool)({})}}",
        text("apiVersion"),
        text("kind"),
        text("name"),
        text("uid"),
        switch("controller"),
        switch("blockOwnerDeletion"),
    )
}

/// Finalizers that need no domain in front.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];

fn check_finalizers(object: &Value, path: &Path<'_>, problems: &mut Problems) {
    let finalizers = object.items(&["metadata", "finalizers"]);
    let texts: Vec<&str> = finalizers.iter().map(|one| one.as_str().unwrap_or("")).collect();
    for text in &texts {
        problems
            .extend(format::qualified_name(text).iter().map(|why| Problem::invalid_text(path, text, why)));
    }
    if texts.contains(&ORPHAN) && texts.contains(&FOREGROUND) {
        let listed: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        let message = format!("Invalid value: []string{{{}}}: {why}", listed.join(", "));
        problems.push(Problem { reason: Reason::Invalid, field: path.to_string(), message });
    }
}

/// Problems of managed fields that a client sends itself.
fn check_managers(object: &Value, path: &Path<'_>, problems: &mut Problems) {
    const SUBRESOURCE_LIMIT: usize = 256;
    for (at, entry) in object.items(&["metadata", "managedFields"]).iter().enumerate() {
        let path = path.index(at);
        check_field_manager(entry.text(&["manager"]), &path.field("manager"), problems);
        if entry.text(&["subresource"]).len() > SUBRESOURCE_LIMIT {
            problems.push(Problem::too_long(&path.field("subresource"), SUBRESOURCE_LIMIT));
        }
    }
}

/// Problems of the name of a field manager: its length, and characters that cannot be printed.
pub fn check_field_manager(manager: &str, path: &Path<'_>, problems: &mut Problems) {
    const LIMIT: usize = 128;
    if manager.len() > LIMIT {
        problems.push(Problem::too_long(path, LIMIT));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {at})", c as u32);
        problems.push(Problem::invalid_text(path, manager, &why));
    }
}

/// The finalizer that makes the garbage collector orphan dependents.
pub const ORPHAN: &str = "orphan";
/// The finalizer that makes the garbage collector delete dependents first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// A time as messages show it: `2001-02-03 04:05:06 +0000 UTC`.
fn moment(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    time::to_unix(text)?;
    Some(format!("{} +0000 UTC", text.trim_end_matches('Z').replace('T', " ")))
}

/// Validates a change of metadata.
pub fn check_update(next: &Value, old: &Value) -> Problems {
    let mut problems = Problems::new();
    let root = Path::ROOT.field("metadata");
    if !old.text(&["metadata", "deletionTimestamp"]).is_empty() {
        let finalizers =
            |it| Value::items(it, &["metadata", "finalizers"]).iter().map(|one| one.as_str().unwrap_or(""));
        let had: HashSet<&str> = finalizers(old).collect();
        let listed: Vec<String> = finalizers(next).filter(|one| !had.contains(one)).map(quoted).collect();
        if !listed.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                listed.join(", ")
            );
            problems.push(Problem::forbidden(&root.field("finalizers"), &why));
        }
    }
    let generation =
        |object: &Value| object.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
    if generation(next) < generation(old) {
        let value = Value::Int(generation(next));
        problems.push(Problem::invalid(&root.field("generation"), &value, "must not be decremented"));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (was, is) = (old.at(&["metadata", field]), next.at(&["metadata", field]));
        if was.unwrap_or(&Value::Null) != is.unwrap_or(&Value::Null) {
            let time = if field.ends_with("Timestamp") { moment(is) } else { None };
            let formatted = time.unwrap_or_else(|| schema::problem::format_value(is.unwrap_or(&Value::Null)));
            let message = format!("Invalid value: {formatted}: field is immutable");
            problems.push(Problem { reason: Reason::Invalid, field: root.field(field).to_string(), message });
        }
    }
    check_labels(next.at(&["metadata", "labels"]), &root.field("labels"), &mut problems);
    check_annotations(next.at(&["metadata", "annotations"]), &root.field("annotations"), &mut problems);
    check_owners(next, &root.field("ownerReferences"), &mut problems);
    check_managers(next, &root.field("managedFields"), &mut problems);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    #[test]
    fn uids_are_random_version_four() {
        let world: World = Simulated::new(0, 1);
        let (a, b) = (new_uid(&world), new_uid(&world));
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[14..15]), (36, "4"));
        assert!("89ab".contains(&a[19..20]));
    }

    #[test]
    fn generated_names_fit() {
        let world: World = Simulated::new(0, 1);
        let name = generated_name(&"x".repeat(100), &world);
        assert_eq!(name.len(), 63);
        assert!(generated_name("pod-", &world).starts_with("pod-"));
    }
}
