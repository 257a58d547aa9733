//! Tables from the reference of types, and recorded scenarios, if those are available.

use crate::managed::tests::json;
use crate::strategic::format_value;
use schema::table::{
    Field, Flags, ListKind, ListShape, Literal, MapShape, Patch, Ref, Scalar, Shape, Text, Type,
};
use schema::{Map, Value, decode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Members that the server fills in when they are absent.
pub(crate) const FILLED: &[&str] = &[
    "apiVersion",
    "backoffLimit",
    "clusterIPs",
    "concurrencyPolicy",
    "conditions",
    "creationTimestamp",
    "d",
    "def_",
    "defaultMode",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "maxSurge",
    "maxUnavailable",
    "minReplicas",
    "namespace",
    "phase",
    "policyTypes",
    "preemptionPolicy",
    "scheme",
    "podManagementPolicy",
    "progressDeadlineSeconds",
    "protocol",
    "q",
    "replicas",
    "resourceVersion",
    "restartPolicy",
    "revisionHistoryLimit",
    "rollingUpdate",
    "schedulerName",
    "securityContext",
    "sessionAffinity",
    "status",
    "strategy",
    "targetPort",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "type",
    "uid",
    "updateStrategy",
    "volumeMode",
];

/// Types by their published names, built at their first use.
pub(crate) struct Types {
    declared: Value,
    made: HashMap<String, Ref<Type>>,
}

impl Types {
    /// `None`, and a word about it, when the reference is not at hand.
    pub(crate) fn load() -> Option<Types> {
        let types = std::fs::read_to_string(testdata::find("reference/types.json")?).unwrap();
        let declared = json(&types).unset(&["types"]).unwrap();
        Some(Types { declared, made: HashMap::new() })
    }

    fn get(&mut self, name: &str, depth: usize) -> Shape {
        if let Some(made) = self.made.get(name) {
            return Shape::Struct(made.clone());
        }
        // a type that holds itself many times over would not end
        if depth > 24 || name.ends_with("JSONSchemaProps") {
            return Shape::Scalar(Scalar::Any);
        }
        let mut fields = Vec::new();
        let atomic = self.fields(name, depth, &mut fields);
        let ty: Ref<Type> = Type { atomic, ..Type::new(name.to_owned(), "", fields) }.into();
        self.made.insert(name.to_owned(), ty.clone());
        Shape::Struct(ty)
    }

    fn fields(&mut self, name: &str, depth: usize, out: &mut Vec<Field>) -> bool {
        let declared = self.declared.at(&[name]).cloned().unwrap_or_default();
        for inline in declared.items(&["inline"]) {
            let name = inline.text(&["t"]).trim_start_matches("ref:").to_owned();
            self.fields(&name, depth, out);
        }
        for (name, field) in declared.at(&["fields"]).and_then(Value::as_map).into_iter().flat_map(Map::iter)
        {
            out.push(self.field(name, field, depth));
        }
        declared.text(&["mapType"]) == "atomic"
    }

    fn field(&mut self, name: &str, of: &Value, depth: usize) -> Field {
        let shape = match self.shape(of.text(&["t"]), of, depth) {
            // a field may say of an atomic type that it is not
            Shape::Struct(ty) if of.text(&["mapType"]) == "granular" => {
                Shape::Struct(Type { atomic: false, ..Type::clone(&ty) }.into())
            }
            shape => shape,
        };
        let mut flags = Flags::NONE;
        if of.at(&["omitempty"]).is_none() {
            flags = flags.and(Flags::ALWAYS);
        }
        if of.at(&["ptr"]).is_some() {
            flags = flags.and(Flags::NILABLE);
        }
        let default = of.at(&["default"]).and_then(Value::as_str).filter(|text| !text.is_empty());
        let default = default.map(|text| Literal::Text(text.to_owned().into()));
        let patch = match of.text(&["patchStrategy"]) {
            "merge" | "merge,retainKeys" => Patch::Merge {
                key: of.text(&["patchKey"]).to_owned().into(),
                retain_keys: of.text(&["patchStrategy"]).contains("retainKeys"),
            },
            "retainKeys" => Patch::RetainKeys,
            _ => Patch::Replace,
        };
        Field { flags, default, patch, ..Field::new(name.to_owned(), shape) }
    }

    fn shape(&mut self, of: &str, field: &Value, depth: usize) -> Shape {
        if let Some(name) = of.strip_prefix("ref:") {
            return self.get(name, depth + 1);
        }
        if let Some(item) = of.strip_prefix("list:") {
            let item = self.shape(item, &Value::Null, depth);
            return Shape::List(ListShape { kind: list_kind(field, &item), item, default: None }.into());
        }
        if let Some(value) = of.strip_prefix("map:") {
            let value = self.shape(value, &Value::Null, depth);
            return Shape::Map(
                MapShape {
                    value,
                    atomic: field.text(&["mapType"]) == "atomic",
                    nullable: false,
                    open: false,
                    default: None,
                }
                .into(),
            );
        }
        Shape::Scalar(match of {
            "string" => Scalar::String,
            "bool" => Scalar::Bool,
            "int32" => Scalar::Int32,
            "int64" => Scalar::Int64,
            "float64" => Scalar::Float,
            "bytes" => Scalar::Bytes,
            "Time" => Scalar::Time,
            "MicroTime" => Scalar::MicroTime,
            "Duration" => Scalar::Duration,
            "Quantity" => Scalar::Quantity,
            "IntOrString" => Scalar::IntOrString,
            "FieldsV1" => Scalar::Fields,
            "RawExtension" => Scalar::Object,
            _ => Scalar::Any,
        })
    }

    /// The table of an object.
    pub(crate) fn root(&mut self, object: &Value) -> Option<Ref<Type>> {
        let (api_version, kind) = (object.text(&["apiVersion"]), object.text(&["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self.declared.as_map()?.iter().find(|(_, ty)| {
            ty.at(&["kind"]).is_some()
                && (ty.text(&["group"]), ty.text(&["version"]), ty.text(&["name"])) == (group, version, kind)
        });
        let name = found?.0.to_owned();
        match self.get(&name, 0) {
            Shape::Struct(ty) => Some(ty),
            _ => None,
        }
    }
}

fn list_kind(field: &Value, item: &Shape) -> ListKind {
    let keys = |names: Vec<&str>| ListKind::Map {
        keys: names.iter().map(|it| Text::Owned((*it).to_owned())).collect(),
    };
    match field.text(&["listType"]) {
        "map" => keys(field.items(&["listKeys"]).iter().filter_map(Value::as_str).collect()),
        "set" => ListKind::Set,
        "atomic" => ListKind::Atomic,
        _ if !field.text(&["patchStrategy"]).contains("merge") => ListKind::Atomic,
        _ if matches!(item, Shape::Scalar(_)) => ListKind::Set,
        _ => keys(vec![field.text(&["patchKey"])]),
    }
}

/// The recorded scenarios of a family.
pub(crate) fn scenarios(family: &str) -> Vec<PathBuf> {
    testdata::find(&format!("recorded/{family}")).map(|folder| files(&folder)).unwrap_or_default()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|it| it == "json") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Whether an object is the recorded one, as far as it was recorded, but for what the server makes.
pub(crate) fn compare(next: &Value, answer: &Value) -> Result<(), String> {
    if let Some(body) = answer.at(&["body"]) {
        let mut body = body.clone();
        body.unset(&["metadata"]);
        let mut next = next.clone();
        next.unset(&["metadata"]);
        return agree(&body, &next, "");
    }
    for (pointer, expected) in answer.at(&["parts"]).and_then(Value::as_map).into_iter().flat_map(Map::iter) {
        let made = ["/metadata/generation", "/metadata/managedFields", "/metadata/resourceVersion"];
        if made.contains(&pointer) || pointer.contains('[') || pointer.contains('*') {
            continue;
        }
        let mut ours = Some(next);
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            ours = ours.and_then(|value| match value {
                Value::List(items) => items.get(step.parse::<usize>().ok()?),
                other => other.at(&[&step]),
            });
        }
        match (expected.as_str(), ours) {
            (Some("${absent}"), None | Some(Value::Null)) => {}
            (Some("${absent}"), Some(ours)) => return Err(format!("{pointer} is {}", format_value(ours))),
            (_, None) if pointer.rsplit('/').next().is_some_and(|it| FILLED.contains(&it)) => {}
            (_, None) => return Err(format!("{pointer} is absent")),
            (_, Some(ours)) => agree(expected, ours, pointer)?,
        }
    }
    Ok(())
}

/// Whether ours is the recorded value, but for what the server fills in.
fn agree(recorded: &Value, ours: &Value, path: &str) -> Result<(), String> {
    match (recorded, ours) {
        (Value::Map(recorded), Value::Map(ours)) => {
            for (name, value) in ours.iter() {
                let path = format!("{path}/{name}");
                let Some(recorded) = recorded.get(name) else {
                    if decode::is_zero(value) {
                        continue;
                    }
                    return Err(format!("{path} should not be there"));
                };
                if !(FILLED.contains(&name) && decode::is_zero(value)) {
                    agree(recorded, value, &path)?;
                }
            }
            let lost = |(name, value): (&str, &Value)| {
                (!ours.contains(name) && !FILLED.contains(&name) && !decode::is_zero(value))
                    .then(|| format!("{path}/{name} should be there"))
            };
            recorded.iter().find_map(lost).map_or(Ok(()), Err)
        }
        (Value::List(recorded), Value::List(ours)) if recorded.len() == ours.len() => {
            let pairs = recorded.iter().zip(ours).enumerate();
            pairs.into_iter().try_for_each(|(at, (a, b))| agree(a, b, &format!("{path}/{at}")))
        }
        (Value::String(text), _) if text.starts_with("${") => Ok(()),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{path} should be {} and is {}", format_value(a), format_value(b))),
    }
}
