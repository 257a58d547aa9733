//! PriorityLevelConfigurations: shares of the server, and queues for waiting requests.

use super::status;
use crate::check::{self, Problems};
use crate::{conditions, metadata, read};
use rest::hooks::{
    CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, SubresourceHooks, Subresources,
    UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::time::Duration;

const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";
const MOST_QUEUES: i64 = 10_000_000;
/// A hand of queues is dealt from a hash of this many bits.
const MOST_ENTROPY_BITS: f64 = 60.0;

pub(super) fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| validate(object)), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State]),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[status::status(|object, _, _| validate(object))];

/// The two versions have their own names for the shares.
fn shares_field(object: &Value) -> &'static str {
    if object.text(&["apiVersion"]).ends_with("/v1beta2") {
        "assuredConcurrencyShares"
    } else {
        "nominalConcurrencyShares"
    }
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    spec(object, &Path::ROOT.field("spec"), &mut out);
    let path = Path::ROOT.field("status");
    conditions::distinct(object.items(&["status", "conditions"]), &path.field("conditions"), &mut out);
    out
}

fn spec(object: &Value, path: &Path<'_>, out: &mut Problems) {
    let (name, kind) = (object.text(&["metadata", "name"]), object.text(&["spec", "type"]));
    let limited_given = object.at(&["spec", "limited"]).filter(|it| !it.is_null());
    if (name == EXEMPT) != (kind == "Exempt") {
        const WHY: &str = "type must be 'Exempt' if and only if name is 'exempt'";
        out.push(Problem::invalid_text(&path.field("type"), kind, WHY));
    }
    match (kind, limited_given) {
        ("Exempt", Some(_)) => {
            out.push(Problem::forbidden(&path.field("limited"), "must be nil if the type is not Limited"));
        }
        ("Exempt", None) => {}
        ("Limited", None) => {
            out.push(Problem::required(&path.field("limited"), "must not be empty when type is Limited"));
        }
        ("Limited", Some(given)) => limited(given, shares_field(object), &path.field("limited"), out),
        _ => out.push(check::unsupported(&path.field("type"), kind, &["Exempt", "Limited"])),
    }
    if !is_as_fixed(object, name) {
        let there = if limited_given.is_some() { "0x0" } else { "nil" };
        let formatted = format!(
            "flowcontrol.PriorityLevelConfigurationSpec{{Type:{}, \
             Limited:(*flowcontrol.LimitedPriorityLevelConfiguration)({there})}}",
            quoted(kind)
        );
        out.push(check::invalid_formatted(path, &formatted, &status::fixed(name)));
    }
}

/// The mandatory levels are immutable.
fn is_as_fixed(object: &Value, name: &str) -> bool {
    let limited = object.at(&["spec", "limited"]).filter(|it| !it.is_null());
    match name {
        EXEMPT => object.text(&["spec", "type"]) == "Exempt" && limited.is_none(),
        CATCH_ALL => limited.is_some_and(|limited| {
            object.text(&["spec", "type"]) == "Limited"
                && read::int(limited, &[shares_field(object)]) == 5
                && read::opt_int(limited, &["lendablePercent"]) == Some(0)
                && !read::has(limited, &["borrowingLimitPercent"])
                && limited.text(&["limitResponse", "type"]) == "Reject"
                && !read::has(limited, &["limitResponse", "queuing"])
        }),
        _ => true,
    }
}

fn limited(limited: &Value, shares: &str, path: &Path<'_>, out: &mut Problems) {
    positive(limited, shares, path, out);
    response(limited, &path.field("limitResponse"), out);
    if let Some(percent) = read::opt_int(limited, &["lendablePercent"]) {
        check::between(percent, 0, 100, &path.field("lendablePercent"), out);
    }
    if let Some(percent) = read::opt_int(limited, &["borrowingLimitPercent"]).filter(|percent| *percent < 0) {
        let path = path.field("borrowingLimitPercent");
        out.push(check::invalid_int(&path, percent, "if specified, must be a non-negative integer"));
    }
}

fn positive(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    let number = read::int(value, &[field]);
    if number <= 0 {
        out.push(check::invalid_int(&path.field(field), number, "must be positive"));
    }
}

fn response(limited: &Value, path: &Path<'_>, out: &mut Problems) {
    let given = limited.at(&["limitResponse", "queuing"]).filter(|it| !it.is_null());
    match (limited.text(&["limitResponse", "type"]), given) {
        ("Reject", Some(_)) => {
            const WHY: &str = "must be nil if limited.limitResponse.type is not Limited";
            out.push(Problem::forbidden(&path.field("queuing"), WHY));
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            const WHY: &str = "must not be empty if limited.limitResponse.type is Limited";
            out.push(Problem::required(&path.field("queuing"), WHY));
        }
        ("Queue", Some(given)) => queuing(given, &path.field("queuing"), out),
        (kind, _) => out.push(check::unsupported(&path.field("type"), kind, &["Queue", "Reject"])),
    }
}

fn queuing(queuing: &Value, path: &Path<'_>, out: &mut Problems) {
    positive(queuing, "queueLengthLimit", path, out);
    positive(queuing, "queues", path, out);
    let (queues, hand) = (read::int(queuing, &["queues"]), read::int(queuing, &["handSize"]));
    if queues > MOST_QUEUES {
        let why = format!("must not be greater than {MOST_QUEUES}");
        out.push(check::invalid_int(&path.field("queues"), queues, &why));
    }
    positive(queuing, "handSize", path, out);
    let path = path.field("handSize");
    if hand > queues && hand > 0 {
        out.push(check::invalid_int(&path, hand, &format!("should not be greater than queues ({queues})")));
    } else if entropy_bits(queues, hand) > MOST_ENTROPY_BITS {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than \
             {MOST_ENTROPY_BITS}"
        );
        out.push(check::invalid_int(&path, hand, &why));
    }
}

/// The number of bits to deal a hand.
fn entropy_bits(deck: i64, hand: i64) -> f64 {
    if deck <= 0 { 0.0 } else { ((deck as f64).log2() * hand as f64).ceil() }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    const NONE: &str = "<none>";
    let limited = object.at(&["spec", "limited"]).filter(|it| !it.is_null());
    let shares = limited.map(|it| read::int(it, &[shares_field(object)]));
    let queuing = limited.and_then(|it| it.at(&["limitResponse", "queuing"])).filter(|it| !it.is_null());
    let queue = |field: &str| queuing.map(|it| read::int(it, &[field]));
    let number = |it: Option<i64>| it.map_or(NONE.into(), Value::Int);
    vec![
        metadata::name(object),
        object.text(&["spec", "type"]).into(),
        number(shares),
        number(queue("queues")),
        number(queue("handSize")),
        number(queue("queueLengthLimit")),
        metadata::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn found(object: &str) -> Vec<String> {
        problems(&validate(&json(object)))
    }

    #[test]
    fn hands_fit_the_deck() {
        let check = |queues: i64, hand: i64, fine: bool| {
            let object = format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{"type":"Limited","limited":{{"nominalConcurrencyShares":1,
                "limitResponse":{{"type":"Queue","queuing":{{"queues":{queues},"handSize":{hand},"queueLengthLimit":1}}}}}}}}}}"#
            );
            assert_eq!(found(&object).is_empty(), fine, "{queues} {hand}");
        };
        check(64, 10, true);
        check(64, 11, false);
        check(1000, 6, true);
        check(5, 6, false);
        check(10_000_000, 2, true);
        check(10_000_000, 3, false);
    }

    #[test]
    fn mandatory_levels_do_not_change() {
        assert!(found(r#"{"metadata":{"name":"exempt"},"spec":{"type":"Exempt"}}"#).is_empty());
        let limited = r#"{"metadata":{"name":"catch-all"},"spec":{"type":"Limited","limited":{
            "nominalConcurrencyShares":5,"lendablePercent":0,"limitResponse":{"type":"Reject"}}}}"#;
        assert!(found(limited).is_empty());
        assert_eq!(found(&limited.replace(":5", ":6")).len(), 1);
        assert_eq!(found(&limited.replace("catch-all", "exempt")).len(), 2);
    }
}
