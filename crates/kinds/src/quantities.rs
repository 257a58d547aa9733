//! Resource lists: the allowed names, the valid amounts, and rounding.
//!
//! A resource list is a map of names to quantities in canonical text.

use crate::check::{self, Problems};
use crate::read;
pub(crate) use apimachinery::resource_list::{HUGE_PAGES, is_native, parse};
use schema::problem::{Problem, quoted};
use schema::quantity::{self, Quantity};
use schema::table::Format;
use schema::{Map, Path, Value};

const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const OTHER: &[&str] = &[
    "storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// A quantity as messages show it where they show it whole.
pub(crate) fn format_value(value: &Value) -> String {
    let quantity = parse(value);
    let (number, scale) = match quantity.as_whole() {
        Some(number) => (number, 0),
        None => (quantity.milli(), -3),
    };
    let family = match quantity.family() {
        quantity::Family::Binary => "BinarySI",
        quantity::Family::Decimal => "DecimalSI",
        quantity::Family::Exponent => "DecimalExponent",
    };
    format!(
        "resource.Quantity{{i:resource.int64Amount{{value:{number}, scale:{scale}}}, \
         d:resource.infDecAmount{{Dec:(*inf.Dec)(nil)}}, s:{}, Format:{family:?}}}",
        quoted(read::text(value))
    )
}

/// Resources with their amounts, shown in the same way.
pub(crate) fn format_list(resources: Option<&Value>) -> String {
    match resources.and_then(Value::as_map) {
        None => "core.ResourceList(nil)".to_owned(),
        Some(resources) => {
            let formatted: Vec<_> = resources
                .iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), format_value(value)))
                .collect();
            format!("core.ResourceList{{{}}}", formatted.join(", "))
        }
    }
}

/// Quantities in lists of resources have no more than three digits after the point.
pub(crate) fn round(resources: Option<&mut Value>) {
    let Some(Value::Map(resources)) = resources else { return };
    for (_, value) in resources.iter_mut() {
        if let Some(Ok(rounded)) = value.as_str().map(quantity::canonical_milli)
            && value.as_str() != Some(&rounded)
        {
            *value = rounded.into();
        }
    }
}

/// Whether an amount is of something that only some nodes have, such as a device.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && check::is(Format::QualifiedName, &format!("requests.{name}"))
}

pub(crate) fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

fn is_standard(name: &str) -> bool {
    [CONTAINER, COUNTED, OTHER].iter().any(|names| names.contains(&name))
        || name.starts_with(HUGE_PAGES)
        || name.starts_with("requests.hugepages-")
}

/// A resource whose amount in a namespace can be bounded.
pub(crate) fn is_quota_resource(name: &str) -> bool {
    name != "storage" && is_standard(name)
}

/// A resource of any sort: a standard one, or one with a domain.
pub(crate) fn resource_name(name: &str, path: &Path<'_>, out: &mut Problems) {
    let before = out.len();
    check::qualified_name(name, path, out);
    if out.len() == before && !name.contains('/') && !is_standard(name) {
        out.push(Problem::invalid_text(path, name, "must be a standard resource type or fully qualified"));
    }
}

/// A resource that a container may ask for.
pub(crate) fn container_resource(name: &str, path: &Path<'_>, out: &mut Problems) {
    resource_name(name, path, out);
    if !name.contains('/') {
        if !CONTAINER.contains(&name) && !name.starts_with(HUGE_PAGES) {
            out.push(Problem::invalid_text(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        out.push(Problem::invalid_text(path, name, "doesn't follow extended resource name standard"));
    }
}

/// Amounts are not negative, and counted things come whole.
pub(crate) fn amount(name: &str, value: &Value, path: &Path<'_>, out: &mut Problems) {
    let quantity = parse(value);
    if quantity.sign() < 0 {
        out.push(Problem::invalid(path, value, "must be greater than or equal to 0"));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !quantity.is_whole() {
        out.push(check::invalid_formatted(path, &format_value(value), "must be an integer"));
    }
}

/// Huge pages come in multiples of their size.
fn huge_pages(name: &str, value: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return };
    let size = size.parse::<Quantity>().map_or(0, |size| if size.is_whole() { size.whole() } else { 0 });
    if !parse(value).is_multiple_of(size) {
        let why = format!("{} is not positive integer multiple of {name}", read::text(value));
        out.push(Problem::invalid(path, value, &why));
    }
}

/// Checks the requests and limits of a container.
pub(crate) fn requirements(limits: &Map, requests: &Map, path: &Path<'_>, out: &mut Problems) {
    let (limits_path, requests_path) = (path.field("limits"), path.field("requests"));
    let (mut computes, mut huge) = (false, false);
    for (name, value) in limits.iter() {
        let path = limits_path.key(name);
        container_resource(name, &path, out);
        amount(name, value, &path, out);
        huge_pages(name, value, &path, out);
        computes |= matches!(name, "cpu" | "memory");
        huge |= name.starts_with(HUGE_PAGES);
    }
    for (name, value) in requests.iter() {
        let path = requests_path.key(name);
        container_resource(name, &path, out);
        amount(name, value, &path, out);
        match limits.get(name).map(parse) {
            Some(limit) if limit != parse(value) && !overcommit_allowed(name) => {
                out.push(Problem::invalid(&requests_path, value, &format!("must be equal to {name} limit")));
            }
            Some(limit) if parse(value) > limit => {
                out.push(Problem::invalid(
                    &requests_path,
                    value,
                    &format!("must be less than or equal to {name} limit"),
                ));
            }
            None if !overcommit_allowed(name) => {
                out.push(Problem::required(
                    &limits_path,
                    "Limit must be set for non overcommitable resources",
                ));
            }
            _ => {}
        }
        huge_pages(name, value, &path, out);
        computes |= matches!(name, "cpu" | "memory");
        huge |= name.starts_with(HUGE_PAGES);
    }
    if huge && !computes {
        out.push(Problem::forbidden(path, "HugePages require cpu or memory"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn check(limits: &str, requests: &str, expected: &[&str]) {
        let (limits, requests) = (json(limits), json(requests));
        let mut out = Problems::new();
        requirements(read::map(&limits, &[]), read::map(&requests, &[]), &Path::ROOT.field("r"), &mut out);
        assert_eq!(problems(&out), expected);
    }

    #[test]
    fn requests_stay_below_limits() {
        check(r#"{"cpu":"1"}"#, r#"{"cpu":"500m","memory":"1Gi"}"#, &[]);
        check(
            r#"{"cpu":"1"}"#,
            r#"{"cpu":"1001m"}"#,
            &[r#"r.requests: Invalid value: "1001m": must be less than or equal to cpu limit"#],
        );
        check(
            r#"{"a.b/c":"2"}"#,
            r#"{"a.b/c":"1"}"#,
            &[r#"r.requests: Invalid value: "1": must be equal to a.b/c limit"#],
        );
        check(
            "{}",
            r#"{"a.b/c":"1"}"#,
            &["r.limits: Required value: Limit must be set for non overcommitable resources"],
        );
    }

    #[test]
    fn names_and_amounts_are_checked() {
        check(
            r#"{"bogus":"-1"}"#,
            "{}",
            &[
                r#"r.limits[bogus]: Invalid value: "bogus": must be a standard resource type or fully qualified"#,
                r#"r.limits[bogus]: Invalid value: "bogus": must be a standard resource for containers"#,
                r#"r.limits[bogus]: Invalid value: "-1": must be greater than or equal to 0"#,
            ],
        );
        check(r#"{"hugepages-2Mi":"4Mi","cpu":"1"}"#, "{}", &[]);
        // 5^21 pages
        check(r#"{"hugepages-2Mi":"1000E","cpu":"1"}"#, "{}", &[]);
        check(r#"{"hugepages-2Mi":"4Mi"}"#, "{}", &["r: Forbidden: HugePages require cpu or memory"]);
        check(
            r#"{"hugepages-2Mi":"3Mi","cpu":"1"}"#,
            "{}",
            &[
                r#"r.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
            ],
        );
    }

    #[test]
    fn more_than_milli_is_rounded_up() {
        let mut list = json(r#"{"cpu":"100u","memory":"1Gi"}"#);
        round(Some(&mut list));
        assert_eq!(list, json(r#"{"cpu":"1m","memory":"1Gi"}"#));
    }
}
