//! The served kinds: the settings of an operator over the defaults.
//!
//! A setting is a key with `true` or `false` (empty means `true`). The most specific key wins, in any order: a resource
//! (`apps/v1/deployments`) before its version (`apps/v1`; `v1` or `api/v1` for the core group), before a stability
//! level (`api/ga`, `api/beta`, `api/alpha`), before `api/all`. A kind with a feature gate is served only if the gate
//! is open, and a kind that the release does not have is never served.

use crate::tables;
use names::Names;
use schema::table::{Group, Kind, Release};

/// The decisions of an operator; by default none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    all: Option<bool>,
    stable: Option<bool>,
    beta: Option<bool>,
    alpha: Option<bool>,
    versions: Vec<(Group, String, bool)>,
    resources: Vec<(Group, String, String, bool)>,
    /// Feature gates that are open although they are closed without a decision.
    pub gates: Vec<String>,
    /// Feature gates that are closed although they are open without a decision.
    pub closed: Vec<String>,
    /// The release whose API is served.
    pub release: Release,
}

impl Default for Serving {
    fn default() -> Self {
        Serving {
            all: None,
            stable: None,
            beta: None,
            alpha: None,
            versions: Vec::new(),
            resources: Vec::new(),
            gates: Vec::new(),
            closed: Vec::new(),
            release: crate::RELEASE,
        }
    }
}

/// A decision that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServingError {
    #[error(
        "{0:?} names neither a version (apps/v1) nor a resource (apps/v1/deployments) nor api/all, api/ga, api/beta or api/alpha"
    )]
    Key(String),
    #[error("{0:?} must be true or false for {1:?}")]
    Value(String, String),
    #[error("there is no API group {0:?}")]
    Group(String),
    #[error("the API group {0:?} has no version {1:?}")]
    Version(String, String),
    #[error("there is no resource {1:?} in {0:?}")]
    Resource(String, String),
    #[error("api/all=false alone would leave nothing to serve: name what should be served as well")]
    Nothing,
}

impl Serving {
    /// Reads `key` or `key=value`, each. A key that is given again counts as it is given last.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>, names: &Names) -> Result<Self, ServingError> {
        let mut serving = Serving::default();
        for pair in pairs.into_iter().map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
            serving.decide(key, truth(key, value)?, names)?;
        }
        let nothing = Serving { all: Some(false), ..Serving::default() };
        if serving == nothing { Err(ServingError::Nothing) } else { Ok(serving) }
    }

    /// The same with these feature gates open.
    #[must_use]
    pub fn with_gates(mut self, gates: impl IntoIterator<Item = String>) -> Self {
        self.gates.extend(gates);
        self
    }

    /// The same with these feature gates closed.
    #[must_use]
    pub fn without_gates(mut self, gates: impl IntoIterator<Item = String>) -> Self {
        self.closed.extend(gates);
        self
    }

    /// The same as another release has it.
    #[must_use]
    pub fn at(self, release: Release) -> Self {
        Serving { release, ..self }
    }

    fn decide(&mut self, key: &str, on: bool, names: &Names) -> Result<(), ServingError> {
        match key {
            "api/all" => self.all = Some(on),
            "api/ga" => self.stable = Some(on),
            "api/beta" => self.beta = Some(on),
            "api/alpha" => self.alpha = Some(on),
            // groups have long ceased to have older forms that this could mean
            "api/legacy" => {}
            _ => self.decide_one(key, on, names)?,
        }
        Ok(())
    }

    fn decide_one(&mut self, key: &str, on: bool, names: &Names) -> Result<(), ServingError> {
        let parts: Vec<&str> = key.split('/').collect();
        let (group, version, resource) = match parts[..] {
            ["v1"] | ["api", "v1"] => ("", "v1", None),
            ["api", "v1", resource] => ("", "v1", Some(resource)),
            [group, version] if !group.is_empty() => (group, version, None),
            [group, version, resource] if !group.is_empty() => (group, version, Some(resource)),
            _ => return Err(ServingError::Key(key.to_owned())),
        };
        let of_group = || tables::KINDS.iter().filter(|it| it.group.full(&names.api_domain) == group);
        let Some(known) = of_group().next() else { return Err(ServingError::Group(group.to_owned())) };
        let known = known.group.clone();
        let mut of_version = of_group().filter(|it| it.version == version).peekable();
        if of_version.peek().is_none() {
            return Err(ServingError::Version(group.to_owned(), version.to_owned()));
        }
        match resource {
            None => {
                self.versions.retain(|(group, of, _)| (group, &**of) != (&known, version));
                self.versions.push((known, version.to_owned(), on));
            }
            Some(plural) if of_version.any(|it| it.plural == plural) => {
                let same = (&known, version, plural);
                self.resources.retain(|(group, of, plural, _)| (group, &**of, &**plural) != same);
                self.resources.push((known, version.to_owned(), plural.to_owned(), on));
            }
            Some(plural) => {
                let version = key.rsplit_once('/').map_or(key, |(version, _)| version);
                return Err(ServingError::Resource(version.to_owned(), plural.to_owned()));
            }
        }
        Ok(())
    }

    /// Whether a kind is to be served.
    pub fn serves(&self, kind: &Kind) -> bool {
        let gate = kind.gate.is_empty() || self.gates.iter().any(|open| *open == kind.gate);
        gate && kind.lifecycle.is_there(self.release) && self.wanted(kind)
    }

    fn wanted(&self, kind: &Kind) -> bool {
        let mut resources = self.resources.iter();
        let resource = resources
            .find(|(group, version, plural, _)| {
                (group, &**version, &**plural) == (&kind.group, &*kind.version, &*kind.plural)
            })
            .map(|(.., on)| *on);
        let mut versions = self.versions.iter();
        let version = versions
            .find(|(group, version, _)| (group, &**version) == (&kind.group, &*kind.version))
            .map(|(.., on)| *on);
        let level = if kind.version.contains("alpha") {
            self.alpha
        } else if kind.version.contains("beta") {
            self.beta
        } else {
            self.stable
        };
        resource.or(version).or(level).or(self.all).unwrap_or(kind.on)
    }
}

fn truth(key: &str, value: &str) -> Result<bool, ServingError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(ServingError::Value(value.to_owned(), key.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(pairs: &str) -> Result<Vec<String>, String> {
        let names = Names::kubernetes();
        let serving = Serving::parse(pairs.split(','), &names).map_err(|why| why.to_string())?;
        let formatted = |kind: &&&Kind| {
            let group = kind.group.full(&names.api_domain);
            format!("{group}/{}/{}", kind.version, kind.plural)
        };
        Ok(tables::KINDS.iter().filter(|kind| serving.serves(kind)).map(|kind| formatted(&kind)).collect())
    }

    fn check(pairs: &str, on: &[&str], off: &[&str]) {
        let served = served(pairs).unwrap();
        for one in on {
            assert!(served.iter().any(|it| it == one), "{pairs}: {one} is off");
        }
        for one in off {
            assert!(!served.iter().any(|it| it == one), "{pairs}: {one} is on");
        }
    }

    #[test]
    fn the_more_a_key_names_the_more_it_counts() {
        let alpha = "resource.k8s.io/v1alpha1/resourceclaims";
        let beta = "storage.k8s.io/v1beta1/csistoragecapacities";
        let (deployments, sets) = ("apps/v1/deployments", "apps/v1/statefulsets");
        check("", &["/v1/pods", "/v1/bindings", deployments, beta], &[alpha]);
        check("api/alpha", &[alpha, beta], &["authentication.k8s.io/v1alpha1/selfsubjectreviews"]);
        check("api/all=true,resource.k8s.io/v1alpha1=false", &[beta], &[alpha]);
        check(
            "api/beta=false,flowcontrol.apiserver.k8s.io/v1beta3",
            &["flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"],
            &[beta],
        );
        check("apps/v1/deployments=true,apps/v1=false", &[deployments], &[sets]);
        check("apps/v1/deployments=false", &[sets], &[deployments]);
        check("api/all=false,v1", &["/v1/pods"], &[deployments]);
        check("api/v1/pods=0", &["/v1/nodes"], &["/v1/pods"]);
        check("apps/v1=false,apps/v1=true,api/legacy", &[deployments], &[]);
    }

    #[test]
    fn gates_count_beside_the_decisions() {
        let names = Names::kubernetes();
        let serving = Serving::parse(["api/alpha"], &names).unwrap();
        let kind = tables::KINDS.iter().find(|kind| kind.name == "SelfSubjectReview").unwrap();
        assert!(!serving.serves(kind));
        assert!(serving.with_gates(["APISelfSubjectReview".to_owned()]).serves(kind));
    }

    fn at(minor: u32) -> Vec<&'static Kind> {
        let serving = Serving::parse(["api/all"], &Names::kubernetes()).unwrap();
        let serving = serving.at(Release { minor, ..crate::RELEASE });
        tables::KINDS.iter().copied().filter(|kind| serving.serves(kind)).collect()
    }

    fn has(kinds: &[&Kind], stem: &str, version: &str, name: &str) -> bool {
        kinds.iter().any(|it| (&*it.group.stem, &*it.version, &*it.name) == (stem, version, name))
    }

    #[test]
    fn a_later_release_has_less() {
        let flow = "flowcontrol.apiserver";
        for (minor, capacity, beta2, beta3) in [
            (25, true, true, false),
            (26, true, true, true),
            (27, false, true, true),
            (29, false, false, true),
            (32, false, false, false),
        ] {
            let kinds = at(minor);
            assert_eq!(has(&kinds, "storage", "v1beta1", "CSIStorageCapacity"), capacity, "1.{minor}");
            assert_eq!(has(&kinds, flow, "v1beta2", "FlowSchema"), beta2, "1.{minor}");
            assert_eq!(has(&kinds, flow, "v1beta3", "FlowSchema"), beta3, "1.{minor}");
            assert!(
                has(&kinds, "storage", "v1", "CSIStorageCapacity")
                    && has(&kinds, "", "v1", "ComponentStatus")
            );
        }
    }

    /// The stability of a version, the most stable first.
    fn stage(version: &str) -> u8 {
        if version.contains("alpha") {
            2
        } else if version.contains("beta") {
            1
        } else {
            0
        }
    }

    #[test]
    fn versions_come_and_go_by_the_rules() {
        for kind in tables::KINDS.iter() {
            let life = &kind.lifecycle;
            let named = format!("{}/{} {}", kind.group.stem, kind.version, kind.name);
            let read = |text: &str| {
                let release = Release::parse(text);
                assert!(release.is_some() || text.is_empty(), "{named}: {text}");
                release
            };
            let (introduced, deprecated, removed) =
                (read(&life.introduced), read(&life.deprecated), read(&life.removed));
            // stable versions may be advised against, but stay
            assert!(stage(&kind.version) > 0 || removed.is_none(), "{named}");
            if let Some((_, instead)) = &life.replacement {
                assert!(stage(instead) <= stage(&kind.version), "{named}: not for a less stable one");
            }
            // upstream has no server for resource metrics: their version goes by no release
            if stage(&kind.version) == 1 && kind.group.stem != "metrics" {
                let (introduced, deprecated, removed) =
                    (introduced.unwrap(), deprecated.unwrap(), removed.unwrap());
                assert!(deprecated.minor <= introduced.minor + 3, "{named}: advised against in time");
                assert!(removed.minor >= deprecated.minor + 3, "{named}: served for long enough after that");
            }
            assert!(removed.is_none_or(|removed| removed > crate::RELEASE), "{named} is gone");
            // an earlier release must be able to read the stored version
            let stored = kind.stored_as.as_ref();
            let stored =
                stored.map_or(Some(*kind), |(group, version)| tables::kind_named(group, version, &kind.name));
            let since = read(&stored.unwrap().lifecycle.introduced);
            assert!(stage(&kind.version) == 2 || since.is_none_or(|since| since < crate::RELEASE), "{named}");
        }
    }

    #[test]
    fn invalid_settings_are_reported() {
        for (pairs, part) in [
            ("api/all=false", "nothing to serve"),
            ("foo/v1", "no API group \"foo\""),
            ("apps/v9", "no version \"v9\""),
            ("apps/v1/pods=true", "no resource \"pods\" in \"apps/v1\""),
            ("apps", "names neither"),
            ("a/b/c/d", "names neither"),
            ("=true", "names neither"),
            ("api/foo", "no API group \"api\""),
            ("apps/v1=maybe", "\"maybe\" must be true or false"),
            ("api/all=", "must be true or false"),
        ] {
            let error = served(pairs).unwrap_err();
            assert!(error.contains(part) && error.lines().count() == 1, "{pairs}: {error}");
        }
    }
}
