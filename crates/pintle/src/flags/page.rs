//! Generates `docs/flags.md` from the declarations: all flags and feature gates.

use super::ignored::HEADING;
use super::{COMPONENTS, Component};
use crate::options::gates::{self, Gate};
use clap::{Arg, Command};
use network::proxy::flag_table;
use nodeagent::configuration::{self, DIALECT_FLAGS};
use std::fmt::Write as _;

/// The path of the page.
pub const FILE: &str = "docs/flags.md";
/// The environment variable that makes the test write the page.
pub const WRITE: &str = "PINTLE_WRITE_DOCS";

/// The flags that upstream's components have, as facts: name, type and default.
const UPSTREAM: &[(&str, &str)] = &[
    ("apiserver", include_str!("upstream/apiserver.txt")),
    ("controller-manager", include_str!("upstream/controller-manager.txt")),
    ("scheduler", include_str!("upstream/scheduler.txt")),
];

/// A flag of upstream, as a fact.
pub struct UpstreamFlag {
    pub name: &'static str,
    pub takes: &'static str,
    pub default: String,
    pub deprecated: bool,
}

/// The flags that upstream has.
pub fn upstream_flags(component: &Component) -> Vec<UpstreamFlag> {
    let names = names::Names::kubernetes();
    let spelled = |text: &str| text.replace("{domain}", &names.api_domain).replace("{vendor}", &names.vendor);
    let facts = UPSTREAM.iter().find(|(command, _)| *command == component.command);
    let lines = facts.map_or("", |(_, text)| *text).lines().filter(|line| !line.starts_with('#'));
    let known = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, takes, default) = (words.next()?, words.next()?, words.next()?.strip_prefix('=')?);
        Some(UpstreamFlag { name, takes, default: spelled(default), deprecated: words.next().is_some() })
    });
    known.collect()
}

/// The whole page.
pub fn render(program: &Command) -> String {
    let mut page = format!(
        "# Flags\n\n\
         The flags of each component and all feature gates. This page is generated from the code: `{WRITE}=1 cargo test \
         -p pintle flags` writes it.\n\n\
         The syntax is upstream's: `--flag=value` or `--flag value`; `--flag` or `--flag=false` for booleans; commas or \
         repetition for lists; `_` and `-` are equivalent. If a flag that is not a list is repeated, the last value \
         counts. All errors of a command line are reported at once, one line each, and nothing is started. The value of \
         an ignored flag is validated too, and the log says that the flag has no effect. `pintle up` accepts the flags of \
         all components.\n"
    );
    for component in COMPONENTS {
        if let Some(command) = program.find_subcommand(component.command) {
            write_component(&mut page, component, command);
        }
    }
    write_node_agent(&mut page);
    write_service_proxy(&mut page);
    write_gates(&mut page);
    page
}

/// The node agent reads its command line itself, as upstream's does: most of it are fields of its configuration.
fn write_node_agent(page: &mut String) {
    let rows = configuration::flag_rows();
    let ignored = rows.iter().filter(|it| it.effect.is_err()).count();
    let _ = write!(
        page,
        "\n## pintle nodeagent\n\nA link named `kubelet` or `nodeagent` also runs this command. Of upstream's {} flags, \
         {} work and {ignored} are accepted without effect, and the log says so. A flag overrides the field of the \
         configuration file (`--config`); defaults are those of a file. `--dialect`, `--api-domain` and `--vendor` are those \
         of the API server.\n\n| flag | default | what it does |\n|---|---|---|\n",
        rows.len() - DIALECT_FLAGS.len(),
        rows.len() - DIALECT_FLAGS.len() - ignored,
    );
    for row in &rows {
        let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
        let effect = row.description().replace('|', "\\|");
        let _ = writeln!(page, "| `--{}` | {default} | {effect} |", row.name);
    }
    page.push_str(
        "\nFields of the configuration file that are checked and have no effect:\n\n| field | why |\n|---|---|\n",
    );
    for (field, why) in configuration::ignored_fields() {
        let _ = writeln!(page, "| `{field}` | {why} |");
    }
}

/// The service proxy reads its command line itself, too.
fn write_service_proxy(page: &mut String) {
    let rows = flag_table::flag_rows();
    let ignored = rows.iter().filter(|it| it.effect.is_err()).count();
    let _ = write!(
        page,
        "\n## pintle proxy\n\nA link named `kube-proxy` also runs this command. Of upstream's {} flags, {} work and \
         {ignored} are accepted without effect. As with upstream, flags that set fields count only without a \
         configuration file (`--config`).\n\n| flag | default | what it does |\n|---|---|---|\n",
        rows.len(),
        rows.len() - ignored,
    );
    for row in &rows {
        let default = match row.default {
            "" => String::new(),
            default => format!("`{}`", default.replace("{}", &names::Names::kubernetes().vendor)),
        };
        let _ = writeln!(page, "| `--{}` | {default} | {} |", row.name, row.description());
    }
}

fn write_component(page: &mut String, component: &Component, command: &Command) {
    let known = upstream_flags(component);
    let ignored =
        known.iter().filter(|it| component.ignored().any(|ignored| ignored.name == it.name)).count();
    let is_partly = |argument: &&Arg| {
        let known = known.iter().any(|it| Some(it.name) == argument.get_long());
        known && argument.get_help().is_some_and(|it| it.to_string().contains("there yet"))
    };
    let partly = command.get_arguments().filter(is_partly).count();
    let prefixes = [names::Names::kubernetes(), names::Names::neutral("", "")].map(|it| it.prefix);
    let links: Vec<_> = prefixes.iter().map(|it| format!("`{it}-{}`", component.command)).collect();
    let refused = match partly {
        0 => String::new(),
        some => format!(", {some} are rejected for values that are not supported yet,"),
    };
    // writing to a string cannot fail
    let _ = write!(
        page,
        "\n## pintle {}\n\nA link named {} also runs this command. Of upstream's {} flags, {} work{refused} \
         and {ignored} are accepted without effect. A default in \
         *italics* differs from upstream's.\n",
        component.command,
        links.join(" or "),
        known.len(),
        known.len() - ignored - partly,
    );
    let mut headings: Vec<&str> = Vec::new();
    let listed = |name: &str| name != super::VERSION;
    let is_listed =
        |argument: &&Arg| argument.get_long().is_some_and(listed) && argument.get_help().is_some();
    for argument in command.get_arguments().filter(is_listed) {
        let heading = argument.get_help_heading().unwrap_or("Options");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let _ = write!(page, "\n### {heading}\n\n| flag | default | what it does |\n|---|---|---|\n");
        let here = |it: &&Arg| is_listed(it) && it.get_help_heading().unwrap_or("Options") == heading;
        let mut here: Vec<_> = command.get_arguments().filter(here).collect();
        here.sort_by_key(|it| it.get_long());
        for argument in here {
            row(page, argument, &known);
        }
    }
}

fn row(page: &mut String, argument: &Arg, known: &[UpstreamFlag]) {
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

/// The default value of a flag.
pub fn own_default(argument: &Arg) -> String {
    let values: Vec<_> = argument.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    values.join(",")
}

fn write_gates(page: &mut String) {
    page.push_str(
        "\n## Feature gates\n\n\
         `--feature-gates` accepts these on every component. `AllAlpha` and `AllBeta` set all gates of that stage that are \
         not named. A locked gate keeps its value. Setting a gate of a feature that is not implemented changes nothing, and \
         the log says so.\n\n| gate | stage | default | what it changes |\n|---|---|---|---|\n",
    );
    for gate in gates::all() {
        let default = if gate.open { "true" } else { "false" };
        let locked = if gate.locked { ", locked" } else { "" };
        let changes = changes(&gate);
        let _ = writeln!(page, "| `{}` | {} | {default}{locked} | {changes} |", gate.name, gate.stage);
    }
}

/// The effect of a gate, or the reason why it has none.
fn changes(gate: &Gate) -> String {
    match (gates::effect(gate.name), gates::why_without_effect(gate.name)) {
        _ if gate.locked => "nothing: the feature is always on".to_owned(),
        (Some(changes), _) => changes.to_owned(),
        (None, Some(why)) => format!("nothing: {why}"),
        (None, None) if gate.stage == "ga" => "nothing: the feature is finished".to_owned(),
        (None, None) => "nothing yet".to_owned(),
    }
}
