//! Validation of the spec of a definition: group, names, versions, columns, subresources, and immutable fields.

use super::{conversion, openapi};
use crate::check::{self, Problems};
use crate::read;
use names::Names;
use schema::problem::{Problem, is_printable, quoted};
use schema::{Path, Value, format, url};
use std::collections::HashSet;

/// The fields of versions that are looked at in one place when all versions agree on them: their name in a
/// version, and the name of the place.
const SHARED: [(&str, &str); 3] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
];

/// A field of one version, or of all.
struct Shape<'v> {
    schema: Option<&'v Value>,
    subresources: Option<&'v Value>,
    columns: &'v [Value],
}

impl<'v> Shape<'v> {
    /// Per version where versions differ, else at the top level.
    fn of(version: &'v Value, wanted: impl Fn(&str) -> bool) -> Self {
        let get = |field: &str| version.at(&[field]).filter(|it| !it.is_null() && wanted(field));
        Shape {
            schema: get("schema"),
            subresources: get("subresources"),
            columns: get("additionalPrinterColumns").and_then(Value::as_list).unwrap_or_default(),
        }
    }
}

fn has_status(version: &Value) -> bool {
    read::has(version, &["subresources", "status"])
}

pub(super) fn check(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    let nothing = Value::map();
    let spec = object.at(&["spec"]).unwrap_or(&nothing);
    let versions = spec.items(&["versions"]);
    let shared: Vec<&str> = SHARED.iter().map(|it| it.0).filter(|field| agree(versions, field)).collect();
    group(spec.text(&["group"]), &path.field("group"), out);
    check::one_of(spec.text(&["scope"]), &["Cluster", "Namespaced"], &path.field("scope"), out);
    missing_schemas(versions, &path, out);
    if read::flag(spec, &["preserveUnknownFields"]) && versions.iter().any(openapi::has_default) {
        let detail = "must be false in order to use defaults in the schema";
        out.push(Problem::invalid(&path.field("preserveUnknownFields"), &Value::Bool(true), detail));
    }
    each_version(versions, &shared, &path.field("versions"), out);
    which_versions(spec, versions, &path, out);
    let nameless = spec.at(&["names"]).unwrap_or(&nothing);
    required_names(nameless, &path.field("names"), out);
    names(nameless, &path.field("names"), out);
    if let Some(first) = versions.first() {
        let common = Shape::of(first, |field| shared.contains(&field));
        let status = versions.iter().any(has_status);
        shape(&common, "validation", status, &path, out);
    }
    conversion::check(spec, &path, out);
}

fn agree(versions: &[Value], field: &str) -> bool {
    versions.windows(2).all(|pair| read::same(pair[0].at(&[field]), pair[1].at(&[field])))
}

/// Problems of a text that is refused with all format_errors in one.
fn joined(text: &str, format_errors: Vec<String>, path: &Path<'_>, out: &mut Problems) {
    if !format_errors.is_empty() {
        out.push(Problem::invalid_text(path, text, &format_errors.join(",")));
    }
}

fn group(group: &str, path: &Path<'_>, out: &mut Problems) {
    let format_errors = format::dns1123_subdomain(group);
    if group.is_empty() {
        out.push(Problem::required(path, ""));
    } else if !format_errors.is_empty() {
        joined(group, format_errors, path, out);
    } else if !group.contains('.') {
        out.push(Problem::invalid_text(path, group, "should be a domain with at least one dot"));
    }
}

fn missing_schemas(versions: &[Value], path: &Path<'_>, out: &mut Problems) {
    let path = path.field("versions");
    for (at, version) in versions.iter().enumerate() {
        if !read::has(version, &["schema", "openAPIV3Schema"]) {
            let path = path.index(at);
            let path = path.field("schema");
            out.push(Problem::required(&path.field("openAPIV3Schema"), "schemas are required"));
        }
    }
}

fn each_version(versions: &[Value], shared: &[&str], path: &Path<'_>, out: &mut Problems) {
    for (at, version) in versions.iter().enumerate() {
        let path = path.index(at);
        let name = version.text(&["name"]);
        joined(name, format::dns1035_label(name), &path.field("name"), out);
        deprecation(version, &path.field("deprecationWarning"), out);
        let own = Shape::of(version, |field| !shared.contains(&field));
        shape(&own, "schema", has_status(version), &path, out);
    }
}

const MOST_WARNING: usize = 256;

fn deprecation(version: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(warning) = read::opt_text(version, &["deprecationWarning"]) else { return };
    let hidden = warning.char_indices().find(|(_, c)| !is_printable(*c));
    let mut wrong = |why: &str| out.push(Problem::invalid_text(path, warning, why));
    if !read::flag(version, &["deprecated"]) {
        wrong("can only be set for deprecated versions");
    } else if warning.is_empty() {
        wrong("must not be an empty string");
    } else if warning.len() > MOST_WARNING {
        wrong(&format!("must be <= {MOST_WARNING} characters long"));
    } else if let Some((at, _)) = hidden {
        wrong(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn which_versions(spec: &Value, versions: &[Value], path: &Path<'_>, out: &mut Problems) {
    let formatted = match spec.at(&["versions"]) {
        Some(Value::List(items)) => {
            let names: Vec<_> = items.iter().map(|it| quoted(it.text(&["name"]))).collect();
            format!("[]apiextensions.CustomResourceDefinitionVersion{{{}}}", names.join(", "))
        }
        _ => "[]apiextensions.CustomResourceDefinitionVersion(nil)".to_owned(),
    };
    let mut wrong = |why| out.push(check::invalid_formatted(&path.field("versions"), &formatted, why));
    let mut seen = HashSet::new();
    if !versions.iter().all(|it| seen.insert(it.text(&["name"]))) {
        wrong("must contain unique version names");
    }
    if versions.iter().filter(|it| read::flag(it, &["storage"])).count() != 1 {
        wrong("must have exactly one version marked as storage version");
    }
    // the first version is also known by a field of its own
    if let Some(first) = versions.first().map(|it| it.text(&["name"])).filter(|it| !it.is_empty()) {
        joined(first, format::dns1035_label(first), &path.field("version"), out);
    }
}

fn required_names(names: &Value, path: &Path<'_>, out: &mut Problems) {
    for field in ["plural", "singular", "kind", "listKind"] {
        check::required_field(names, field, path, out);
    }
}

/// Names that are given have the right form.
pub(super) fn names(names: &Value, path: &Path<'_>, out: &mut Problems) {
    for (field, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = names.text(&[field]);
        if name.is_empty() {
            continue;
        }
        let mut format_errors =
            format::dns1035_label(&if mixed { name.to_lowercase() } else { name.to_owned() });
        if let Some(first) = format_errors.first_mut().filter(|_| mixed) {
            first.insert_str(0, "may have mixed case, but should otherwise match: ");
        }
        joined(name, format_errors, &path.field(field), out);
    }
    let labels = |field: &str, out: &mut Problems| {
        let path = path.field(field);
        for (at, name) in names.items(&[field]).iter().map(read::text).enumerate() {
            joined(name, format::dns1035_label(name), &path.index(at), out);
        }
    };
    labels("shortNames", out);
    let (kind, list) = (names.text(&["kind"]), names.text(&["listKind"]));
    if !kind.is_empty() && kind == list {
        let detail = "kind and listKind may not be the same";
        out.push(Problem::invalid_text(&path.field("listKind"), list, detail));
    }
    labels("categories", out);
}

fn shape(shape: &Shape<'_>, schema_field: &str, status: bool, path: &Path<'_>, out: &mut Problems) {
    if let Some(schema) = shape.schema.and_then(|it| it.at(&["openAPIV3Schema"])).filter(|it| !it.is_null()) {
        let path = path.field(schema_field);
        openapi::check_root(schema, status, &path.field("openAPIV3Schema"), out);
    }
    if let Some(scale) = shape.subresources.and_then(|it| it.at(&["scale"])).filter(|it| !it.is_null()) {
        let path = path.field("subresources");
        self::scale(scale, &path.field("scale"), out);
    }
    let path = path.field("additionalPrinterColumns");
    for (at, column) in shape.columns.iter().enumerate() {
        self::column(column, &path.index(at), out);
    }
}

fn simple_path(text: &str, path: &Path<'_>, out: &mut Problems) -> bool {
    let simple = text.starts_with('.');
    if !simple {
        out.push(Problem::invalid_text(path, text, "must be a simple json path starting with ."));
    }
    simple
}

fn scale(scale: &Value, path: &Path<'_>, out: &mut Problems) {
    for (field, start, detail) in [
        ("specReplicasPath", ".spec.", "should be a json path under .spec"),
        ("statusReplicasPath", ".status.", "should be a json path under .status"),
    ] {
        let (text, path) = (scale.text(&[field]), path.field(field));
        if text.is_empty() {
            out.push(Problem::required(&path, ""));
        } else if simple_path(text, &path, out) && !text.starts_with(start) {
            out.push(Problem::invalid_text(&path, text, detail));
        }
    }
    let (text, path) = (scale.text(&["labelSelectorPath"]), path.field("labelSelectorPath"));
    let under = text.starts_with(".spec.") || text.starts_with(".status.");
    if !text.is_empty() && simple_path(text, &path, out) && !under {
        let detail = "should be a json path under either .spec or .status";
        out.push(Problem::invalid_text(&path, text, detail));
    }
}

const CELL_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const CELL_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

fn column(column: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(column, "name", path, out);
    let must_be = |allowed: &[&str]| format!("must be one of {}", allowed.join(","));
    let kind = column.text(&["type"]);
    if kind.is_empty() {
        out.push(Problem::required(&path.field("type"), &must_be(CELL_TYPES)));
    } else if !CELL_TYPES.contains(&kind) {
        out.push(Problem::invalid_text(&path.field("type"), kind, &must_be(CELL_TYPES)));
    }
    let format = column.text(&["format"]);
    if !format.is_empty() && !CELL_FORMATS.contains(&format) {
        out.push(Problem::invalid_text(&path.field("format"), format, &must_be(CELL_FORMATS)));
    }
    let (json_path, path) = (column.text(&["jsonPath"]), path.field("JSONPath"));
    if json_path.is_empty() {
        out.push(Problem::required(&path, ""));
    } else {
        simple_path(json_path, &path, out);
    }
}

pub(super) fn check_immutable(object: &Value, old: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    let names = path.field("names");
    let mut same = |steps: &[&str], path: Path<'_>| {
        let (was, is) = (old.text(steps), object.text(steps));
        if was != is {
            out.push(Problem::invalid_text(&path, is, "field is immutable"));
        }
    };
    if is_established(old) {
        same(&["spec", "scope"], path.field("scope"));
        same(&["spec", "names", "kind"], names.field("kind"));
    }
    same(&["spec", "group"], path.field("group"));
    same(&["spec", "names", "plural"], names.field("plural"));
}

fn is_established(object: &Value) -> bool {
    let conditions = object.items(&["status", "conditions"]);
    conditions.iter().any(|it| it.text(&["type"]) == "Established" && it.text(&["status"]) == "True")
}

pub(super) fn stored_versions(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("status");
    let path = path.field("storedVersions");
    let stored = object.items(&["status", "storedVersions"]);
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        out.push(check::invalid_formatted(&path, "[]string(nil)", detail));
    }
    let versions = object.items(&["spec", "versions"]);
    let mut waiting: HashSet<&str> = stored.iter().map(read::text).collect();
    for version in versions {
        let name = version.text(&["name"]);
        // each stored version stands for one version only
        if !waiting.remove(name) && read::flag(version, &["storage"]) {
            let detail = format!("must have the storage version {name}");
            let formatted = format!("apiextensions.CustomResourceDefinitionVersion{{Name:{}}}", quoted(name));
            out.push(check::invalid_formatted(&path, &formatted, &detail));
        }
    }
    let named: HashSet<&str> = versions.iter().map(|it| it.text(&["name"])).collect();
    for (at, name) in stored.iter().map(read::text).enumerate() {
        if !named.contains(name) {
            out.push(Problem::invalid_text(&path.index(at), name, "must appear in spec.versions"));
        }
    }
}

/// The approval state of a definition in a protected group.
#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Given,
    Bypassed,
}

fn approval_of(object: &Value, annotation: &str) -> Approval {
    let text = object.text(&["metadata", "annotations", annotation]);
    let is_address = || url::parse(text).is_ok_and(|it| !it.host.is_empty() && !it.scheme.is_empty());
    match text {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Bypassed,
        _ if is_address() => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn approval_annotation(names: &Names) -> String {
    format!("api-approved.{}", names.well_known_domain)
}

fn is_protected(object: &Value, names: &Names) -> bool {
    let group = object.text(&["spec", "group"]);
    let below =
        |domain: &str| group.strip_suffix(domain).is_some_and(|it| it.is_empty() || it.ends_with('.'));
    below(&names.api_domain) || below(&names.well_known_domain)
}

/// The status condition about the approval for a protected group.
pub(super) fn approval_condition(
    object: &Value,
    names: &Names,
) -> Option<(&'static str, &'static str, String)> {
    if !is_protected(object, names) {
        return None;
    }
    let annotation = approval_annotation(names);
    let text = object.text(&["metadata", "annotations", &annotation]);
    let must = format!("protected groups must have approval annotation {}", quoted(&annotation));
    Some(match approval_of(object, &annotation) {
        Approval::Given => ("True", "ApprovedAnnotation", format!("approved in {text}")),
        Approval::Bypassed => ("False", "UnapprovedAnnotation", format!("not approved: {}", quoted(text))),
        Approval::Missing => ("False", "MissingAnnotation", format!("{must}, {SEE}")),
        Approval::Invalid => (
            "False",
            "InvalidAnnotation",
            format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}"),
        ),
    })
}

const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Groups below the domains of the API itself need an approval.
pub(super) fn approval(object: &Value, old: Option<&Value>, names: &Names, out: &mut Problems) {
    let annotation = approval_annotation(names);
    let state = approval_of(object, &annotation);
    if !is_protected(object, names) || old.is_some_and(|old| approval_of(old, &annotation) == state) {
        return;
    }
    let path = Path::ROOT.field("metadata");
    let path = path.field("annotations");
    let path = path.key(&annotation);
    let must = format!("protected groups must have approval annotation {}", quoted(&annotation));
    match state {
        Approval::Missing => out.push(Problem::required(&path, &format!("{must}, {SEE}"))),
        Approval::Invalid => {
            let text = object.text(&["metadata", "annotations", &annotation]);
            let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            out.push(Problem::invalid_text(&path, text, &detail));
        }
        Approval::Given | Approval::Bypassed => {}
    }
}
