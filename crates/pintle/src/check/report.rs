//! Findings as text, line by line, and as JSON.

use super::requirements::{Finding, Requirement, Status};
use crate::options::Role;
use serde_json::json;
use std::io::Write;

/// The width of the columns of status and name.
const STATUS: usize = 8;
const NAME: usize = 20;

/// All findings, in the order of the table.
#[derive(Default)]
pub struct Report {
    findings: Vec<(&'static Requirement, Finding)>,
}

impl Report {
    pub fn add(&mut self, requirement: &'static Requirement, finding: Finding) {
        self.findings.push((requirement, finding));
    }

    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.count(Status::Missing) == 0
    }

    fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|(_, finding)| finding.status == status).count()
    }

    fn to_json(&self) -> serde_json::Value {
        let checks = self.findings.iter().map(|(requirement, finding)| {
            let mut check = json!({
                "name": requirement.name,
                "purpose": requirement.purpose,
                "status": finding.status.name(),
                "detail": finding.detail,
            });
            if finding.status != Status::Ok {
                check["advice"] = requirement.advice.into();
            }
            check
        });
        json!({"ready": self.is_ready(), "checks": checks.collect::<Vec<_>>()})
    }
}

/// Writes a report. A closed terminal is not an error.
pub struct TextWriter<W: Write>(pub W);

impl<W: Write> TextWriter<W> {
    /// The line of a finding, and below it what to do.
    pub fn line(&mut self, requirement: &Requirement, finding: &Finding) {
        let (status, name) = (finding.status.name(), requirement.name);
        let _ = writeln!(self.0, "{status:<STATUS$} {name:<NAME$} {}", finding.detail);
        if finding.status != Status::Ok {
            for (label, text) in [("needed for", requirement.purpose), ("what to do", requirement.advice)] {
                let _ = writeln!(self.0, "{:STATUS$} {label}: {text}", "");
            }
        }
        let _ = self.0.flush();
    }

    pub fn end(&mut self, report: &Report, role: Role) {
        let (missing, warnings) = (report.count(Status::Missing), report.count(Status::Warning));
        let count = |number: usize, one: &str, many: &str| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {many}"),
        };
        let warnings = count(warnings, "warning", "warnings");
        let _ = match missing {
            0 => writeln!(self.0, "\nPods can run here by {}; {warnings}.", role.command()),
            _ => writeln!(
                self.0,
                "\nPods cannot run here by {} yet: {}, {warnings}.",
                role.command(),
                count(missing, "thing is missing", "things are missing")
            ),
        };
    }

    pub fn json(&mut self, report: &Report) {
        let _ = writeln!(self.0, "{:#}", report.to_json());
    }
}
