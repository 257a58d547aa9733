//! Limit ranges applied to new pods and to claims: first defaults, then limits after validation.
//!
//! The functions are pure: callers look the ranges up, and an error is the reason alone.

use crate::core::limitrange::MOST_MILLI;
use crate::{quantities, read};
use names::Names;
use schema::quantity::Quantity;
use schema::{Map, Value};
use std::collections::{BTreeMap, HashSet};

/// Sets default requests and limits of containers, and names them in an annotation.
pub fn fill_pod(pod: &mut Value, ranges: &[Value], names: &Names) {
    for range in ranges {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for item in range.items(&["spec", "limits"]).iter().filter(|it| it.text(&["type"]) == "Container") {
            for (list, into) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
                for (name, value) in read::map(item, &[list]).iter() {
                    into.insert(name.to_owned(), value.clone());
                }
            }
        }
        let mut messages = Vec::new();
        for (list, called) in [("containers", "container"), ("initContainers", "init container")] {
            read::each_mut(pod, &["spec", list], |one| {
                let name = one.text(&["name"]).to_owned();
                for (list, defaults, what) in
                    [("requests", &requests, "request"), ("limits", &limits, "limit")]
                {
                    let set = fill(one, list, defaults);
                    if !set.is_empty() {
                        messages.push(format!("{} {what} for {called} {name}", set.join(", ")));
                    }
                }
            });
        }
        if !messages.is_empty() {
            let metadata = pod.make_map().entry("metadata").make_map();
            let text = format!("LimitRanger plugin set: {}", messages.join("; "));
            metadata.entry("annotations").make_map().insert(names.well_known("limit-ranger"), text);
        }
    }
}

/// Adds missing resources to a list, and names them.
fn fill<'d>(container: &mut Value, list: &'static str, defaults: &'d Map) -> Vec<&'d str> {
    let missing: Vec<_> = defaults
        .iter()
        .filter(|(name, _)| !read::map(container, &["resources", list]).contains(name))
        .collect();
    for (name, value) in &missing {
        let resources = container.make_map().entry("resources").make_map();
        resources.entry(list).make_map().insert((*name).to_owned(), (*value).clone());
    }
    missing.into_iter().map(|(name, _)| name).collect()
}

/// Refuses a new pod that is out of bounds.
pub fn check_pod(pod: &Value, ranges: &[Value]) -> Result<(), String> {
    for range in ranges {
        let mut out = Vec::new();
        for item in range.items(&["spec", "limits"]) {
            match item.text(&["type"]) {
                "Container" => {
                    for list in ["containers", "initContainers"] {
                        for one in pod.items(&["spec", list]) {
                            let of = |list: &str| read::map(one, &["resources", list]);
                            bounds(item, of("requests"), of("limits"), &mut out);
                        }
                    }
                }
                "Pod" => bounds(item, &total(pod, "requests"), &total(pod, "limits"), &mut out),
                _ => {}
            }
        }
        refuse(out)?;
    }
    Ok(())
}

/// Refuses a claim that is too small or too large.
pub fn check_claim(claim: &Value, ranges: &[Value]) -> Result<(), String> {
    for range in ranges {
        let mut out = Vec::new();
        let items = range.items(&["spec", "limits"]);
        for item in items.iter().filter(|it| it.text(&["type"]) == "PersistentVolumeClaim") {
            let requests = read::map(claim, &["spec", "resources", "requests"]);
            for (name, value) in read::map(item, &["min"]).iter() {
                least("PersistentVolumeClaim", name, value, requests, &Map::new(), &mut out);
            }
            // the limit of a claim is its request
            for (name, value) in read::map(item, &["max"]).iter() {
                let request = requests.get(name).map(read::text);
                let fits = request.is_some() && amount(name, requests) <= quantities::parse(value);
                if !fits {
                    let start = usage("maximum", "PersistentVolumeClaim", name, value);
                    out.push(match request {
                        Some(request) => format!("{start}, but request is {request}"),
                        None => format!("{start}.  No request is specified"),
                    });
                }
            }
        }
        refuse(out)?;
    }
    Ok(())
}

fn refuse(mut problems: Vec<String>) -> Result<(), String> {
    let mut seen = HashSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match &problems[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// The sum over the containers of a pod, of resources that all of them declare; those that run before the others
/// count only where they take more.
fn total(pod: &Value, list: &str) -> Map {
    // sums are plain numbers, whatever suffixes the parts have
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for container in pod.items(&["spec", "containers"]) {
        for (name, value) in read::map(container, &["resources", list]).iter() {
            let value = quantities::parse(value);
            let number = if name == "cpu" { value.milli() } else { value.whole() };
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    let containers = pod.items(&["spec", "containers"]);
    let all_say = |name: &str| containers.iter().all(|it| read::map(it, &["resources", list]).contains(name));
    let mut sum = Map::new();
    for (name, number) in sums.into_iter().filter(|(name, _)| all_say(name)) {
        let quantity = if name == "cpu" { Quantity::from_milli(number) } else { Quantity::new(number) };
        sum.insert(name.to_owned(), quantity.to_string());
    }
    for container in pod.items(&["spec", "initContainers"]) {
        for (name, value) in read::map(container, &["resources", list]).iter() {
            let more = sum.get(name).is_none_or(|sum| quantities::parse(value) > quantities::parse(sum));
            if more {
                sum.insert(name.to_owned(), value.clone());
            }
        }
    }
    sum
}

fn bounds(item: &Value, requests: &Map, limits: &Map, out: &mut Vec<String>) {
    let kind = item.text(&["type"]);
    for (name, value) in read::map(item, &["min"]).iter() {
        least(kind, name, value, requests, limits, out);
    }
    for (name, value) in read::map(item, &["max"]).iter() {
        most(kind, name, value, requests, limits, out);
    }
    for (name, value) in read::map(item, &["maxLimitRequestRatio"]).iter() {
        ratio(kind, name, value, requests, limits, out);
    }
}

fn amount(name: &str, list: &Map) -> Quantity {
    quantities::parse(list.get(name).unwrap_or(&Value::Null))
}

fn usage(which: &str, kind: &str, name: &str, bound: &Value) -> String {
    format!("{which} {name} usage per {kind} is {}", read::text(bound))
}

fn least(kind: &str, name: &str, bound: &Value, requests: &Map, limits: &Map, out: &mut Vec<String>) {
    let start = usage("minimum", kind, name, bound);
    let bound = quantities::parse(bound);
    match (requests.get(name), limits.get(name)) {
        (None, _) => out.push(format!("{start}.  No request is specified")),
        (Some(request), _) if quantities::parse(request) < bound => {
            out.push(format!("{start}, but request is {}", read::text(request)));
        }
        (_, Some(limit)) if quantities::parse(limit) < bound => {
            out.push(format!("{start}, but limit is {}", read::text(limit)));
        }
        _ => {}
    }
}

fn most(kind: &str, name: &str, bound: &Value, requests: &Map, limits: &Map, out: &mut Vec<String>) {
    let start = usage("maximum", kind, name, bound);
    let bound = quantities::parse(bound);
    match (requests.get(name), limits.get(name)) {
        (_, None) => out.push(format!("{start}.  No limit is specified")),
        (_, Some(limit)) if quantities::parse(limit) > bound => {
            out.push(format!("{start}, but limit is {}", read::text(limit)));
        }
        (Some(request), _) if quantities::parse(request) > bound => {
            out.push(format!("{start}, but request is {}", read::text(request)));
        }
        _ => {}
    }
}

fn ratio(kind: &str, name: &str, bound: &Value, requests: &Map, limits: &Map, out: &mut Vec<String>) {
    let start = format!("{name} max limit to request ratio per {kind} is {}", read::text(bound));
    let bound = quantities::parse(bound);
    let (request, limit) = (amount(name, requests), amount(name, limits));
    let small = [&request, &limit, &bound].iter().all(|it| it.whole() <= MOST_MILLI);
    let number = |it: &Quantity| if small { it.milli() } else { it.whole() };
    if number(&request) == 0 {
        out.push(format!("{start}, but no request is specified or request is 0"));
    } else if number(&limit) == 0 {
        out.push(format!("{start}, but no limit is specified or limit is 0"));
    } else {
        let observed = number(&limit) as f64 / number(&request) as f64;
        let allowed = match bound.whole() <= MOST_MILLI {
            true => bound.milli() as f64 / 1000.0,
            false => bound.whole() as f64,
        };
        if observed > allowed {
            out.push(format!("{start}, but provided ratio is {observed:.6}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    const RANGE: &str = r#"{"spec":{"limits":[
        {"type":"Container","default":{"cpu":"500m","memory":"64Mi"},"defaultRequest":{"cpu":"100m"},
            "max":{"cpu":"1"},"min":{"cpu":"50m"},"maxLimitRequestRatio":{"cpu":"5"}},
        {"type":"Pod","max":{"cpu":"2"}},
        {"type":"PersistentVolumeClaim","min":{"storage":"1Gi"},"max":{"storage":"2Gi"}}]}}"#;

    #[test]
    fn containers_get_default_requests_and_limits() {
        let mut pod =
            json(r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":"1Gi"}}}]}}"#);
        fill_pod(&mut pod, &[json(RANGE)], &Names::kubernetes());
        let resources = json(r#"{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{"cpu":"100m"}}"#);
        assert_eq!(pod.items(&["spec", "containers"])[0].at(&["resources"]), Some(&resources));
        assert_eq!(
            pod.text(&["metadata", "annotations", "kubernetes.io/limit-ranger"]),
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
    }

    #[test]
    fn bounds_are_kept() {
        let check = |containers: &str, expected: &str| {
            let pod = json(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":{containers}}}}}"#));
            assert_eq!(check_pod(&pod, &[json(RANGE)]).err().unwrap_or_default(), expected, "{containers}");
        };
        check(r#"[{"resources":{"limits":{"cpu":"500m"},"requests":{"cpu":"500m"}}}]"#, "");
        check(
            r#"[{"resources":{"limits":{"cpu":"500m"},"requests":{"cpu":"10m"}}}]"#,
            "[minimum cpu usage per Container is 50m, but request is 10m, \
             cpu max limit to request ratio per Container is 5, but provided ratio is 50.000000]",
        );
        let one = r#"{"resources":{"limits":{"cpu":"900m"},"requests":{"cpu":"900m"}}}"#;
        check(&format!("[{one},{one},{one}]"), "maximum cpu usage per Pod is 2, but limit is 2700m");
    }

    #[test]
    fn claims_are_neither_too_small_nor_too_large() {
        for (size, expected) in [
            ("1Gi", None),
            ("500Mi", Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi")),
            ("3Gi", Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")),
        ] {
            let claim = json(&format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#));
            assert_eq!(check_claim(&claim, &[json(RANGE)]).err().as_deref(), expected);
        }
    }
}
