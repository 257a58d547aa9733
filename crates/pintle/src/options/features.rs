//! Feature gates: parts that can be switched on before they are finished, or off while they are new.
//!
//! All names of Kubernetes 1.26 are known (`gates.txt`), so that a command line that works there works here. A gate
//! that nothing stands behind says so.

use super::Wrong;
use clap::Args;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What is switched on")]
pub struct Features {
    /// Feature gates to open or close, with commas between: APISelfSubjectReview=true. AllAlpha and AllBeta stand
    /// for all of that maturity that are not named
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
}

struct Gate {
    name: &'static str,
    open: bool,
    stage: &'static str,
    locked: bool,
}

fn gates() -> impl Iterator<Item = Gate> {
    include_str!("gates.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let (name, open, stage) = (words.next()?, words.next()? == "open", words.next()?);
        Some(Gate { name, open, stage, locked: words.next().is_some() })
    })
}

/// Gates that stand for others.
const GROUPS: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// Gates behind which there is something other than kinds.
const BEHIND: [&str; 1] = ["APIServerTracing"];

impl Features {
    /// The gates that are open although nobody would have opened them.
    pub fn read(&self, wrong: &mut Wrong) -> Vec<String> {
        const OPTION: &str = "--feature-gates";
        let mut asked = BTreeMap::new();
        for pair in self.feature_gates.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                wrong.add(OPTION, format!("{pair:?} says neither true nor false"));
                continue;
            };
            let Some(open) = truth(value.trim()) else {
                wrong.add(OPTION, format!("{:?} for {name} is neither true nor false", value.trim()));
                continue;
            };
            match gates().find(|gate| gate.name == name.trim()) {
                None => wrong.add(OPTION, format!("there is no gate {:?}", name.trim())),
                Some(gate) if gate.locked && gate.open != open => {
                    let always = if gate.open { "open" } else { "closed" };
                    wrong.add(OPTION, format!("{} is always {always}", gate.name));
                }
                Some(gate) => drop(asked.insert(gate.name, open)),
            }
        }
        let behind =
            |name: &str| kinds::tables::KINDS.iter().any(|kind| kind.gate == name) || BEHIND.contains(&name);
        let idle: Vec<_> = gates()
            .filter(|gate| asked.get(gate.name).is_some_and(|open| *open != gate.open))
            .filter(|gate| !behind(gate.name) && GROUPS.iter().all(|(name, _)| *name != gate.name))
            .map(|gate| gate.name)
            .collect();
        if !idle.is_empty() {
            tracing::warn!(gates = idle.join(","), "these feature gates change nothing here");
        }
        let of_group = |gate: &Gate| {
            let group = GROUPS.iter().find(|(_, stage)| *stage == gate.stage);
            group.and_then(|(name, _)| asked.get(name)).copied()
        };
        let opened = |gate: &Gate| {
            let decided = asked.get(gate.name).copied().or_else(|| of_group(gate));
            decided == Some(true) && behind(gate.name)
        };
        gates().filter(opened).map(|gate| gate.name.to_owned()).collect()
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let mut wrong = Wrong::default();
        let features = Features { feature_gates: text.split(',').map(str::to_owned).collect() };
        let opened = features.read(&mut wrong);
        wrong.check().map(|()| opened).map_err(|why| why.to_string())
    }

    #[test]
    fn gates_open_what_stands_behind_them() {
        assert_eq!(read("APISelfSubjectReview=true"), Ok(vec!["APISelfSubjectReview".to_owned()]));
        let both = ["APISelfSubjectReview", "APIServerTracing"].map(str::to_owned).to_vec();
        assert_eq!(read("AllAlpha=true"), Ok(both));
        assert_eq!(read("APISelfSubjectReview=false,AllAlpha=true"), Ok(vec!["APIServerTracing".to_owned()]));
        assert_eq!(read("AppArmor=false,CPUManager=true, AllBeta=f"), Ok(vec![]));
    }

    #[test]
    fn every_mistake_is_told() {
        let told = read("Nope=true,CPUManager=false,AppArmor,AllAlpha=x").unwrap_err();
        for part in [
            "no gate \"Nope\"",
            "CPUManager is always open",
            "\"AppArmor\" says neither",
            "\"x\" for AllAlpha",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(gates().count(), 147);
    }
}
