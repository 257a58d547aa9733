//! The operators.
//!
//! Numbers of different types are equal if their values are, and can be ordered; they cannot be added.

use crate::declaration::ListKind;
use crate::fault::{Fault, Outcome, fail, no_such_overload};
use crate::value::{CelValue, ItemKind, Key, List, Map};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The fault of an operator that this value does not have.
pub(crate) fn lacks(value: &CelValue<'_>, function: &str) -> Fault {
    match value {
        // these overloads compare by themselves and do not depend on the function's name
        CelValue::String(_) | CelValue::Timestamp(_) | CelValue::Duration(_) => no_such_overload(),
        _ => Fault::new(format!("no such overload: {function}")),
    }
}

const OVERFLOW: &str = "integer overflow";
const UNSIGNED_OVERFLOW: &str = "unsigned integer overflow";

fn int(number: Option<i64>) -> Outcome<CelValue<'static>> {
    number.map_or_else(|| fail(OVERFLOW), |it| Ok(CelValue::Int(it)))
}

fn uint(number: Option<u64>) -> Outcome<CelValue<'static>> {
    number.map_or_else(|| fail(UNSIGNED_OVERFLOW), |it| Ok(CelValue::Uint(it)))
}

fn duration(nanos: Option<i64>) -> Outcome<CelValue<'static>> {
    nanos.map_or_else(|| fail(OVERFLOW), |it| Ok(CelValue::Duration(it)))
}

pub(crate) fn add<'a>(a: CelValue<'a>, b: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_add(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_add(b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a + b)),
        (CelValue::String(a), CelValue::String(b)) => Ok(CelValue::string([&*a, &*b].concat())),
        (CelValue::Bytes(a), CelValue::Bytes(b)) => Ok(CelValue::Bytes([&*a, &*b].concat().into())),
        (CelValue::Duration(a), CelValue::Duration(b)) => duration(a.checked_add(b)),
        (CelValue::Duration(a), CelValue::Timestamp(b)) => Ok(CelValue::Timestamp(b.add(a)?)),
        (CelValue::Timestamp(a), CelValue::Duration(b)) => Ok(CelValue::Timestamp(a.add(b)?)),
        (CelValue::List(a), CelValue::List(b)) => add_lists(a, b).map(CelValue::List),
        (
            CelValue::Int(_)
            | CelValue::Uint(_)
            | CelValue::Double(_)
            | CelValue::String(_)
            | CelValue::Bytes(_)
            | CelValue::Duration(_)
            | CelValue::Timestamp(_)
            | CelValue::List(_),
            _,
        ) => Err(no_such_overload()),
        (other, _) => Err(lacks(&other, "_+_")),
    }
}

/// Items of a set are added once; an item with a map key replaces the one with the same key.
fn add_lists<'a>(a: List<'a>, b: List<'a>) -> Outcome<List<'a>> {
    let Some(kind) = a.kind() else {
        if a.is_empty() {
            return Ok(b);
        }
        if b.is_empty() {
            return Ok(a);
        }
        // a list without other references grows in place
        let mut items = match a {
            List::Owned(items, _) => Arc::try_unwrap(items).unwrap_or_else(|shared| (*shared).clone()),
            tree => tree.iter().collect::<Outcome<Vec<_>>>()?,
        };
        for item in b.iter() {
            items.push(item?);
        }
        return Ok(List::Owned(Arc::new(items), None));
    };
    let mut items: Vec<CelValue<'a>> = a.iter().collect::<Outcome<_>>()?;
    match kind {
        ListKind::Atomic => {
            for item in b.iter() {
                items.push(item?);
            }
        }
        ListKind::Set => {
            let mut there: HashSet<Key> = items.iter().map(CelValue::key).collect::<Outcome<_>>()?;
            for item in b.iter() {
                let item = item?;
                if there.insert(item.key()?) {
                    items.push(item);
                }
            }
        }
        ListKind::Map(fields) => {
            let mut places = HashMap::new();
            for (at, item) in items.iter().enumerate() {
                places.insert(item_key(item, fields)?, at);
            }
            for item in b.iter() {
                let item = item?;
                match places.get(&item_key(&item, fields)?) {
                    Some(at) => items[*at] = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(List::Owned(Arc::new(items), Some(ItemKind(kind))))
}

/// The identity of a list item.
fn item_key(item: &CelValue<'_>, fields: &[String]) -> Outcome<Vec<Option<Key>>> {
    let CelValue::Map(map) = item else {
        return fail(format!(
            "unexpected data format for element of array with x-kubernetes-list-type=map: {}",
            item.type_name()
        ));
    };
    fields.iter().map(|field| map.find_field(field)?.map(|it| it.key()).transpose()).collect()
}

pub(crate) fn subtract<'a>(a: CelValue<'a>, b: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_sub(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_sub(b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a - b)),
        (CelValue::Duration(a), CelValue::Duration(b)) => duration(a.checked_sub(b)),
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => Ok(CelValue::Duration(a.since(b)?)),
        (CelValue::Timestamp(a), CelValue::Duration(b)) => match b.checked_neg() {
            Some(nanos) => Ok(CelValue::Timestamp(a.add(nanos)?)),
            None => fail(OVERFLOW),
        },
        (
            CelValue::Int(_)
            | CelValue::Uint(_)
            | CelValue::Double(_)
            | CelValue::Duration(_)
            | CelValue::Timestamp(_),
            _,
        ) => Err(no_such_overload()),
        (other, _) => Err(lacks(&other, "_-_")),
    }
}

pub(crate) fn multiply<'a>(a: CelValue<'a>, b: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_mul(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_mul(b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a * b)),
        (CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_), _) => Err(no_such_overload()),
        (other, _) => Err(lacks(&other, "_*_")),
    }
}

pub(crate) fn divide<'a>(a: CelValue<'a>, b: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match (a, b) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            fail("division by zero")
        }
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_div(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_div(b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a / b)),
        (CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_), _) => Err(no_such_overload()),
        (other, _) => Err(lacks(&other, "_/_")),
    }
}

pub(crate) fn modulo<'a>(a: CelValue<'a>, b: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match (a, b) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            fail("modulus by zero")
        }
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_rem(b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_rem(b)),
        (CelValue::Int(_) | CelValue::Uint(_), _) => Err(no_such_overload()),
        (other, _) => Err(lacks(&other, "_%_")),
    }
}

pub(crate) fn negate(value: CelValue<'_>) -> Outcome<CelValue<'_>> {
    match value {
        CelValue::Int(number) => int(number.checked_neg()),
        CelValue::Double(number) => Ok(CelValue::Double(-number)),
        CelValue::Duration(nanos) => duration(nanos.checked_neg()),
        CelValue::Bool(_) => Err(no_such_overload()),
        other => Err(lacks(&other, "-_")),
    }
}

pub(crate) fn not(value: CelValue<'_>) -> Outcome<CelValue<'_>> {
    match value {
        CelValue::Bool(truth) => Ok(CelValue::Bool(!truth)),
        CelValue::Int(_) | CelValue::Double(_) | CelValue::Duration(_) => Err(no_such_overload()),
        other => Err(lacks(&other, "!_")),
    }
}

fn compare_int_double(int: i64, double: f64) -> Ordering {
    if double < i64::MIN as f64 {
        Ordering::Greater
    } else if double > i64::MAX as f64 {
        Ordering::Less
    } else {
        (int as f64).partial_cmp(&double).unwrap_or(Ordering::Equal)
    }
}

fn compare_uint_double(uint: u64, double: f64) -> Ordering {
    if double < 0.0 {
        Ordering::Greater
    } else if double > u64::MAX as f64 {
        Ordering::Less
    } else {
        (uint as f64).partial_cmp(&double).unwrap_or(Ordering::Equal)
    }
}

fn compare_int_uint(int: i64, uint: u64) -> Ordering {
    u64::try_from(int).map_or(Ordering::Less, |int| int.cmp(&uint))
}

/// The order of two values; `function` is the operator that needs it.
pub(crate) fn compare(function: &str, a: &CelValue<'_>, b: &CelValue<'_>) -> Outcome<Ordering> {
    let is_nan = |it: &CelValue<'_>| matches!(it, CelValue::Double(number) if number.is_nan());
    let number = |it: &CelValue<'_>| matches!(it, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_));
    if is_nan(a) || (is_nan(b) && number(a)) {
        return fail("NaN values cannot be ordered");
    }
    Ok(match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => a.cmp(b),
        (CelValue::Int(a), CelValue::Uint(b)) => compare_int_uint(*a, *b),
        (CelValue::Int(a), CelValue::Double(b)) => compare_int_double(*a, *b),
        (CelValue::Uint(a), CelValue::Uint(b)) => a.cmp(b),
        (CelValue::Uint(a), CelValue::Int(b)) => compare_int_uint(*b, *a).reverse(),
        (CelValue::Uint(a), CelValue::Double(b)) => compare_uint_double(*a, *b),
        (CelValue::Double(a), CelValue::Double(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        (CelValue::Double(a), CelValue::Int(b)) => compare_int_double(*b, *a).reverse(),
        (CelValue::Double(a), CelValue::Uint(b)) => compare_uint_double(*b, *a).reverse(),
        (CelValue::Bool(a), CelValue::Bool(b)) => a.cmp(b),
        (CelValue::String(a), CelValue::String(b)) => (**a).cmp(&**b),
        (CelValue::Bytes(a), CelValue::Bytes(b)) => a.cmp(b),
        (CelValue::Duration(a), CelValue::Duration(b)) => a.cmp(b),
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        (a, _) if number(a) => return Err(no_such_overload()),
        (CelValue::Bool(_) | CelValue::Bytes(_), _) => return Err(no_such_overload()),
        (other, _) => return Err(lacks(other, function)),
    })
}

/// Whether two values are the same.
pub(crate) fn equal<'a>(a: &CelValue<'a>, b: &CelValue<'a>) -> Outcome<bool> {
    Ok(match (a, b) {
        (CelValue::Null, CelValue::Null) => true,
        (CelValue::Null, _) | (_, CelValue::Null) => false,
        (CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_), _) => {
            let number = matches!(b, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_));
            number && compare("_==_", a, b).is_ok_and(Ordering::is_eq)
        }
        (CelValue::Bool(a), CelValue::Bool(b)) => a == b,
        (CelValue::String(a), CelValue::String(b)) => **a == **b,
        (CelValue::Bytes(a), CelValue::Bytes(b)) => a == b,
        (CelValue::Duration(a), CelValue::Duration(b)) => a == b,
        (CelValue::Timestamp(a), CelValue::Timestamp(b)) => a == b,
        (CelValue::Type(a), CelValue::Type(b)) => a == b,
        (CelValue::Url(a), CelValue::Url(b)) => a.to_string() == b.to_string(),
        (CelValue::Opaque(a), CelValue::Opaque(b)) => a == b,
        (CelValue::List(a), CelValue::List(b)) => return equal_lists(a, b),
        (CelValue::Map(a), CelValue::Map(b)) => return equal_maps(a, b),
        // a declared value is compared only with one of the same declaration
        (CelValue::List(a), _) if a.is_declared() => return Err(no_such_overload()),
        (CelValue::Map(a), _) if a.is_declared() => return Err(no_such_overload()),
        (CelValue::Url(_), _) => return Err(no_such_overload()),
        _ => false,
    })
}

fn equal_lists<'a>(a: &List<'a>, b: &List<'a>) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.kind() {
        None => {
            for (a, b) in a.iter().zip(b.iter()) {
                // incomparable values count as equal
                if let Ok(false) = equal(&a?, &b?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(ListKind::Atomic) => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(ListKind::Set) => {
            let there: HashSet<Key> = a.iter().map(|it| it?.key()).collect::<Outcome<_>>()?;
            for item in b.iter() {
                if !there.contains(&item?.key()?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(ListKind::Map(fields)) => {
            let mut there = HashMap::new();
            for item in a.iter() {
                let item = item?;
                there.insert(item_key(&item, fields)?, item);
            }
            for item in b.iter() {
                let item = item?;
                match there.get(&item_key(&item, fields)?) {
                    Some(mine) if equal(mine, &item)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
    }
}

fn equal_maps<'a>(a: &Map<'a>, b: &Map<'a>) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (Map::Object(mine, fields), Map::Object(theirs, _)) = (a, b) {
        // fields outside the schema count if both have them
        let unknown = mine.iter().filter(|(key, _)| fields.0.field(key).is_none());
        for (key, value) in unknown {
            if theirs.get(key).is_some_and(|it| it != value) {
                return Ok(false);
            }
        }
    }
    let declared = a.is_declared();
    for key in a.keys() {
        let (mine, theirs) = (a.find(&key)?, b.find(&key)?);
        let (Some(mine), Some(theirs)) = (mine, theirs) else { return Ok(false) };
        match equal(&mine, &theirs) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(fault) if declared => return Err(fault),
            Err(_) => {}
        }
    }
    Ok(true)
}

/// Whether a list or map has an item or key.
pub(crate) fn contains<'a>(value: &CelValue<'a>, within: &CelValue<'a>) -> Outcome<bool> {
    match within {
        CelValue::Map(map) => Ok(map.find(value)?.is_some()),
        CelValue::List(list) => {
            let declared = list.is_declared();
            let mut fault = None;
            for item in list.iter() {
                let found = match (item, declared) {
                    (Ok(item), true) => equal(&item, value),
                    (Ok(item), false) => Ok(equal(value, &item).unwrap_or(false)),
                    (Err(fault), _) => Err(fault),
                };
                match found {
                    Ok(true) => return Ok(true),
                    Ok(false) => {}
                    Err(why) => fault = fault.or(Some(why)),
                }
            }
            fault.map_or(Ok(false), Err)
        }
        _ => Err(no_such_overload()),
    }
}
