//! How a cluster is started.

use pintle::Instruments;

/// The time of a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clock {
    #[default]
    Real,
    /// It stands still until the test moves it. With a seed, names and placements follow from the requests.
    Manual { seed: Option<u64> },
}

/// The default is a cluster with control loops and a scheduler, without nodes, in real time.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// The number of simulated nodes.
    pub nodes: u32,
    pub clock: Clock,
    /// Faults that requests meet from the start, as a `SimulationFaults` document.
    pub faults: Option<String>,
    /// An observer of all changes, crash points of components, and candidates for a lease.
    pub instruments: Option<Instruments>,
    /// Further flags of `pintle up`.
    pub flags: Vec<String>,
}

impl ClusterOptions {
    /// The flags of `pintle up`.
    pub(crate) fn into_flags(self) -> Vec<String> {
        // a document that begins otherwise would be the name of a file
        let faults = self.faults.map_or_else(|| "{}".to_owned(), |text| inline(&text));
        let mut flags = vec!["--secure-port=0".to_owned(), format!("--faults={faults}")];
        if self.nodes > 0 {
            flags.push(format!("--nodes={}", self.nodes));
        }
        if let Clock::Manual { seed } = self.clock {
            flags.push("--clock=manual".to_owned());
            flags.extend(seed.map(|seed| format!("--seed={seed}")));
        }
        flags.extend(self.flags);
        flags
    }
}

/// A YAML document as JSON. A text that is neither is left for the server to refuse.
fn inline(text: &str) -> String {
    match schema::yaml::parse(text.as_bytes(), schema::yaml::Limits::default()) {
        Ok(parsed) => String::from_utf8_lossy(&schema::encode::untyped(&parsed.value)).into_owned(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags() {
        let options = ClusterOptions {
            nodes: 2,
            clock: Clock::Manual { seed: Some(7) },
            faults: Some("rules:\n- status: 500\n".to_owned()),
            flags: vec!["-v=2".to_owned()],
            ..ClusterOptions::default()
        };
        let expected = [
            "--secure-port=0",
            r#"--faults={"rules":[{"status":500}]}"#,
            "--nodes=2",
            "--clock=manual",
            "--seed=7",
            "-v=2",
        ];
        assert_eq!(options.into_flags(), expected);
        assert_eq!(ClusterOptions::default().into_flags(), ["--secure-port=0", "--faults={}"]);
    }
}
