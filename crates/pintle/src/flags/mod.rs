//! The flags of upstream's components: syntax, ignored flags, defaults, reference page.
//!
//! A flag is declared once: as a field of a clap struct if it has an effect (`options`), or as a line of a table if it
//! is ignored (`apiserver.rs`). Help, warnings and `docs/flags.md` are generated from the declarations.
//!
//! Invariants: all invalid arguments are reported, not only the first. The value of an ignored flag is validated too,
//! and a log line says that the flag has no effect and why. A deprecated flag is logged as well.
//!
//! | part | what it does |
//! |---|---|
//! | `parser.rs` | reads a command line in upstream's syntax and gathers what is wrong with it |
//! | `ignored.rs` | the table of flags without effect |
//! | `value.rs` | the forms of values |
//! | `page.rs` | the page that lists all of them |
//!
//! A further component needs: its subcommand in `cli.rs`, its table, a line in [`COMPONENTS`], and the flags that
//! upstream has as facts (`upstream/`, named in `page.rs`), by which tests see that none is missing.

mod apiserver;
mod controller_manager;
mod ignored;
#[cfg(test)]
mod page;
mod parser;
mod scheduler;
mod shared;
mod value;

pub use ignored::IgnoredFlag;
pub use parser::{ParseError, ParsedLine, read};
pub use value::{any_duration, duration, parse_bool};

use clap::{Arg, ArgAction, Command};

/// A command that replaces a component of upstream.
pub struct Component {
    /// The command, and the suffix of link names that run it.
    pub command: &'static str,
    /// Its ignored flags, besides those of all components.
    ignored: [&'static [IgnoredFlag]; 2],
    /// Defaults that differ from the declared ones: flag and value.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Flags that only this component deprecates: flag and help.
    deprecated: &'static [(&'static str, &'static str)],
}

impl Component {
    /// All ignored flags of the component.
    pub fn ignored(&self) -> impl Iterator<Item = &'static IgnoredFlag> {
        shared::IGNORED.iter().chain(self.ignored.into_iter().flatten())
    }
}

pub const COMPONENTS: &[Component] = &[
    Component {
        command: "apiserver",
        ignored: [shared::CLOUD, apiserver::IGNORED],
        defaults: apiserver::DEFAULTS,
        deprecated: &[],
    },
    Component {
        command: "controller-manager",
        ignored: [shared::CLOUD, controller_manager::IGNORED],
        defaults: controller_manager::DEFAULTS,
        deprecated: &[],
    },
    Component {
        command: "scheduler",
        ignored: [&[], scheduler::IGNORED],
        defaults: scheduler::DEFAULTS,
        deprecated: scheduler::DEPRECATED,
    },
];

/// The name of the flag that prints the version.
const VERSION: &str = "version";

/// The command that runs all components takes the flags of all.
const ALL: &str = "up";

/// The ignored flags of a command, without duplicates.
fn ignored_flags(command: &str) -> Vec<&'static IgnoredFlag> {
    let mut all: Vec<&'static IgnoredFlag> = Vec::new();
    for component in COMPONENTS.iter().filter(|it| it.command == command || command == ALL) {
        for flag in component.ignored() {
            if !all.iter().any(|it| it.name == flag.name) {
                all.push(flag);
            }
        }
    }
    all
}

/// Adds the ignored flags and defaults to each command.
pub fn complete(mut program: Command) -> Command {
    let commands: Vec<String> =
        program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    program = program.arg(version().short('V'));
    for name in commands {
        let component = COMPONENTS.iter().find(|it| it.command == name);
        program = program.mut_subcommand(&name, |mut command| {
            if component.is_some() || name == ALL {
                command = command.arg(version());
            }
            for flag in ignored_flags(&name) {
                // a flag that one component ignores may have an effect in another
                if !command.get_arguments().any(|it| it.get_long() == Some(flag.name)) {
                    command = command.arg(flag.argument());
                }
            }
            for (flag, value) in component.map_or(&[][..], |it| it.defaults) {
                let id = flag.replace('-', "_");
                command = command.mut_arg(id, |argument| argument.default_value(*value));
            }
            for (flag, help) in component.map_or(&[][..], |it| it.deprecated) {
                command = command.mut_arg(flag.replace('-', "_"), |argument| argument.help(*help));
            }
            // upstream takes the last of several
            command.args_override_self(true)
        });
    }
    program
}

/// The flag that prints the version. It is listed in help; `cli.rs` answers it before the line is parsed.
fn version() -> Arg {
    let value = Arg::new(VERSION).long(VERSION).value_name("BOOL|raw").num_args(0..=1).require_equals(true);
    value.default_missing_value("true").action(ArgAction::Set).help("Print the version and quit")
}

/// The command of a link name: `kube-apiserver` and `cluster-apiserver` run `apiserver`.
pub fn command_of<'a>(program: &'a Command, called: &str) -> Option<&'a str> {
    let names = [names::Names::kubernetes(), names::Names::neutral("", "")];
    let ending = names.iter().find_map(|it| called.strip_prefix(&*it.prefix)?.strip_prefix('-'))?;
    program.get_subcommands().map(Command::get_name).find(|name| *name == ending && *name != ALL)
}

#[cfg(test)]
mod tests;
