//! Flags as operators of upstream write them, for every component.
//!
//! A flag is declared once: as a field of a clap struct where it does something (`options`), or as a line of a table
//! where it is accepted without effect (`apiserver.rs`). Help, warnings and `docs/flags.md` are made from that.
//!
//! What always holds: every wrong argument is named, not only the first; a flag without effect has its value checked
//! all the same, and says in one line of the log that it has none and why; so does a deprecated one that it is.
//!
//! | part | what it does |
//! |---|---|
//! | `line.rs` | reads a command line in upstream's syntax and gathers what is wrong with it |
//! | `idle.rs` | the table of flags without effect |
//! | `value.rs` | the forms of values |
//! | `page.rs` | the page that lists all of them |
//!
//! A further component needs: its subcommand in `cli.rs`, its table, a line in [`COMPONENTS`], and the flags that
//! upstream has as facts (`upstream/`, named in `page.rs`), by which tests see that none is missing.

mod apiserver;
mod controller_manager;
mod every;
mod idle;
mod line;
#[cfg(test)]
mod page;
mod value;

pub use idle::Idle;
pub use line::{Line, Unread, read};
pub use value::{any_duration, duration, truth};

use clap::{Arg, ArgAction, Command};

/// A component of upstream that a command stands for.
pub struct Component {
    /// The command, and the ending of the names by which a link to the program runs it.
    pub command: &'static str,
    /// What it can be told without effect, besides what all can.
    idle: &'static [Idle],
    /// What it does where nothing is said, if that differs from what is declared: flag and value.
    pub defaults: &'static [(&'static str, &'static str)],
}

impl Component {
    /// What it can be told without effect.
    pub fn idle(&self) -> impl Iterator<Item = &'static Idle> {
        every::IDLE.iter().chain(self.idle)
    }
}

pub const COMPONENTS: &[Component] = &[
    Component { command: "apiserver", idle: apiserver::IDLE, defaults: apiserver::DEFAULTS },
    Component {
        command: "controller-manager",
        idle: controller_manager::IDLE,
        defaults: controller_manager::DEFAULTS,
    },
];

/// The name of the flag that prints the version.
const VERSION: &str = "version";

/// The command that runs all components takes the flags of all.
const ALL: &str = "up";

/// The flags without effect of a command, each once.
fn idle_of(command: &str) -> Vec<&'static Idle> {
    let mut all: Vec<&'static Idle> = Vec::new();
    for component in COMPONENTS.iter().filter(|it| it.command == command || command == ALL) {
        for flag in component.idle() {
            if !all.iter().any(|it| it.name == flag.name) {
                all.push(flag);
            }
        }
    }
    all
}

/// Adds to each command what the tables say about it.
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
            for flag in idle_of(&name) {
                // what means nothing to one component may mean something to another
                if !command.get_arguments().any(|it| it.get_long() == Some(flag.name)) {
                    command = command.arg(flag.argument());
                }
            }
            for (flag, value) in component.map_or(&[][..], |it| it.defaults) {
                let id = flag.replace('-', "_");
                command = command.mut_arg(id, |argument| argument.default_value(*value));
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

/// The command that a name of the program stands for: `kube-apiserver` and `cluster-apiserver` for `apiserver`.
pub fn command_of<'a>(program: &'a Command, called: &str) -> Option<&'a str> {
    let names = [names::Names::kubernetes(), names::Names::neutral("", "")];
    let ending = names.iter().find_map(|it| called.strip_prefix(&*it.prefix)?.strip_prefix('-'))?;
    program.get_subcommands().map(Command::get_name).find(|name| *name == ending && *name != ALL)
}

#[cfg(test)]
mod tests;
