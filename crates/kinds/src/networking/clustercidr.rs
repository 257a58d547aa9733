//! ClusterCIDRs: ranges for the pod addresses of nodes. They are immutable.

use crate::check::{self, Problems};
use crate::{metadata, node_selection as scheduling, read};
use rest::hooks::{Context, CreateHooks, Hooks, ReadHooks, UpdateHooks};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::net::IpAddr;
use std::time::Duration;

const LEAST_HOST_BITS: i64 = 4;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    if let Some(selector) = object.at(&["spec", "nodeSelector"]).filter(|it| !it.is_null()) {
        scheduling::node_selector(selector, &spec.field("nodeSelector"), &mut out);
    }
    let ranges = ["ipv4", "ipv6"].map(|field| (field, object.text(&["spec", field])));
    if ranges.iter().all(|(_, text)| text.is_empty()) {
        out.push(Problem::required(&spec, "one or both of `ipv4` and `ipv6` must be specified"));
        return out;
    }
    let bits = read::int(object, &["spec", "perNodeHostBits"]);
    for (field, text) in ranges.into_iter().filter(|(_, text)| !text.is_empty()) {
        range(field, text, bits, &spec, &mut out);
    }
    out
}

fn range(field: &str, text: &str, bits: i64, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field(field);
    let Some((address, prefix)) = format::parse_cidr(text) else {
        out.push(Problem::invalid_text(&path, text, &format!("must be a valid CIDR: {text}")));
        return;
    };
    let (fits, name, length): (fn(&IpAddr) -> bool, _, _) = match field {
        "ipv4" => (IpAddr::is_ipv4, "IPv4", 32),
        _ => (IpAddr::is_ipv6, "IPv6", 128),
    };
    if !fits(&address) {
        out.push(Problem::invalid_text(&path, text, &format!("must be a valid {name} CIDR")));
    }
    let path = spec.field("perNodeHostBits");
    let most = length - i64::from(prefix);
    if bits < LEAST_HOST_BITS {
        let why = format!("must be greater than or equal to {LEAST_HOST_BITS}");
        out.push(check::invalid_int(&path, bits, &why));
    }
    if bits > most {
        out.push(check::invalid_int(&path, bits, &format!("must be less than or equal to {most}")));
    }
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = validate(new);
    let spec = Path::ROOT.field("spec");
    for field in ["nodeSelector", "perNodeHostBits", "ipv4", "ipv6"] {
        let (is, was) = (new.at(&["spec", field]), old.at(&["spec", field]));
        if !read::same(is, was) {
            let value = is.unwrap_or(&Value::Null);
            out.push(Problem::invalid(&spec.field(field), value, "field is immutable"));
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let terms = object.items(&["spec", "nodeSelector", "nodeSelectorTerms"]);
    let formatted: Vec<_> = terms.iter().map(format_term).filter(|it| !it.is_empty()).collect();
    vec![
        metadata::name(object),
        read::int(object, &["spec", "perNodeHostBits"]).to_string().into(),
        metadata::or(object.text(&["spec", "ipv4"]), "<none>"),
        metadata::or(object.text(&["spec", "ipv6"]), "<none>"),
        metadata::age(object, now),
        metadata::or(&formatted.join(","), "<none>"),
    ]
}

fn format_term(term: &Value) -> String {
    let parts = term.items(&["matchExpressions"]).iter().map(|one| {
        let values: Vec<_> = one.items(&["values"]).iter().map(read::text).collect();
        let (key, values) = (one.text(&["key"]), values.join(","));
        match one.text(&["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            "Gt" => format!("{key}>{values}"),
            _ => format!("{key}<{values}"),
        }
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn ranges_leave_room_for_nodes() {
        let check = |spec: &str, expected: &[&str]| {
            let object = json(&format!(r#"{{"spec":{spec}}}"#));
            assert_eq!(problems(&validate(&object)), expected);
        };
        check(r#"{"perNodeHostBits":8,"ipv4":"10.0.0.0/16","ipv6":"fd00::/112"}"#, &[]);
        check(
            r#"{"perNodeHostBits":17,"ipv4":"10.0.0.0/16"}"#,
            &["spec.perNodeHostBits: Invalid value: 17: must be less than or equal to 16"],
        );
        check(
            r#"{"perNodeHostBits":8}"#,
            &["spec: Required value: one or both of `ipv4` and `ipv6` must be specified"],
        );
        check(
            r#"{"perNodeHostBits":8,"ipv4":"fd00::/112"}"#,
            &[
                r#"spec.ipv4: Invalid value: "fd00::/112": must be a valid IPv4 CIDR"#,
                "spec.perNodeHostBits: Invalid value: 8: must be less than or equal to -80",
            ],
        );
    }

    #[test]
    fn the_spec_is_immutable() {
        let old = json(r#"{"spec":{"perNodeHostBits":8,"ipv4":"10.0.0.0/16"}}"#);
        let new = json(r#"{"spec":{"perNodeHostBits":9,"ipv4":"10.0.0.0/16"}}"#);
        let expected = "spec.perNodeHostBits: Invalid value: 9: field is immutable";
        assert_eq!(problems(&update(&new, &old, &context())), [expected]);
    }
}
