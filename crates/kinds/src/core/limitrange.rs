//! LimitRanges: limits and defaults for the objects of a namespace. `limits` applies them.

use crate::check::{self, Problems};
use crate::{quantities, read};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, RepeatedMetadataErrors, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::quantity::Quantity;
use schema::{Map, Path, Value};
use std::collections::{BTreeSet, HashSet};

const LISTS: &[&str] = &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
/// Above this, thousandths no longer fit.
pub(crate) const MOST_MILLI: i64 = i64::MAX / 1000;

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks {
            default: Some(|object, _| read::each_mut(object, &["spec", "limits"], default)),
            ..DecodeHooks::default()
        },
        create: CreateHooks {
            validate: Some(|object, _| validate(object)),
            generates_name: true,
            ..CreateHooks::default()
        },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State]),
            ..WriteHooks::default()
        },
        ..Hooks::default()
    }
}

/// Defaults: limits are the maximum, requests the limits or the minimum.
fn default(item: &mut Value) {
    for list in LISTS {
        quantities::round(item.at_mut(&[list]));
    }
    if item.text(&["type"]) != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        for (name, value) in read::map(item, &[from]).clone() {
            let given = item.make_map().entry(to).make_map();
            if !given.contains(&name) {
                given.insert(name, value);
            }
        }
        // no list and an empty one are the same
        if read::map(item, &[to]).is_empty() {
            item.unset(&[to]);
        }
    }
}

fn update(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    validate(new)
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let path = path.field("limits");
    let mut types = HashSet::new();
    for (at, item) in object.items(&["spec", "limits"]).iter().enumerate() {
        let path = path.index(at);
        let kind = item.text(&["type"]);
        let before = out.len();
        check::qualified_name(kind, &path.field("type"), &mut out);
        let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind);
        if out.len() == before && !kind.contains('/') && !standard {
            const WHY: &str = "must be a standard limit type or fully qualified";
            out.push(Problem::invalid_text(&path.field("type"), kind, WHY));
        }
        if !types.insert(kind) {
            out.push(check::duplicate_text(&path.field("type"), kind));
        }
        names(item, kind, &path, &mut out);
        amounts(item, &path, &mut out);
    }
    out
}

/// Checks the names of resources.
fn names(item: &Value, kind: &str, path: &Path<'_>, out: &mut Problems) {
    for list in LISTS {
        if kind == "Pod" && list.starts_with("default") {
            if !read::map(item, &[list]).is_empty() {
                out.push(Problem::forbidden(&path.field(list), "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        if *list == "maxLimitRequestRatio" && kind == "PersistentVolumeClaim" {
            let has = |list: &str| read::map(item, &[list]).contains("storage");
            if !has("min") && !has("max") {
                const WHY: &str =
                    "either minimum or maximum storage value is required, but neither was provided";
                out.push(Problem::required(&path.field("limits"), WHY));
            }
        }
        let path = path.field(list);
        for name in read::map(item, &[list]).keys() {
            match kind {
                "Pod" | "Container" => quantities::container_resource(name, &path.key(name), out),
                _ => quantities::resource_name(name, &path.key(name), out),
            }
        }
    }
}

/// Checks the amounts of a resource against each other.
fn amounts(item: &Value, path: &Path<'_>, out: &mut Problems) {
    let none = Map::new();
    let of = |list: &&str| match item.text(&["type"]) {
        "Pod" if list.starts_with("default") => &none,
        _ => read::map(item, &[list]),
    };
    let lists: Vec<&Map> = LISTS.iter().map(of).collect();
    let keys: BTreeSet<&str> = lists.iter().flat_map(|list| list.keys()).collect();
    for key in keys {
        let [max, min, default, request, ratio] = [0, 1, 2, 3, 4].map(|list: usize| lists[list].get(key));
        let mut report = |list: &str, value: &Value, why: String| {
            let path = path.field(list);
            out.push(check::invalid_formatted(&path.key(key), &quantities::format_value(value), &why));
        };
        let text = |value: &'_ Value| read::text(value).to_owned();
        if let Some((min, max)) = above(min, max) {
            report("min", min, format!("min value {} is greater than max value {}", text(min), text(max)));
        }
        if let Some((min, request)) = above(min, request) {
            let why =
                format!("min value {} is greater than default request value {}", text(min), text(request));
            report("defaultRequest", request, why);
        }
        if let Some((request, max)) = above(request, max) {
            let why =
                format!("default request value {} is greater than max value {}", text(request), text(max));
            report("defaultRequest", request, why);
        }
        if let Some((request, default)) = above(request, default) {
            let (a, b) = (text(request), text(default));
            let why = format!("default request value {a} is greater than default limit value {b}");
            report("defaultRequest", request, why);
        }
        if let Some((min, default)) = above(min, default) {
            let why = format!("min value {} is greater than default value {}", text(min), text(default));
            report("default", min, why);
        }
        if let Some((default, max)) = above(default, max) {
            let why = format!("default value {} is greater than max value {}", text(default), text(max));
            report("default", max, why);
        }
        if let Some(ratio) = ratio.filter(|ratio| quantities::parse(ratio) < Quantity::new(1)) {
            report("maxLimitRequestRatio", ratio, format!("ratio {} is less than 1", text(ratio)));
        }
        if let (Some(ratio), Some(min), Some(max)) = (ratio, min, max) {
            let [wanted, least, most] = [ratio, min, max].map(quantities::parse);
            let small = [&wanted, &least, &most].iter().all(|it| it.whole() < MOST_MILLI);
            let (wanted, possible) = match small {
                true => (wanted.milli() as f64 / 1000.0, most.milli() as f64 / least.milli() as f64),
                false => (wanted.whole() as f64, most.whole() as f64 / least.whole() as f64),
            };
            if wanted > possible {
                let why = format!("ratio {} is greater than max/min = {possible:.6}", text(ratio));
                report("maxLimitRequestRatio", ratio, why);
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && !quantities::overcommit_allowed(key)
            && quantities::parse(default) != quantities::parse(request)
        {
            let (a, b) = (text(default), text(request));
            report(
                "defaultRequest",
                request,
                format!("default value {a} must equal to defaultRequest value {b} in {key}"),
            );
        }
    }
}

/// Both, where the first is more than the second.
fn above<'v>(a: Option<&'v Value>, b: Option<&'v Value>) -> Option<(&'v Value, &'v Value)> {
    let both = a.zip(b)?;
    (quantities::parse(both.0) > quantities::parse(both.1)).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn containers_get_the_most_by_default() {
        let mut item = json(
            r#"{"type":"Container","max":{"cpu":"2","memory":"1Gi"},"min":{"cpu":"1","a.b/c":"1"},"default":{"cpu":"1"}}"#,
        );
        default(&mut item);
        assert_eq!(item.at(&["default"]), Some(&json(r#"{"cpu":"1","memory":"1Gi"}"#)));
        assert_eq!(item.at(&["defaultRequest"]), Some(&json(r#"{"a.b/c":"1","cpu":"1","memory":"1Gi"}"#)));
        let mut item = json(r#"{"type":"Pod","max":{"cpu":"2"}}"#);
        default(&mut item);
        assert_eq!(item, json(r#"{"type":"Pod","max":{"cpu":"2"}}"#));
    }

    #[test]
    fn amounts_stand_in_order() {
        let check = |item: &str, expected: &[&str]| {
            let object = json(&format!(r#"{{"spec":{{"limits":[{item}]}}}}"#));
            let found: Vec<_> = validate(&object)
                .iter()
                .map(|it| format!("{}: {}", it.field, it.message.rsplit(": ").next().unwrap_or("")))
                .collect();
            assert_eq!(found, expected, "{item}");
        };
        check(
            r#"{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"100m"},"maxLimitRequestRatio":{"cpu":"20"}}"#,
            &[],
        );
        check(
            r#"{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"3"},"maxLimitRequestRatio":{"cpu":"500m"}}"#,
            &[
                "spec.limits[0].min[cpu]: min value 3 is greater than max value 2",
                "spec.limits[0].maxLimitRequestRatio[cpu]: ratio 500m is less than 1",
            ],
        );
        check(
            r#"{"type":"PersistentVolumeClaim","max":{"cpu":"1"}}"#,
            &[
                "spec.limits[0].limits: either minimum or maximum storage value is required, but neither was provided",
            ],
        );
        check(
            r#"{"type":"Pod","default":{"bogus":"1"}}"#,
            &["spec.limits[0].default: may not be specified when `type` is 'Pod'"],
        );
    }
}
