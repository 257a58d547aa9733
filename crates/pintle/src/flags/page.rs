//! The page that lists every flag of every component and every feature gate, from the declarations.

use super::idle::HEADING;
use super::{COMPONENTS, Component};
use crate::options::gates::{self, Gate};
use clap::{Arg, Command};
use std::fmt::Write as _;

/// Where it is.
pub const FILE: &str = "docs/flags.md";
/// With this in the environment the test of it writes it.
pub const WRITE: &str = "PINTLE_WRITE_DOCS";

/// The flags that upstream's components have, as facts: name, type and default.
const UPSTREAM: &[(&str, &str)] = &[
    ("apiserver", include_str!("upstream/apiserver.txt")),
    ("controller-manager", include_str!("upstream/controller-manager.txt")),
];

/// A flag of upstream, as a fact.
pub struct Known {
    pub name: &'static str,
    pub takes: &'static str,
    pub default: String,
    pub deprecated: bool,
}

/// The flags that upstream has.
pub fn known(component: &Component) -> Vec<Known> {
    let names = names::Names::kubernetes();
    let spelled = |text: &str| text.replace("{domain}", &names.api_domain).replace("{vendor}", &names.vendor);
    let facts = UPSTREAM.iter().find(|(command, _)| *command == component.command);
    let lines = facts.map_or("", |(_, text)| *text).lines().filter(|line| !line.starts_with('#'));
    let known = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, takes, default) = (words.next()?, words.next()?, words.next()?.strip_prefix('=')?);
        Some(Known { name, takes, default: spelled(default), deprecated: words.next().is_some() })
    });
    known.collect()
}

/// The whole page.
pub fn render(program: &Command) -> String {
    let mut page = format!(
        "# Flags\n\n\
         What each component can be told. This page is made from the code: `{WRITE}=1 cargo test -p pintle flags` writes \
         it anew.\n\n\
         Flags are written as upstream's are: `--flag=value` or `--flag value`, `--flag` or `--flag=false` for those \
         that are true or false, commas or repetition for lists, `_` for `-` as one likes. Of several values that do \
         not add up the last one counts. Everything that is wrong is told at once, one line each, and nothing is \
         started. A flag that has no effect has its value checked all the same, and the log says that it has none. \
         `pintle up` takes the flags of all components.\n"
    );
    for component in COMPONENTS {
        if let Some(command) = program.find_subcommand(component.command) {
            of_component(&mut page, component, command);
        }
    }
    of_gates(&mut page);
    page
}

fn of_component(page: &mut String, component: &Component, command: &Command) {
    let known = known(component);
    let idle = known.iter().filter(|it| component.idle().any(|idle| idle.name == it.name)).count();
    let is_partly = |argument: &&Arg| {
        let known = known.iter().any(|it| Some(it.name) == argument.get_long());
        known && argument.get_help().is_some_and(|it| it.to_string().contains("there yet"))
    };
    let partly = command.get_arguments().filter(is_partly).count();
    let prefixes = [names::Names::kubernetes(), names::Names::neutral("", "")].map(|it| it.prefix);
    let links: Vec<_> = prefixes.iter().map(|it| format!("`{it}-{}`", component.command)).collect();
    let refused = match partly {
        0 => String::new(),
        some => format!(", {some} are refused where they ask for what is not there yet,"),
    };
    // writing to a string cannot fail
    let _ = write!(
        page,
        "\n## pintle {}\n\nAlso runs as {}, by a link of that name. Of the {} flags that upstream has, {} work{refused} \
         and {idle} are accepted without effect. A default in \
         *italics* differs from upstream's.\n",
        component.command,
        links.join(" and "),
        known.len(),
        known.len() - idle - partly,
    );
    let mut headings: Vec<&str> = Vec::new();
    let listed = |name: &str| name != super::VERSION;
    let shown = |argument: &&Arg| argument.get_long().is_some_and(listed) && argument.get_help().is_some();
    for argument in command.get_arguments().filter(shown) {
        let heading = argument.get_help_heading().unwrap_or("Options");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let _ = write!(page, "\n### {heading}\n\n| flag | default | what it does |\n|---|---|---|\n");
        let here = |it: &&Arg| shown(it) && it.get_help_heading().unwrap_or("Options") == heading;
        let mut here: Vec<_> = command.get_arguments().filter(here).collect();
        here.sort_by_key(|it| it.get_long());
        for argument in here {
            row(page, argument, &known);
        }
    }
}

fn row(page: &mut String, argument: &Arg, known: &[Known]) {
    let name = argument.get_long().unwrap_or_default();
    let upstream = known.iter().find(|it| it.name == name);
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
    let default = own_default(argument);
    let default = match upstream {
        _ if default.is_empty() => String::new(),
        Some(it) if it.default != default && argument.get_help_heading() != Some(HEADING) => {
            format!("*{default}*")
        }
        _ => format!("`{default}`"),
    };
    let own = if upstream.is_none() { " (not upstream's)" } else { "" };
    let _ = writeln!(page, "| `--{name}` | {default} | {help}{own} |");
}

/// What holds where a flag is not given.
pub fn own_default(argument: &Arg) -> String {
    let values: Vec<_> = argument.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    values.join(",")
}

fn of_gates(page: &mut String) {
    page.push_str(
        "\n## Feature gates\n\n\
         `--feature-gates` takes these on every component. `AllAlpha` and `AllBeta` stand for all gates of that stage \
         that are not named. A gate that is locked keeps its value. Where nothing stands behind a gate, setting it changes \
         nothing and the log says so.\n\n| gate | stage | default | what it changes |\n|---|---|---|---|\n",
    );
    for gate in gates::all() {
        let default = if gate.open { "true" } else { "false" };
        let locked = if gate.locked { ", locked" } else { "" };
        let changes = changes(&gate);
        let _ = writeln!(page, "| `{}` | {} | {default}{locked} | {changes} |", gate.name, gate.stage);
    }
}

/// What a gate changes, or why nothing.
fn changes(gate: &Gate) -> String {
    match (gates::behind(gate.name), gates::elsewhere(gate.name)) {
        (Some(changes), _) => changes.to_owned(),
        _ if gate.locked => "nothing: the feature is finished, and cannot be switched".to_owned(),
        (None, Some(whose)) => format!("nothing here: it is about {whose}"),
        (None, None) if gate.stage == "ga" => "nothing: the feature is finished".to_owned(),
        (None, None) => "nothing yet".to_owned(),
    }
}
