//! The terms of a statement: types, groups, verbs, list types and formats.

use super::syntax::{TypeExpr, TypeName, text};
use tables::table::{Format, Group, ListKind, Scalar, Text};

/// The most `[]` and `{}` before a type.
const MAX_NESTING: usize = 4;

/// A parsed term, or the message of its problem.
pub(super) type Outcome<T> = Result<T, String>;

/// Whether a word is the plural of a kind, not one of its attributes.
pub(super) fn is_plural(word: &str) -> bool {
    const ATTRIBUTES: [&str; 10] = [
        "namespaced",
        "cluster",
        "unconditional",
        "generation",
        "ttl",
        "atomic",
        "open",
        "unstored",
        "off",
        "retired",
    ];
    !ATTRIBUTES.contains(&word)
}

pub(super) fn check_type_name(name: &str) -> Outcome<()> {
    let fits =
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric());
    if fits { Ok(()) } else { Err(format!("`{name}` is no name of a type")) }
}

pub(super) fn parse_number<N: std::str::FromStr>(what: &str, value: &str) -> Outcome<N> {
    value.parse().map_err(|_| format!("`{value}` is no {what}"))
}

pub(super) fn parse_type(word: &str, depth: usize) -> Outcome<TypeExpr> {
    if depth > MAX_NESTING {
        return Err(format!("more than {MAX_NESTING} lists and maps in one another"));
    }
    if let Some(item) = word.strip_prefix("[]") {
        return Ok(TypeExpr::List(Box::new(parse_type(item, depth + 1)?)));
    }
    if let Some(value) = word.strip_prefix("{}") {
        return Ok(TypeExpr::Map(Box::new(parse_type(value, depth + 1)?)));
    }
    let scalar = match word {
        "string" => Scalar::String,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "float" => Scalar::Float,
        "bytes" => Scalar::Bytes,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "quantity" => Scalar::Quantity,
        "intorstring" => Scalar::IntOrString,
        "any" => Scalar::Any,
        "object" => Scalar::Object,
        "fields" => Scalar::Fields,
        _ => {
            let (alias, name) = match word.split_once('.') {
                Some((alias, name)) => (Some(alias.to_string()), name),
                None => (None, word),
            };
            check_type_name(name).map_err(|_| format!("`{word}` is no type"))?;
            return Ok(TypeExpr::Named(TypeName { alias, name: name.to_string() }));
        }
    };
    Ok(TypeExpr::Scalar(scalar))
}

pub(super) fn parse_group(word: &str) -> Outcome<Group> {
    let (stem, in_domain) = match word.strip_suffix(".{domain}") {
        Some(stem) => (stem, true),
        None if word == "core" => ("", false),
        None => (word, false),
    };
    if word != "core" && (stem.is_empty() || stem.contains(['{', '}', '/'])) {
        return Err(format!("`{word}` is no group"));
    }
    Ok(Group { stem: text(stem), in_domain })
}

pub(super) fn parse_group_version(word: &str) -> Outcome<(Group, Text)> {
    let (group, version) = word.split_once('/').ok_or_else(|| format!("`{word}` is no group/version"))?;
    Ok((parse_group(group)?, text(version)))
}

pub(super) fn parse_verbs(words: &[&str]) -> Outcome<Vec<Text>> {
    const VERBS: [&str; 8] =
        ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    if words.is_empty() {
        return Err("no verbs are given".into());
    }
    match words.iter().find(|it| !VERBS.contains(it)) {
        Some(other) => Err(format!("`{other}` is no verb")),
        None => Ok(words.iter().map(|it| text(it)).collect()),
    }
}

pub(super) fn parse_list_kind(value: &str) -> Outcome<ListKind> {
    let keys = |it: &str| it.strip_prefix("map(")?.strip_suffix(')').map(str::to_string);
    match (value, keys(value)) {
        ("atomic", _) => Ok(ListKind::Atomic),
        ("set", _) => Ok(ListKind::Set),
        (_, Some(keys)) if !keys.is_empty() => {
            Ok(ListKind::Map { keys: keys.split(',').map(text).collect() })
        }
        _ => Err("`list=` can be `atomic`, `set` or `map(key,...)`".into()),
    }
}

pub(super) fn parse_format(value: &str) -> Outcome<Format> {
    Ok(match value {
        "dns1123label" => Format::Dns1123Label,
        "dns1123subdomain" => Format::Dns1123Subdomain,
        "dns1035label" => Format::Dns1035Label,
        "qualifiedname" => Format::QualifiedName,
        "labelvalue" => Format::LabelValue,
        "pathsegment" => Format::PathSegment,
        "ip" => Format::IpAddress,
        "portname" => Format::PortName,
        "envname" => Format::EnvName,
        "configkey" => Format::ConfigKey,
        _ => return Err(format!("`{value}` is no format")),
    })
}
