//! The document that rules are read from.
//!
//! ```yaml
//! apiVersion: simulation.pintle.io/v1alpha1
//! kind: SimulationFaults
//! seed: 7
//! rules:
//! - name: conflicts
//!   verbs: [update, patch]
//!   groups: [apps]
//!   resources: [deployments]
//!   rate: 0.2
//!   status: 409
//! ```

use super::rule::{CutPoint, Effect, Fault, Frequency, Pace, Rule, Selector, WatchEnd, WatchEnding};
use crate::admission::configuration::{ConfigErrors, Part};
use names::simulation::{API_VERSION, FAULTS};
use schema::Value;
use schema::yaml::{self, Limits};
use std::sync::Arc;

const FIELDS: &[&str] = &["apiVersion", "kind", "seed", "rules", "status"];
const RULE_FIELDS: &[&str] = &[
    "name",
    "verbs",
    "groups",
    "resources",
    "namespaces",
    "names",
    "users",
    "userAgents",
    "paths",
    "webhooks",
    "components",
    "skip",
    "rate",
    "every",
    "times",
    "delay",
    "status",
    "retryAfterSeconds",
    "cut",
    "watch",
];
const WATCH_FIELDS: &[&str] = &["afterEvents", "after", "end"];
const VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "connect",
    "head",
    "post",
    "put",
    "options",
    "*",
];
const STATUSES: &[u16] = &[409, 410, 429, 500, 503, 504];
/// The `Retry-After` of 429.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Rules with the values that they were read from.
#[derive(Debug)]
pub(super) struct Document {
    pub seed: Option<u64>,
    pub rules: Vec<Rule>,
    pub given: Value,
}

impl Default for Document {
    fn default() -> Self {
        let mut given = Value::map();
        given.set(&["rules"], Value::List(Vec::new()));
        Document { seed: None, rules: Vec::new(), given: with_kind(given) }
    }
}

fn with_kind(mut given: Value) -> Value {
    given.set(&["apiVersion"], API_VERSION);
    given.set(&["kind"], FAULTS);
    given
}

impl Document {
    /// Reads a document in YAML or JSON. `apiVersion` and `kind` may be left out.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<String>> {
        let parsed = yaml::parse(text, Limits::default()).map_err(|why| vec![why.cause().to_owned()])?;
        let mut errors = ConfigErrors::default();
        parsed.repeated.iter().for_each(|it| errors.add("", it));
        let mut given = if parsed.value.is_null() { Value::map() } else { parsed.value };
        given.unset(&["status"]);
        let root = Part::root(&given);
        root.only(FIELDS, &mut errors);
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", FAULTS)] {
            if root.text(field, &mut errors).is_some_and(|it| it != expected) {
                errors.add(field, format!("must be {expected}"));
            }
        }
        let seed = root.count("seed", &mut errors);
        let rules = root.parts("rules", RULE_FIELDS, &mut errors);
        let rules: Vec<_> = rules.iter().map(|it| read_rule(it, &mut errors)).collect();
        for (at, rule) in rules.iter().enumerate() {
            let name = &rule.fault.rule;
            if rules[..at].iter().any(|earlier| earlier.fault.rule == *name) {
                errors.add(&format!("rules[{at}].name"), format!("{name:?} is the name of another rule"));
            }
        }
        errors.into_list()?;
        Ok(Document { seed, rules, given: with_kind(given) })
    }
}

fn read_rule(part: &Part<'_>, errors: &mut ConfigErrors) -> Rule {
    let selector = read_selector(part, errors);
    let frequency = read_frequency(part, errors);
    let effects: Vec<_> =
        ["status", "cut", "watch"].into_iter().filter(|it| part.any(it).is_some()).collect();
    if effects.len() > 1 {
        errors.add(&part.path(), format!("{} are faults of different rules", effects.join(" and ")));
    }
    let delay = part.duration("delay", errors);
    if effects.is_empty() && part.any("delay").is_none() {
        errors.add(&part.path(), "needs a fault: delay, status, cut or watch");
    }
    let effect = read_effect(part, errors);
    check_fit(part, &selector, &effect, errors);
    let rule = part.text("name", errors).map_or_else(|| part.path(), str::to_owned);
    Rule { selector, frequency, fault: Arc::new(Fault { rule, delay, effect }) }
}

fn read_selector(part: &Part<'_>, errors: &mut ConfigErrors) -> Selector {
    let mut texts = |field| part.texts(field, errors).into_iter().map(str::to_owned).collect();
    let selector = Selector {
        verbs: texts("verbs"),
        groups: texts("groups"),
        resources: texts("resources"),
        namespaces: texts("namespaces"),
        names: texts("names"),
        users: texts("users"),
        user_agents: texts("userAgents"),
        paths: texts("paths"),
        webhooks: texts("webhooks"),
        components: part.flag("components", errors).unwrap_or(false),
    };
    for verb in selector.verbs.iter().filter(|it| !VERBS.contains(&&***it)) {
        errors.add(&part.at("verbs"), format!("{verb:?} is none of {}", VERBS.join(", ")));
    }
    selector
}

fn read_frequency(part: &Part<'_>, errors: &mut ConfigErrors) -> Frequency {
    let rate = part.number("rate", errors);
    if rate.is_some_and(|it| !(it > 0.0 && it <= 1.0)) {
        errors.add(&part.at("rate"), "must be more than 0 and at most 1");
    }
    let mut positive = |field| {
        let count = part.count(field, errors);
        if count == Some(0) {
            errors.add(&part.at(field), "must be at least 1");
        }
        count
    };
    let (every, times) = (positive("every"), positive("times"));
    let pace = match (rate, every) {
        (Some(_), Some(_)) => {
            errors.add(&part.path(), "give rate or every, not both");
            Pace::Every(1)
        }
        (Some(rate), None) => Pace::Rate(rate),
        (None, every) => Pace::Every(every.unwrap_or(1).max(1)),
    };
    Frequency { skip: part.count("skip", errors).unwrap_or(0), pace, times }
}

fn read_effect(part: &Part<'_>, errors: &mut ConfigErrors) -> Effect {
    let retry_after = part.count("retryAfterSeconds", errors);
    let retry_after_seconds = retry_after.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
    let status = part.count("status", errors);
    if retry_after.is_some() && !matches!(status, Some(429 | 500 | 503)) {
        errors.add(&part.at("retryAfterSeconds"), "is for the status 429, 500 or 503");
    }
    if let Some(status) = status {
        let code = STATUSES.iter().copied().find(|it| u64::from(*it) == status);
        if code.is_none() {
            let all: Vec<_> = STATUSES.iter().map(u16::to_string).collect();
            errors.add(&part.at("status"), format!("must be one of {}", all.join(", ")));
        }
        let default = if status == 429 { RETRY_AFTER_SECONDS } else { 0 };
        let retry_after_seconds = retry_after_seconds.unwrap_or(default);
        return Effect::Status { code: code.unwrap_or(500), retry_after_seconds };
    }
    if part.any("cut").is_some() {
        let points = [("Request", CutPoint::Request), ("Response", CutPoint::Response)];
        return part.choice("cut", &points, errors).map_or(Effect::Nothing, Effect::Cut);
    }
    let Some(watch) = part.part("watch", WATCH_FIELDS, errors) else { return Effect::Nothing };
    let endings =
        [("Close", WatchEnding::Close), ("Expired", WatchEnding::Expired), ("Cut", WatchEnding::Cut)];
    Effect::EndWatch(WatchEnd {
        after_events: watch.count("afterEvents", errors),
        after: watch.duration("after", errors),
        ending: watch.choice("end", &endings, errors).unwrap_or(WatchEnding::Close),
    })
}

/// The effect must be one that the selected subjects can meet.
fn check_fit(part: &Part<'_>, selector: &Selector, effect: &Effect, errors: &mut ConfigErrors) {
    let with = |fields: &[&'static str]| -> Vec<_> {
        fields.iter().copied().filter(|it| part.any(it).is_some()).collect()
    };
    if matches!(effect, Effect::EndWatch(_)) && selector.verbs.iter().any(|it| it != "watch") {
        errors.add(&part.at("watch"), "is for the verb watch alone");
    }
    if !selector.webhooks.is_empty() {
        for field in with(&["paths", "userAgents", "components", "watch"]) {
            errors.add(&part.at(field), "is not for calls to webhooks");
        }
    }
    if !selector.paths.is_empty() {
        for field in with(&["groups", "resources", "namespaces", "names", "watch"]) {
            errors.add(&part.at(field), "is not for paths, which name no resource");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rule(text: &str) -> Rule {
        let document = Document::parse(format!("{{rules: [{text}]}}").as_bytes());
        document.unwrap().rules.remove(0)
    }

    #[test]
    fn faults_are_read() {
        let busy = rule("{status: 429, verbs: [create], rate: 0.5}");
        assert_eq!(busy.fault.effect, Effect::Status { code: 429, retry_after_seconds: 1 });
        assert_eq!((&*busy.fault.rule, &busy.frequency.pace), ("rules[0]", &Pace::Rate(0.5)));
        let slow = rule("{name: slow, delay: 1m30s, skip: 3}");
        assert_eq!((slow.fault.delay, &slow.fault.effect), (Some(Duration::from_secs(90)), &Effect::Nothing));
        assert_eq!(rule("{cut: Response}").fault.effect, Effect::Cut(CutPoint::Response));
        let watch = rule("{watch: {afterEvents: 3, after: 10s, end: Expired}}").fault;
        let end = WatchEnd {
            after_events: Some(3),
            after: Some(Duration::from_secs(10)),
            ending: WatchEnding::Expired,
        };
        assert_eq!(watch.effect, Effect::EndWatch(end));
    }

    #[test]
    fn an_empty_document_has_no_rules() {
        for text in ["", "{}", "rules: []", "{\"kind\":\"SimulationFaults\"}"] {
            assert!(Document::parse(text.as_bytes()).unwrap().rules.is_empty(), "{text}");
        }
    }

    #[test]
    fn all_mistakes_are_reported() {
        let text = "kind: Faults\nsees: 1\nrules:\n\
            - {name: a}\n\
            - {name: a, status: 418, rate: 2, every: 0, retryAfterSeconds: 1}\n\
            - {status: 500, cut: Never, verbs: [fetch]}\n\
            - {watch: {after: soon}, verbs: [get]}\n\
            - {delay: -1s, webhooks: [w], userAgents: [x]}\n\
            - {delay: 1s, paths: [/apis], resources: [pods]}\n";
        let errors = Document::parse(text.as_bytes()).unwrap_err();
        for expected in [
            "sees: unknown field",
            "kind: must be SimulationFaults",
            "rules[0]: needs a fault: delay, status, cut or watch",
            "rules[1].name: \"a\" is the name of another rule",
            "rules[1].status: must be one of 409, 410, 429, 500, 503, 504",
            "rules[1].rate: must be more than 0 and at most 1",
            "rules[1].every: must be at least 1",
            "rules[1]: give rate or every, not both",
            "rules[1].retryAfterSeconds: is for the status 429, 500 or 503",
            "rules[2]: status and cut are faults of different rules",
            "rules[3].watch: is for the verb watch alone",
            "rules[4].userAgents: is not for calls to webhooks",
            "rules[5].resources: is not for paths, which name no resource",
        ] {
            assert!(errors.iter().any(|it| it == expected), "{expected}: {errors:#?}");
        }
        for begin in
            ["rules[2].verbs: \"fetch\" is none of get", "rules[3].watch.after: ", "rules[4].delay: "]
        {
            assert!(errors.iter().any(|it| it.starts_with(begin)), "{begin}: {errors:#?}");
        }
        assert_eq!(errors.len(), 16, "{errors:#?}");
        assert!(Document::parse(b"rules: {").is_err());
    }
}
