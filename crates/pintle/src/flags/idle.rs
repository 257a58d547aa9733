//! Flags that are accepted without effect, so that a command line that works elsewhere works here.

use super::value::Type;
use clap::{Arg, ArgAction};

/// Where help lists them.
pub const HEADING: &str = "Accepted without effect";

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    pub name: &'static str,
    pub takes: Type,
    /// What holds elsewhere where it is not given.
    pub default: &'static str,
    /// Why it changes nothing, as the end of a sentence.
    pub why: &'static str,
    /// Upstream will do without it, too.
    pub deprecated: bool,
}

impl Idle {
    pub const fn new(name: &'static str, takes: Type, default: &'static str, why: &'static str) -> Self {
        Idle { name, takes, default, why, deprecated: false }
    }

    pub const fn deprecated(self) -> Self {
        Idle { deprecated: true, ..self }
    }

    /// What the log says where it is given.
    pub fn warning(&self) -> String {
        let deprecated = if self.deprecated { "is deprecated and " } else { "" };
        format!("--{} {deprecated}has no effect: {}", self.name, self.why)
    }

    /// As the parser of command lines knows it.
    pub fn argument(&self) -> Arg {
        let takes = self.takes;
        let argument = Arg::new(self.name)
            .long(self.name)
            .help(format!("No effect: {}", self.why))
            .help_heading(HEADING)
            .value_name(takes.placeholder())
            .action(if takes.gathers() { ArgAction::Append } else { ArgAction::Set });
        let argument = match self.default {
            "" => argument,
            default => argument.default_value(default),
        };
        match takes {
            // as everywhere: true alone, and a value only behind the equals sign
            Type::Bool => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(clap::value_parser!(bool)),
            _ => argument.value_parser(move |text: &str| takes.check(text)),
        }
    }
}
