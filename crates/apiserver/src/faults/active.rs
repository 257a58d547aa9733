//! The rules that are in force, and what they have done so far.

use super::document::Document;
use super::rule::{Fault, Pace, Rule, Subject};
use arc_swap::ArcSwap;
use env::{ExactSteps, Simulated, World, random_u64};
use schema::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The faults of a server. They can be replaced while it runs.
pub struct Faults {
    active: ArcSwap<ActiveRules>,
    /// The seed of documents that have none.
    seed: u64,
    world: World,
}

struct ActiveRules {
    rules: Vec<ActiveRule>,
    /// Which request a rule is for depends on those before it, also of upkeep.
    _exact_steps: Option<ExactSteps>,
    /// As given, with the seed.
    document: Value,
}

struct ActiveRule {
    rule: Rule,
    random: World,
    matched: AtomicU64,
    injected: AtomicU64,
}

impl Faults {
    /// No rules. Without a seed, one is drawn.
    pub fn new(seed: Option<u64>, world: &World) -> Self {
        // as large as the numbers of a document are
        let seed = seed.unwrap_or_else(|| random_u64(world) >> 1);
        let active = ArcSwap::new(Arc::new(ActiveRules::new(Document::default(), seed, world)));
        Faults { active, seed, world: world.clone() }
    }

    /// Replaces the rules by those of a document, in YAML or JSON. All counts begin anew.
    ///
    /// # Errors
    /// All mistakes of the document.
    pub fn replace(&self, text: &[u8]) -> Result<(), Vec<String>> {
        let document = Document::parse(text)?;
        self.active.store(Arc::new(ActiveRules::new(document, self.seed, &self.world)));
        Ok(())
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.active.store(Arc::new(ActiveRules::new(Document::default(), self.seed, &self.world)));
    }

    /// The rules as a document, with the counts of each.
    pub(crate) fn document(&self) -> Value {
        let active = self.active.load();
        let mut document = active.document.clone();
        let counts = active.rules.iter().map(|it| {
            let count = |counter: &AtomicU64| {
                Value::Int(i64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(i64::MAX))
            };
            let mut counts = Value::map();
            counts.set(&["name"], &*it.rule.fault.rule);
            counts.set(&["matched"], count(&it.matched));
            counts.set(&["injected"], count(&it.injected));
            counts
        });
        document.set(&["status", "rules"], Value::List(counts.collect()));
        document
    }

    /// The fault that a subject meets.
    pub(crate) fn choose(&self, subject: &Subject<'_>) -> Option<Arc<Fault>> {
        if subject.path.starts_with(super::EXEMPT) {
            return None;
        }
        let active = self.active.load();
        let fired = active.rules.iter().find(|it| it.rule.selector.selects(subject) && it.fires())?;
        tracing::debug!(
            rule = fired.rule.fault.rule,
            verb = subject.verb,
            path = subject.path,
            webhook = subject.webhook,
            "a fault is injected"
        );
        Some(fired.rule.fault.clone())
    }
}

impl ActiveRules {
    fn new(document: Document, default_seed: u64, world: &World) -> Self {
        let seed = document.seed.unwrap_or(default_seed);
        let seeds: World = Simulated::new(0, seed);
        let active = |rule| ActiveRule {
            rule,
            random: Simulated::new(0, random_u64(&seeds)),
            matched: AtomicU64::new(0),
            injected: AtomicU64::new(0),
        };
        let mut given = document.given;
        given.set(&["seed"], Value::Int(i64::try_from(seed).unwrap_or(i64::MAX)));
        let rules: Vec<_> = document.rules.into_iter().map(active).collect();
        let _exact_steps = (!rules.is_empty()).then(|| world.step_exactly());
        ActiveRules { rules, _exact_steps, document: given }
    }
}

impl ActiveRule {
    /// Whether the rule fires for the subject that it has just selected.
    fn fires(&self) -> bool {
        let frequency = &self.rule.frequency;
        let number = self.matched.fetch_add(1, Ordering::Relaxed);
        let Some(number) = number.checked_sub(frequency.skip) else { return false };
        let is_due = match frequency.pace {
            Pace::Every(step) => (number + 1).is_multiple_of(step),
            // the 53 bits that an `f64` holds
            Pace::Rate(rate) => ((random_u64(&self.random) >> 11) as f64 / (1_u64 << 53) as f64) < rate,
        };
        let most = frequency.times.unwrap_or(u64::MAX);
        let count = |injected| (injected < most).then_some(injected + 1);
        is_due && self.injected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Subject<'_> = Subject {
        verb: "get",
        group: "",
        resource: "pods",
        subresource: "",
        namespace: "a",
        name: "p",
        path: "/api/v1/namespaces/a/pods/p",
        user: "u",
        user_agent: "t",
        is_component: false,
        webhook: "",
    };

    fn faults(rules: &str) -> Faults {
        let faults = Faults::new(Some(7), &(Simulated::new(0, 1) as World));
        faults.replace(format!("{{rules: [{rules}]}}").as_bytes()).unwrap();
        faults
    }

    /// For each of so many requests the first letter of the rule that fires, or a dot.
    fn run(faults: &Faults, requests: usize) -> String {
        let fired = |_| faults.choose(&POD).map_or('.', |it| it.rule.chars().next().unwrap_or('?'));
        (0..requests).map(fired).collect()
    }

    #[test]
    fn rules_fire_as_often_as_they_say() {
        assert_eq!(run(&faults("{name: a, status: 500}"), 3), "aaa");
        assert_eq!(run(&faults("{name: a, status: 500, every: 3}"), 7), "..a..a.");
        assert_eq!(run(&faults("{name: a, status: 500, skip: 2, times: 2}"), 6), "..aa..");
        assert_eq!(
            run(&faults("{name: a, status: 500, times: 1}, {name: b, status: 503, every: 2}"), 5),
            "a.b.b"
        );
        assert_eq!(run(&faults("{name: a, status: 500, verbs: [list]}"), 2), "..");
    }

    #[test]
    fn a_rate_is_drawn_from_the_seed() {
        let rule = "{name: a, status: 500, rate: 0.3}";
        let first = run(&faults(rule), 1000);
        assert_eq!(first, run(&faults(rule), 1000));
        let hits = first.matches('a').count();
        assert!((250..350).contains(&hits), "{hits}");
        let other = Faults::new(Some(8), &(Simulated::new(0, 1) as World));
        other.replace(format!("{{rules: [{rule}]}}").as_bytes()).unwrap();
        assert_ne!(first, run(&other, 1000));
        other.replace(format!("{{seed: 7, rules: [{rule}]}}").as_bytes()).unwrap();
        assert_eq!(first, run(&other, 1000), "the seed of a document wins");
        // a second rule does not change the draws of the first
        let two = run(&faults("{name: a, status: 500, rate: 0.3}, {name: b, status: 500, rate: 0.5}"), 1000);
        assert_eq!(first, two.replace('b', "."));
    }

    #[test]
    fn the_document_has_counts_and_can_be_given_back() {
        let faults = faults("{name: a, status: 500, every: 2}");
        run(&faults, 5);
        let document = faults.document();
        let counts = &document.items(&["status", "rules"])[0];
        assert_eq!(counts.at(&["matched"]).and_then(Value::as_int), Some(5));
        assert_eq!(counts.at(&["injected"]).and_then(Value::as_int), Some(2));
        assert_eq!(document.at(&["seed"]).and_then(Value::as_int), Some(7));
        faults.replace(&schema::encode::untyped(&document)).unwrap();
        assert_eq!(run(&faults, 2), ".a", "counts begin anew");
        faults.clear();
        assert_eq!(run(&faults, 2), "..");
    }

    #[test]
    fn paths_of_the_simulation_meet_no_fault() {
        let faults = faults("{name: a, status: 500, paths: ['*']}");
        let get = |path| faults.choose(&Subject { verb: "get", path, ..Subject::default() });
        assert!(get("/simulation/faults").is_none());
        assert!(get("/apis").is_some());
    }
}
