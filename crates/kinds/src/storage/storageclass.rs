//! StorageClasses: the provisioning of volumes. Only expansion and topologies are mutable.

use crate::check::{self, Problems};
use crate::core::pod::warn::old_label;
use crate::{metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks,
    WriteHooks,
};
use schema::problem::{Problem, Reason};
use schema::table::Format;
use schema::{Path, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

const MOST_PARAMETERS: usize = 512;
const MOST_BYTES: usize = 256 * 1024;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| validate(object)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
            ]),
            warn: Some(|object, _| warn(object)),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// Annotations that mark the default class, the older name last.
fn default_keys(names: &Names) -> [String; 2] {
    ["storageclass", "storageclass.beta"].map(|domain| names.well_known_under(domain, "is-default-class"))
}

fn is_default(class: &Value, names: &Names) -> bool {
    let annotations = read::map(class, &["metadata", "annotations"]);
    default_keys(names).iter().any(|key| annotations.get(key).and_then(Value::as_str) == Some("true"))
}

/// The class of claims that name none: of several the newest.
pub(crate) fn default_class(context: &Context<'_>) -> Option<String> {
    let classes = (context.containing)("storageclasses", "is-default-class\":\"true\"");
    let marked = classes.iter().filter(|class| is_default(class, context.names));
    let age = |class: &&Value| {
        let name = std::cmp::Reverse(class.text(&["metadata", "name"]).to_owned());
        (class.text(&["metadata", "creationTimestamp"]).to_owned(), name)
    };
    marked.max_by_key(age).map(|class| class.text(&["metadata", "name"]).to_owned())
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let provisioner = object.text(&["provisioner"]);
    let path = Path::ROOT.field("provisioner");
    check::required(provisioner, &path, &mut out);
    if !provisioner.is_empty() {
        let lower = provisioner.to_lowercase();
        let why = check::why(Format::QualifiedName, &lower);
        out.extend(why.iter().map(|why| Problem::invalid_text(&path, &lower, why)));
    }
    parameters(object, &Path::ROOT.field("parameters"), &mut out);
    if let Some(policy) =
        read::opt_text(object, &["reclaimPolicy"]).filter(|it| !["", "Delete", "Retain"].contains(it))
    {
        out.push(check::unsupported(&Path::ROOT.field("reclaimPolicy"), policy, &["Delete", "Retain"]));
    }
    const MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];
    let path = Path::ROOT.field("volumeBindingMode");
    match read::opt_text(object, &["volumeBindingMode"]) {
        None => out.push(Problem::required(&path, "")),
        Some(mode) if !MODES.contains(&mode) => out.push(check::unsupported(&path, mode, MODES)),
        Some(_) => {}
    }
    topologies(object.items(&["allowedTopologies"]), &mut out);
    out
}

fn parameters(object: &Value, path: &Path<'_>, out: &mut Problems) {
    let parameters = read::map(object, &["parameters"]);
    if parameters.len() > MOST_PARAMETERS {
        out.push(Problem::too_long(path, MOST_PARAMETERS));
        return;
    }
    if parameters.contains("") {
        out.push(Problem::invalid_text(path, "", "field can not be empty."));
    }
    let bytes: usize = parameters.iter().map(|(key, value)| key.len() + read::text(value).len()).sum();
    if bytes > MOST_BYTES {
        out.push(Problem::too_long(path, MOST_BYTES));
    }
}

/// Limit on problems about equal terms, of which there is one for each pair of terms.
const MOST_EQUAL: usize = 2_000;

/// Terms differ from each other, keys in a term too, and values of a key.
fn topologies(terms: &[Value], out: &mut Problems) {
    let path = Path::ROOT.field("allowedTopologies");
    let mut counts: HashMap<BTreeMap<&str, BTreeSet<&str>>, usize> = HashMap::new();
    let mut left = MOST_EQUAL;
    for (at, term) in terms.iter().enumerate() {
        let path = path.index(at);
        let path = path.field("matchLabelExpressions");
        let mut expressions = BTreeMap::new();
        for (at, one) in term.items(&["matchLabelExpressions"]).iter().enumerate() {
            let path = path.index(at);
            let values_path = path.field("values");
            let mut values = BTreeSet::new();
            if one.items(&["values"]).is_empty() {
                out.push(Problem::required(&values_path, ""));
            }
            for (at, value) in one.items(&["values"]).iter().enumerate() {
                if !values.insert(read::text(value)) {
                    out.push(check::duplicate_text(&values_path.index(at), read::text(value)));
                }
            }
            let key = one.text(&["key"]);
            check::qualified_name(key, &path.field("key"), out);
            if expressions.insert(key, values).is_some() {
                out.push(check::duplicate_text(&path.field("key"), key));
            }
        }
        let duplicate = || Problem {
            reason: Reason::Duplicate,
            field: path.to_string(),
            message: "Duplicate value: \"\"".to_owned(),
        };
        // an empty term is reported once per term, too: later terms count as empty
        let empty = if expressions.is_empty() { terms.len() } else { 0 };
        let earlier = counts.entry(expressions).or_default();
        let times = (empty + *earlier).min(left);
        *earlier += 1;
        left -= times;
        out.extend((0..times).map(|_| duplicate()));
    }
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if !read::same(new.at(&[field]), old.at(&[field])) {
            let why = format!("updates to {field} are forbidden.");
            out.push(Problem::forbidden(&Path::ROOT.field(field), &why));
        }
    }
    let mode = new.text(&["volumeBindingMode"]);
    if mode != old.text(&["volumeBindingMode"]) {
        let path = Path::ROOT.field("volumeBindingMode");
        out.push(Problem::invalid_text(&path, mode, "field is immutable"));
    }
    out
}

fn warn(object: &Value) -> Vec<String> {
    let names = Names::kubernetes();
    let mut out = Vec::new();
    for (at, term) in object.items(&["allowedTopologies"]).iter().enumerate() {
        for (of, one) in term.items(&["matchLabelExpressions"]).iter().enumerate() {
            if let Some(why) = old_label(one.text(&["key"]), &names) {
                out.push(format!("allowedTopologies[{at}].matchLabelExpressions[{of}].key: {why}"));
            }
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let name = object.text(&["metadata", "name"]);
    let name = match is_default(object, &Names::kubernetes()) {
        true => format!("{name} (default)"),
        false => name.to_owned(),
    };
    vec![
        name.into(),
        object.text(&["provisioner"]).into(),
        metadata::or(object.text(&["reclaimPolicy"]), "Delete"),
        metadata::or(object.text(&["volumeBindingMode"]), "Immediate"),
        Value::Bool(read::flag(object, &["allowVolumeExpansion"])),
        metadata::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn topologies_differ() {
        let check = |terms: &str, expected: &[&str]| {
            let mut out = Problems::new();
            topologies(json(terms).as_list().unwrap(), &mut out);
            assert_eq!(problems(&out), expected, "{terms}");
        };
        check(
            r#"[{"matchLabelExpressions":[{"key":"z","values":["a","b"]}]},{"matchLabelExpressions":[{"key":"z","values":["b","a"]}]}]"#,
            &[r#"allowedTopologies[1].matchLabelExpressions: Duplicate value: """#],
        );
        // each pair of equal terms is a problem
        let term = r#"{"matchLabelExpressions":[{"key":"z","values":["a"]}]}"#;
        let [second, third] =
            [1, 2].map(|at| format!(r#"allowedTopologies[{at}].matchLabelExpressions: Duplicate value: """#));
        check(&format!("[{term},{term},{term}]"), &[&second, &third, &third]);
        check(
            r#"[{"matchLabelExpressions":[{"key":"z","values":["a","a"]},{"key":"z","values":["b"]}]}]"#,
            &[
                r#"allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a""#,
                r#"allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "z""#,
            ],
        );
    }

    #[test]
    fn provisioners_are_shown_in_lower_case() {
        let object =
            json(r#"{"provisioner":"$(A)","reclaimPolicy":"Delete","volumeBindingMode":"Immediate"}"#);
        assert!(problems(&validate(&object))[0].starts_with(r#"provisioner: Invalid value: "$(a)": "#));
    }

    #[test]
    fn provisioning_parameters_are_immutable() {
        let old = json(r#"{"provisioner":"a.b/c","reclaimPolicy":"Delete","volumeBindingMode":"Immediate"}"#);
        let mut new = old.clone();
        new.set(&["allowVolumeExpansion"], true);
        assert_eq!(problems(&update(&new, &old, &context())), [""; 0]);
        new.set(&["provisioner"], "A.b/d");
        new.set(&["volumeBindingMode"], "WaitForFirstConsumer");
        let expected = [
            "provisioner: Forbidden: updates to provisioner are forbidden.",
            r#"volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable"#,
        ];
        assert_eq!(problems(&update(&new, &old, &context())), expected);
    }
}
