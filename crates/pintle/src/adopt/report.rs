//! The result of an inspection, as text and JSON.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use store::Revision;

/// The most keys that the text lists of one finding; JSON has all of them.
const SHOWN: usize = 20;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A server does not start.
    Blocks,
    /// Something is not served, or is lost.
    Differs,
    /// Worth knowing.
    Note,
}

/// Something that stands out, with the keys or objects that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub text: String,
    pub subjects: BTreeSet<String>,
}

/// Findings, by severity and text.
#[derive(Default)]
pub struct Findings(BTreeMap<(Severity, String), BTreeSet<String>>);

impl Findings {
    pub fn add(&mut self, severity: Severity, text: impl Into<String>, subject: impl Into<String>) {
        self.0.entry((severity, text.into())).or_default().insert(subject.into());
    }

    pub fn finish(self) -> Vec<Finding> {
        let finding = |((severity, text), subjects)| Finding { severity, text, subjects };
        self.0.into_iter().map(finding).collect()
    }
}

/// The objects of a resource.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResourceCount {
    /// By the version that the values name.
    pub versions: BTreeMap<String, u64>,
    pub encrypted: u64,
    /// Those that the etcd removes by itself.
    pub expiring: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Report {
    pub revision: Revision,
    pub resources: BTreeMap<String, ResourceCount>,
    pub findings: Vec<Finding>,
    pub flags: Vec<SuggestedFlag>,
}

/// A flag that a component of the adopted cluster needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedFlag {
    /// The command, such as `apiserver`.
    pub command: &'static str,
    /// The flag with its value.
    pub flag: String,
    pub why: String,
}

impl Report {
    /// Whether a server starts, and serves everything as before.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|it| it.severity == Severity::Note)
    }

    pub fn text(&self) -> String {
        let objects: u64 = self.resources.values().flat_map(|it| it.versions.values()).sum();
        let mut out = format!("{objects} objects at revision {}\n", self.revision);
        for (resource, count) in &self.resources {
            let versions: Vec<String> =
                count.versions.iter().map(|(version, number)| format!("{number} of {version}")).collect();
            let mut line = format!("  {resource}: {}", versions.join(", "));
            for (number, what) in [(count.encrypted, "encrypted"), (count.expiring, "with a TTL")] {
                if number > 0 {
                    let _ = write!(line, ", {number} {what}");
                }
            }
            let _ = writeln!(out, "{line}");
        }
        for (severity, title) in [
            (Severity::Blocks, "A server does not start because of these:"),
            (Severity::Differs, "These will differ:"),
            (Severity::Note, "Worth knowing:"),
        ] {
            let mut findings = self.findings.iter().filter(|it| it.severity == severity).peekable();
            if findings.peek().is_some() {
                let _ = writeln!(out, "\n{title}");
            }
            for finding in findings {
                let _ = writeln!(out, "  {}", finding.text);
                for subject in finding.subjects.iter().take(SHOWN) {
                    let _ = writeln!(out, "    {subject}");
                }
                if finding.subjects.len() > SHOWN {
                    let _ =
                        writeln!(out, "    and {} more (-o json lists all)", finding.subjects.len() - SHOWN);
                }
            }
        }
        for flags in self.flags.chunk_by(|one, other| one.command == other.command) {
            let command = flags.first().map(|it| it.command).unwrap_or_default();
            let _ = writeln!(out, "\nFlags for pintle {command}:");
            for SuggestedFlag { flag, why, .. } in flags {
                let _ = writeln!(out, "  {flag}\n      {why}");
            }
        }
        let conclusion = match self.is_clean() {
            true => "A server serves all of it as before.",
            false => "A server does not serve all of it as before.",
        };
        let _ = writeln!(out, "\n{conclusion} Nothing was written.");
        out
    }

    pub fn json(&self) -> Value {
        let severity = |it: Severity| match it {
            Severity::Blocks => "blocks",
            Severity::Differs => "differs",
            Severity::Note => "note",
        };
        let resources: BTreeMap<&String, Value> = self
            .resources
            .iter()
            .map(|(name, it)| {
                let count =
                    json!({"versions": it.versions, "encrypted": it.encrypted, "expiring": it.expiring});
                (name, count)
            })
            .collect();
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|it| json!({"severity": severity(it.severity), "text": it.text, "subjects": it.subjects}))
            .collect();
        let flag = |it: &SuggestedFlag| json!({"command": it.command, "flag": it.flag, "why": it.why});
        let flags: Vec<Value> = self.flags.iter().map(flag).collect();
        json!({
            "revision": self.revision.0,
            "clean": self.is_clean(),
            "resources": resources,
            "findings": findings,
            "flags": flags,
        })
    }
}
