//! The permissions that a user holds, indexed for the lookup of single requested ones.
//!
//! The words of the requested rules get numbers, and a held rule keeps the words that have one. It is then expanded
//! into the permissions of its lists, with 0 where it holds them all:
//!
//! ```text
//! requested  get pods a, get pods b            words  ""=1 pods=2 get=3 a=4 b=5
//! held       get,list pods,nodes a,c      →    [1 2 3 4]
//!            * pods                       →    [1 2 0 0]
//! ```
//!
//! A requested permission is looked up once for each combination of zeros that occurs (at most 16), so the work is
//! proportional to the words and permissions of both sides, not to their product. Paths are looked up by verb, in
//! sorted prefixes.

use super::rule::{ALL, Rule};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The rules have more permissions than are compared, or than a refusal lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rules name too many permissions to be compared")]
pub struct TooManyPermissions;

/// Permissions of the requested rules that are compared, and of the held ones that are compared with them.
pub(super) const MOST: usize = 500_000;

/// All words of a list, or all names.
const ANY: u32 = 0;

/// An API group, a resource, a verb and a name.
type Permission = [u32; 4];
const RESOURCE: usize = 1;

/// Counts work up to [`MOST`].
struct Budget(usize);

impl Budget {
    fn spend(&mut self, steps: usize) -> Result<(), TooManyPermissions> {
        self.0 = self.0.checked_sub(steps).ok_or(TooManyPermissions)?;
        Ok(())
    }
}

/// Numbers of the words of requested rules.
#[derive(Default)]
struct Words<'a>(HashMap<Cow<'a, str>, u32>);

impl<'a> Words<'a> {
    fn of(requested: &[&'a Rule]) -> Self {
        let mut words = Words::default();
        for rule in requested {
            for word in [&rule.api_groups, &rule.resources, &rule.verbs, &rule.names].into_iter().flatten() {
                words.add(Cow::Borrowed(word));
            }
            for pattern in rule.resources.iter().filter_map(|resource| every_parent(resource)) {
                words.add(Cow::Owned(pattern));
            }
        }
        words
    }

    fn add(&mut self, word: Cow<'a, str>) {
        let next = self.0.len() as u32 + 1;
        self.0.entry(word).or_insert(next);
    }

    fn get(&self, word: &str) -> Option<u32> {
        self.0.get(word).copied()
    }

    /// The number of a word in a list that may have the wildcard; words of held rules may have none.
    fn or_any(&self, word: &str) -> Option<u32> {
        if word == ALL { Some(ANY) } else { self.get(word) }
    }

    /// Sorted numbers of the words of a held rule, or only [`ANY`].
    fn set(&self, list: &[String]) -> Vec<u32> {
        let mut set: Vec<u32> = list.iter().filter_map(|word| self.or_any(word)).collect();
        set.sort_unstable();
        set.dedup();
        if set.first() == Some(&ANY) {
            set.truncate(1);
        }
        set
    }

    /// The same for names, which have no wildcard.
    fn names(&self, list: &[String]) -> Vec<u32> {
        if list.is_empty() {
            return vec![ANY];
        }
        let mut set: Vec<u32> = list.iter().filter_map(|word| self.get(word)).collect();
        set.sort_unstable();
        set.dedup();
        set
    }
}

/// `*/log` for `pods/log`.
fn every_parent(resource: &str) -> Option<String> {
    resource.split_once('/').map(|(_, part)| format!("*/{part}"))
}

/// Numbers of the words of a requested rule, in its order.
struct RequestedRule {
    groups: Vec<u32>,
    /// Each with the pattern of its subresource.
    resources: Vec<(u32, Option<u32>)>,
    verbs: Vec<u32>,
    names: Vec<u32>,
}

impl RequestedRule {
    fn of(rule: &Rule, words: &Words<'_>) -> Self {
        let numbers = |list: &[String]| list.iter().filter_map(|word| words.or_any(word)).collect();
        let pattern = |word: &String| every_parent(word).and_then(|pattern| words.get(&pattern));
        let resource = |word: &String| Some((words.or_any(word)?, pattern(word)));
        let name = |word: &String| words.get(word);
        RequestedRule {
            groups: numbers(&rule.api_groups),
            resources: rule.resources.iter().filter_map(resource).collect(),
            verbs: numbers(&rule.verbs),
            names: if rule.names.is_empty() {
                vec![ANY]
            } else {
                rule.names.iter().filter_map(name).collect()
            },
        }
    }
}

/// A held rule without the words that are not requested: sorted numbers of its API groups, resources, verbs and names.
#[derive(PartialEq, Eq, Hash)]
struct HeldRule([Vec<u32>; 4]);

impl HeldRule {
    fn of(rule: &Rule, words: &Words<'_>) -> Self {
        let verbs = words.set(&rule.verbs);
        HeldRule([words.set(&rule.api_groups), words.set(&rule.resources), verbs, words.names(&rule.names)])
    }

    fn count(&self) -> usize {
        self.0.iter().fold(1, |all: usize, list| all.saturating_mul(list.len()))
    }

    /// Which lists hold everything.
    fn any(&self) -> [bool; 4] {
        self.0.each_ref().map(|list| list[..] == [ANY])
    }

    fn permissions(&self) -> impl Iterator<Item = Permission> {
        let [groups, resources, verbs, names] = &self.0;
        groups.iter().flat_map(move |group| {
            resources.iter().flat_map(move |resource| {
                verbs
                    .iter()
                    .flat_map(move |verb| names.iter().map(move |name| [*group, *resource, *verb, *name]))
            })
        })
    }

    /// Whether they hold all of a requested rule but for its paths.
    fn cover(&self, requested: &RequestedRule, budget: &mut Budget) -> Result<bool, TooManyPermissions> {
        let [groups, resources, verbs, names] = &self.0;
        let is_any = |held: &[u32]| held == [ANY];
        let holds = |held: &[u32], word: &u32| held.binary_search(word).is_ok();
        for (held, words) in
            [(verbs, &requested.verbs), (groups, &requested.groups), (names, &requested.names)]
        {
            budget.spend(if is_any(held) { 1 } else { words.len() })?;
            if !is_any(held) && !words.iter().all(|word| holds(held, word)) {
                return Ok(false);
            }
        }
        budget.spend(if is_any(resources) { 1 } else { requested.resources.len() })?;
        let is_held = |(word, pattern): &(u32, Option<u32>)| {
            holds(resources, word) || pattern.is_some_and(|pattern| holds(resources, &pattern))
        };
        Ok(is_any(resources) || requested.resources.iter().all(is_held))
    }
}

/// Paths and prefixes of paths. No prefix begins with another one, once they are sorted.
#[derive(Default)]
struct PathPatterns<'a> {
    exact: HashSet<&'a str>,
    prefixes: Vec<&'a str>,
}

impl<'a> PathPatterns<'a> {
    fn add(&mut self, pattern: &'a str) {
        self.exact.insert(pattern);
        if pattern.ends_with('*') {
            self.prefixes.push(pattern.trim_end_matches('*'));
        }
    }

    fn sort(&mut self) {
        self.prefixes.sort_unstable();
        self.prefixes.dedup_by(|next, before| next.starts_with(*before));
    }

    fn covers(&self, path: &str) -> bool {
        let after = self.prefixes.partition_point(|prefix| *prefix <= path);
        self.exact.contains(path) || after > 0 && path.starts_with(self.prefixes[after - 1])
    }
}

/// The held permissions that matter to some requested rules.
pub(super) struct HeldPermissions<'a> {
    words: Words<'a>,
    permissions: HashSet<Permission>,
    /// The combinations of lists that hold everything.
    any: HashSet<[bool; 4]>,
    paths: HashMap<u32, PathPatterns<'a>>,
}

impl<'a> HeldPermissions<'a> {
    pub(super) fn among(held: &[&'a Rule], requested: &[&'a Rule]) -> Result<Self, TooManyPermissions> {
        let words = Words::of(requested);
        let has_paths = requested.iter().any(|rule| !rule.paths.is_empty());
        let (mut permissions, mut any, mut seen) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut paths: HashMap<u32, PathPatterns<'a>> = HashMap::new();
        let mut budget = Budget(MOST);
        for rule in held {
            if has_paths && rule.names.is_empty() && !rule.paths.is_empty() {
                let verbs = words.set(&rule.verbs);
                budget.spend(verbs.len().saturating_mul(rule.paths.len()))?;
                for verb in verbs {
                    let patterns = paths.entry(verb).or_default();
                    rule.paths.iter().for_each(|pattern| patterns.add(pattern));
                }
            }
            let lists = HeldRule::of(rule, &words);
            // many roles have the same rules
            if lists.count() > 0 && !seen.contains(&lists) {
                budget.spend(lists.count())?;
                any.insert(lists.any());
                permissions.extend(lists.permissions());
                seen.insert(lists);
            }
        }
        paths.values_mut().for_each(PathPatterns::sort);
        Ok(HeldPermissions { words, permissions, any, paths })
    }

    fn has(&self, [group, resource, verb, name]: Permission, pattern: Option<u32>) -> bool {
        self.any.iter().any(|any| {
            let masked = |at: usize, word: u32| if any[at] { ANY } else { word };
            let key =
                |resource| [masked(0, group), masked(RESOURCE, resource), masked(2, verb), masked(3, name)];
            let by_pattern =
                || pattern.is_some_and(|it| !any[RESOURCE] && self.permissions.contains(&key(it)));
            self.permissions.contains(&key(resource)) || by_pattern()
        })
    }

    /// Calls a function with each of the smallest permissions of a rule that are not held.
    pub(super) fn each_missing<E>(
        &self,
        rule: &Rule,
        mut found: impl FnMut(Rule) -> Result<(), E>,
    ) -> Result<(), E> {
        let RequestedRule { groups, resources, verbs, names } = RequestedRule::of(rule, &self.words);
        let one = |text: &String| vec![text.clone()];
        for (group, api_group) in groups.iter().zip(&rule.api_groups) {
            for ((resource, pattern), of) in resources.iter().zip(&rule.resources) {
                for (verb, named) in verbs.iter().zip(&rule.verbs) {
                    for (at, name) in names.iter().enumerate() {
                        if !self.has([*group, *resource, *verb, *name], *pattern) {
                            found(Rule {
                                verbs: one(named),
                                api_groups: one(api_group),
                                resources: one(of),
                                names: rule.names.get(at).map(one).unwrap_or_default(),
                                paths: Vec::new(),
                            })?;
                        }
                    }
                }
            }
        }
        for path in &rule.paths {
            for (verb, named) in verbs.iter().zip(&rule.verbs) {
                let covers = |verb: &u32| self.paths.get(verb).is_some_and(|held| held.covers(path));
                if !covers(&ANY) && !covers(verb) {
                    found(Rule { verbs: one(named), paths: one(path), ..Rule::default() })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether for each requested rule one held rule allows everything that it does.
pub(super) fn is_covered_whole(held: &[&Rule], requested: &[&Rule]) -> Result<bool, TooManyPermissions> {
    let words = Words::of(requested);
    let held: Vec<(HeldRule, &Rule)> = held.iter().map(|rule| (HeldRule::of(rule, &words), *rule)).collect();
    let mut budget = Budget(MOST);
    for rule in requested {
        let numbers = RequestedRule::of(rule, &words);
        let mut is_covered = false;
        for (lists, one) in &held {
            is_covered = lists.cover(&numbers, &mut budget)? && covers_paths(one, rule, &mut budget)?;
            if is_covered {
                break;
            }
        }
        if !is_covered {
            return Ok(false);
        }
    }
    Ok(true)
}

fn covers_paths(held: &Rule, requested: &Rule, budget: &mut Budget) -> Result<bool, TooManyPermissions> {
    if requested.paths.is_empty() {
        return Ok(true);
    }
    budget.spend(held.paths.len().saturating_add(requested.paths.len()))?;
    let mut patterns = PathPatterns::default();
    held.paths.iter().for_each(|pattern| patterns.add(pattern));
    patterns.sort();
    Ok(requested.paths.iter().all(|path| patterns.covers(path)))
}
