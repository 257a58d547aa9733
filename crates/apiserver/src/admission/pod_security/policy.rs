//! The policy of a namespace: a level and version of the Pod Security Standards for each of three modes.
//!
//! Invariant: a namespace with invalid labels gets the strictest level rather than none.

use names::Names;
use schema::Path;
use schema::problem::{Problem, Problems};
use std::fmt;

/// The level; a later one allows less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The version. `latest` is later than all numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    Minor(u64),
    #[default]
    Latest,
}

impl Version {
    /// `latest` or `v1.<minor>`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let canonical =
            minor.bytes().all(|byte| byte.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        canonical.then(|| minor.parse().ok().map(Version::Minor))?
    }
}

impl fmt::Display for Version {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(to, "v1.{minor}"),
            Version::Latest => to.write_str("latest"),
        }
    }
}

/// `restricted:v1.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.level.name(), self.version)
    }
}

/// The standards of the three modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

/// The names of the modes in labels and configuration.
pub const MODES: [&str; 3] = ["enforce", "audit", "warn"];

pub const LEVEL_RULE: &str = "must be one of privileged, baseline, restricted";
pub const VERSION_RULE: &str = "must be \"latest\" or \"v1.x\"";

/// The label keys of namespaces.
pub struct Labels {
    /// Level and version, by mode.
    keys: [(String, String); 3],
}

impl Labels {
    pub fn new(names: &Names) -> Self {
        let key = |name: &str| names.well_known_under("pod-security", name);
        Labels { keys: MODES.map(|mode| (key(mode), key(&format!("{mode}-version")))) }
    }

    /// The policy of a namespace with these labels, beyond `defaults`, and the problems with its labels.
    pub fn policy<'v>(
        &self,
        label: impl Fn(&str) -> Option<&'v str>,
        defaults: Policy,
    ) -> (Policy, Problems) {
        let (mut policy, mut problems) = (defaults, Problems::new());
        let mut read = |at: usize, standard: &mut Standard, fallback: Level| {
            let (level, version) = &self.keys[at];
            if let Some(text) = label(level) {
                standard.level = Level::parse(text).unwrap_or_else(|| {
                    problems.push(wrong(level, text, LEVEL_RULE));
                    fallback
                });
            }
            if let Some(text) = label(version) {
                standard.version = Version::parse(text).unwrap_or_else(|| {
                    problems.push(wrong(version, text, VERSION_RULE));
                    Version::Latest
                });
            }
        };
        read(0, &mut policy.enforce, Level::Restricted);
        read(1, &mut policy.audit, Level::Privileged);
        read(2, &mut policy.warn, Level::Privileged);
        let [(enforce, _), _, (warn, warn_version)] = &self.keys;
        // by default, warn of what will be denied
        let follows = label(enforce).is_some_and(|it| Level::parse(it).is_some()) && label(warn).is_none();
        if follows && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if label(warn_version).is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, problems)
    }

    /// The explicit policy of a namespace as text: `enforce=baseline:latest, warn=restricted:v1.25`. `None`
    /// without labels.
    pub fn explicit<'v>(&self, label: impl Fn(&str) -> Option<&'v str>, policy: &Policy) -> Option<String> {
        let is_set = |(level, version): &(String, String)| label(level).is_some() || label(version).is_some();
        let standards = MODES.iter().zip([policy.enforce, policy.audit, policy.warn]).zip(&self.keys);
        let explicit: Vec<_> =
            standards.filter(|(_, keys)| is_set(keys)).map(|(explicit, _)| explicit).collect();
        let describe = |(mode, standard): &(&&str, Standard)| format!("{mode}={standard}");
        let texts = explicit.iter().filter(|(_, standard)| standard.level != Level::Privileged).map(describe);
        (!explicit.is_empty()).then(|| texts.collect::<Vec<_>>().join(", "))
    }
}

fn wrong(label: &str, text: &str, rule: &str) -> Problem {
    Problem::invalid_text(&Path::ROOT.field("metadata").field("labels").key(label), text, rule)
}
