//! The command `pintle check`: what this machine lacks for running pods, and how to get it.
//!
//! | module | what it is |
//! |---|---|
//! | [`requirements`] | the table: name, purpose, probe and advice of each requirement |
//! | [`machine`] | the facts about a machine that probes judge, as a trait; `local` reads them from this one |
//! | [`report`] | findings as text or JSON |
//!
//! Nothing of the machine is changed. Each requirement is one that the code of the agent, of the network or of the server
//! has, and its facts are read by that code.

mod local;
mod machine;
mod report;
mod requirements;

use crate::options::{CheckArgs, CheckOutput};
use env::World;
use local::LocalMachine;
use report::{Report, TextWriter};
use requirements::REQUIREMENTS;
use std::io::stdout;

/// Checks the machine and prints the report. Returns whether nothing is missing.
pub fn check(args: &CheckArgs, world: World) -> anyhow::Result<bool> {
    let machine = LocalMachine::new(args, world)?;
    let mut report = Report::default();
    let mut text = TextWriter(stdout());
    for requirement in REQUIREMENTS.iter().filter(|it| it.roles.contains(&args.role)) {
        let finding = requirement.check(&machine);
        // a line appears when it is known: a runtime that does not answer takes a while
        if args.output == CheckOutput::Text {
            text.line(requirement, &finding);
        }
        report.add(requirement, finding);
    }
    match args.output {
        CheckOutput::Text => text.end(&report, args.role),
        CheckOutput::Json => text.json(&report),
    }
    Ok(report.is_ready())
}
