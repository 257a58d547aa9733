//! Checks of the attributes of a field against its type: list types, keys, paths, defaults and rules.
//!
//! The checks are pure functions over the model; [`check`](super::check) reports their results.

use super::model::{FieldModel, ShapeModel, TypeModel};
use super::syntax::{FieldDecl, text};
use tables::table::{ListKind, Literal, Patch, Rule, Scalar};

/// Settles list and map type from the field's attributes.
pub(super) fn finish_shape(shape: &mut ShapeModel, field: &FieldDecl) -> Result<(), String> {
    match shape {
        ShapeModel::List(_, kind) => {
            *kind = match (&field.list, &field.patch) {
                (Some(explicit), _) => explicit.clone(),
                (None, Patch::Merge { key, .. }) if key.is_empty() => ListKind::Set,
                (None, Patch::Merge { key, .. }) => ListKind::Map { keys: vec![key.clone()].into() },
                (None, _) => ListKind::Atomic,
            };
        }
        ShapeModel::Map(_, atomic) => *atomic = field.map_atomic,
        _ => {}
    }
    // Bytes can be declared atomic, which is published and says nothing new.
    let bytes = matches!(shape, ShapeModel::Scalar(Scalar::Bytes)) && field.list == Some(ListKind::Atomic);
    if field.list.is_some() && !bytes && !matches!(shape, ShapeModel::List(..)) {
        return Err(format!("`list=` on `{}`, which is no list", field.name));
    }
    if field.map_atomic && !matches!(shape, ShapeModel::Map(..)) {
        return Err(format!("`map=` on `{}`, which is no map", field.name));
    }
    if field.granular && !matches!(shape, ShapeModel::Struct(_)) {
        return Err(format!("`map=granular` on `{}`, which is no structure", field.name));
    }
    if matches!(field.patch, Patch::RetainKeys | Patch::Whole)
        && !matches!(shape, ShapeModel::Struct(_) | ShapeModel::Map(..))
    {
        return Err(format!("`{}` has no keys that a patch could keep or replace", field.name));
    }
    Ok(())
}

pub(super) fn check_keys(field: &FieldModel, types: &[TypeModel]) -> Result<(), String> {
    let item = match &field.shape {
        ShapeModel::List(item, _) => Some(&**item),
        _ => None,
    };
    // On a scalar a merge key is published and has no effect.
    let scalar = matches!(field.shape, ShapeModel::Scalar(_));
    if let Patch::Merge { key, .. } = &field.patch
        && !key.is_empty()
        && !scalar
    {
        check_key(field, item, key, types)?;
    }
    match &field.shape {
        ShapeModel::List(item, ListKind::Map { keys }) => {
            keys.iter().try_for_each(|key| check_key(field, Some(item), key, types))
        }
        ShapeModel::List(item, ListKind::Set) => match &**item {
            ShapeModel::Struct(at) if !types[*at].atomic => {
                Err(format!("`{}` is a set of structures that are not atomic", field.name))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_key(
    field: &FieldModel,
    item: Option<&ShapeModel>,
    key: &str,
    types: &[TypeModel],
) -> Result<(), String> {
    let Some(ShapeModel::Struct(at)) = item else {
        return Err(format!("`{}` has the key `{key}` but is no list of structures", field.name));
    };
    match types[*at].fields.iter().find(|it| it.name == key).map(|it| &it.shape) {
        Some(ShapeModel::Scalar(_)) => Ok(()),
        Some(_) => Err(format!("the key `{key}` of `{}` is not a scalar", field.name)),
        None => Err(format!("`{}` has no field `{key}` to be the key of `{}`", types[*at].name, field.name)),
    }
}

/// Follows a dotted path; a map has every key, and an opaque value every path.
pub(super) fn resolve_path(types: &[TypeModel], root: usize, path: &str) -> Result<(), String> {
    let start = ShapeModel::Struct(root);
    let mut shape = &start;
    for segment in path.split('.') {
        shape = match shape {
            ShapeModel::Struct(at) => match types[*at].fields.iter().find(|it| it.name == segment) {
                Some(field) => &field.shape,
                None => return Err(format!("`{path}`: `{}` has no field `{segment}`", types[*at].name)),
            },
            ShapeModel::Map(value, _) if !segment.is_empty() => value,
            ShapeModel::Scalar(Scalar::Any | Scalar::Object | Scalar::Fields) => return Ok(()),
            _ => return Err(format!("`{path}`: nothing has a field `{segment}` there")),
        };
    }
    Ok(())
}

/// Reads a default as a value of the shape.
pub(super) fn literal(value: &str, shape: &ShapeModel) -> Result<Literal, String> {
    let misfit = || format!("the default `{value}` does not fit the type");
    match shape {
        ShapeModel::Scalar(scalar) => scalar_literal(value, *scalar).ok_or_else(misfit),
        ShapeModel::Struct(_) | ShapeModel::Map(..) => {
            let is_object = value.starts_with('{') && value.ends_with('}');
            if is_object { Ok(Literal::Json(text(value))) } else { Err(misfit()) }
        }
        ShapeModel::List(item, _) => {
            let items = value.strip_prefix('[').and_then(|it| it.strip_suffix(']')).ok_or_else(misfit)?;
            let ShapeModel::Scalar(scalar) = **item else {
                return if items.is_empty() { Ok(Literal::Json(text("[]"))) } else { Err(misfit()) };
            };
            let items = items.split(',').filter(|_| !items.is_empty());
            let items: Option<Vec<String>> = items.map(|it| json_scalar(it, scalar)).collect();
            Ok(Literal::Json(format!("[{}]", items.ok_or_else(misfit)?.join(",")).into()))
        }
    }
}

fn scalar_literal(value: &str, scalar: Scalar) -> Option<Literal> {
    match scalar {
        Scalar::Bool => value.parse().ok().map(Literal::Bool),
        Scalar::Int32 => value.parse::<i32>().ok().map(|it| Literal::Int(it.into())),
        Scalar::Int64 => value.parse().ok().map(Literal::Int),
        Scalar::IntOrString => Some(
            value.parse::<i32>().map_or_else(|_| Literal::Text(text(value)), |it| Literal::Int(it.into())),
        ),
        Scalar::String => Some(Literal::Text(text(value))),
        Scalar::Duration | Scalar::Quantity if !value.is_empty() => Some(Literal::Text(text(value))),
        Scalar::Object if value == "{}" => Some(Literal::Json(text(value))),
        _ => None,
    }
}

fn json_scalar(value: &str, scalar: Scalar) -> Option<String> {
    match scalar_literal(value.trim(), scalar)? {
        Literal::Bool(it) => Some(it.to_string()),
        Literal::Int(it) => Some(it.to_string()),
        Literal::Text(it) if !it.contains(['"', '\\']) && !it.contains(char::is_control) => {
            Some(format!("\"{it}\""))
        }
        _ => None,
    }
}

pub(super) fn rule_fits(rule: &Rule, shape: &ShapeModel) -> bool {
    use ShapeModel::{List, Map, Scalar as One};
    match rule {
        Rule::Min(_) | Rule::Max(_) => {
            matches!(shape, One(Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString))
        }
        Rule::MinLength(_) | Rule::MaxLength(_) => matches!(shape, One(Scalar::String | Scalar::Bytes)),
        Rule::MinItems(_) | Rule::MaxItems(_) => matches!(shape, List(..) | Map(..)),
        Rule::Enum(_) | Rule::Values(_) | Rule::Format(_) => matches!(shape, One(Scalar::String)),
        Rule::NotEmpty => matches!(shape, One(Scalar::String | Scalar::Bytes) | List(..) | Map(..)),
    }
}
