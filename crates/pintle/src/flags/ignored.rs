//! Ignored flags: accepted without effect, so that upstream command lines work.

use super::value::Type;
use clap::{Arg, ArgAction};

/// The heading in help.
pub const HEADING: &str = "Accepted without effect";

/// An ignored flag.
#[derive(Debug, Clone, Copy)]
pub struct IgnoredFlag {
    pub name: &'static str,
    pub takes: Type,
    /// Upstream's default.
    pub default: &'static str,
    /// The reason, as the end of a sentence.
    pub why: &'static str,
    /// Whether upstream deprecates it.
    pub deprecated: bool,
}

impl IgnoredFlag {
    pub const fn new(name: &'static str, takes: Type, default: &'static str, why: &'static str) -> Self {
        IgnoredFlag { name, takes, default, why, deprecated: false }
    }

    pub const fn deprecated(self) -> Self {
        IgnoredFlag { deprecated: true, ..self }
    }

    /// The log line if the flag is given.
    pub fn warning(&self) -> String {
        let deprecated = if self.deprecated { "is deprecated and " } else { "" };
        format!("--{} {deprecated}has no effect: {}", self.name, self.why)
    }

    /// The clap argument.
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
