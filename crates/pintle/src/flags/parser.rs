//! The parser of command lines in upstream's syntax.
//!
//! Clap has another syntax and stops at the first error. So each argument is first normalized to `--flag=value`:
//!
//! ```text
//! --secure_port 7 -v=2 --profiling --anonymous-auth=F
//! --secure-port=7 -vv  --profiling --anonymous-auth=false
//! ```
//!
//! If clap rejects the whole line, each argument is parsed alone, so that all errors are reported.

use super::ignored::HEADING;
use super::value::parse_bool;
use super::{COMPONENTS, VERSION, ignored_flags};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::any::TypeId;
use std::ffi::{OsStr, OsString};

/// Marks a deprecated flag in its help text; the replacement follows.
const DEPRECATED: &str = "Deprecated: ";

/// The maximum of a counted flag.
const MOST: usize = 10;

/// The outcome of a line that cannot be parsed.
#[derive(Debug)]
pub enum ParseError {
    Help(String),
    /// All errors, one line each, and the matches of the valid arguments.
    ConfigErrors(Vec<String>, Option<Box<ArgMatches>>),
}

/// The parsed arguments and the warnings for the log.
pub struct ParsedLine {
    pub matches: ArgMatches,
    pub warnings: Vec<String>,
}

/// Parses the arguments: program name, command, flags.
pub fn read(program: &Command, arguments: &[OsString]) -> Result<ParsedLine, ParseError> {
    let named = arguments.get(1).and_then(|name| program.find_subcommand(name));
    // commands without a counterpart upstream may take words, in clap's syntax
    let command = named.filter(|it| !it.has_subcommands() && it.get_positionals().next().is_none());
    let Some(command) = command else {
        let whole = program.clone().try_get_matches_from(arguments);
        return whole
            .map(|matches| ParsedLine { matches, warnings: Vec::new() })
            .map_err(|error| parse_error(&error, named));
    };
    let mut normalizer =
        Normalizer { command, items: Vec::new(), problems: Vec::new(), warnings: Vec::new() };
    normalizer.take_all(&arguments[2..]);
    let Normalizer { items, mut problems, warnings, .. } = normalizer;
    let parse = |items: &[OsString]| {
        let words = arguments[..2].iter().chain(items);
        program.clone().try_get_matches_from(words)
    };
    let error = match parse(&items) {
        Ok(matches) if problems.is_empty() => return Ok(ParsedLine { matches, warnings }),
        Ok(matches) => return Err(ParseError::ConfigErrors(problems, Some(Box::new(matches)))),
        Err(error) => error,
    };
    if let help @ ParseError::Help(_) = parse_error(&error, Some(command)) {
        return Err(help);
    }
    // a required argument may be another item
    let lacks = |error: &clap::Error| error.kind() == ErrorKind::MissingRequiredArgument;
    let mut good = Vec::new();
    for item in &items {
        match parse(std::slice::from_ref(item)) {
            Err(error) if !lacks(&error) => {
                let problem = problem(&error);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
            _ => good.push(item.clone()),
        }
    }
    let rest = parse(&good);
    match rest {
        Ok(matches) => Err(ParseError::ConfigErrors(problems, Some(Box::new(matches)))),
        // each is right, but not all together
        Err(error) => {
            problems.push(problem(&error));
            Err(ParseError::ConfigErrors(problems, None))
        }
    }
}

/// A command line that becomes one of a single form.
struct Normalizer<'a> {
    command: &'a Command,
    items: Vec<OsString>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

impl Normalizer<'_> {
    fn take_all(&mut self, arguments: &[OsString]) {
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(text) = argument.to_str() else {
                self.problems.push(format!("{argument:?} is not UTF-8"));
                continue;
            };
            match text.strip_prefix("--") {
                Some("") => {
                    rest.by_ref().for_each(|word| self.stray(word));
                }
                Some(flag) => self.long(text, flag, &mut rest),
                None if text.len() > 1 && text.starts_with('-') => self.short(text, &mut rest),
                None => self.stray(argument),
            }
        }
    }

    fn stray(&mut self, word: &OsStr) {
        self.problems
            .push(format!("unexpected argument {word:?}: only flags are taken, and what follows them"));
    }

    fn long<'b>(&mut self, text: &str, flag: &str, rest: &mut (impl Iterator<Item = &'b OsString> + Clone)) {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(OsString::from(value))),
            None => (flag.replace('_', "-"), None),
        };
        // version_exit handled it
        if name == VERSION {
            return;
        }
        let Some(argument) = self.command.get_arguments().find(|it| is_called(it, &name)) else {
            // clap suggests the right name; the next word is the value
            self.items.push(text.into());
            if value.is_none() && name != "help" {
                let ahead = rest.clone().next();
                if ahead.is_some_and(|next| !next.to_string_lossy().starts_with('-')) {
                    rest.next();
                }
            }
            return;
        };
        self.warn(argument, &name);
        let name = argument.get_long().unwrap_or_default();
        match argument.get_action() {
            ArgAction::Count => {
                let value = value.or_else(|| level_ahead(rest));
                self.counted(argument, value.as_deref());
            }
            ArgAction::SetTrue => match value.as_deref().map(|value| parse_bool(&value.to_string_lossy())) {
                None | Some(Some(true)) => self.items.push(format!("--{name}").into()),
                Some(Some(false)) => {}
                Some(None) => {
                    self.problems.push(format!("invalid value for '--{name}': must be true or false"));
                }
            },
            action if action.takes_values() => {
                let value = match value {
                    None if !argument.is_require_equals_set() => rest.next().cloned(),
                    given => given,
                };
                // nothing, where nothing is the default, says nothing
                let says = value.as_ref().is_none_or(|value| !value.is_empty());
                if says || !argument.get_default_values().is_empty() {
                    self.items.push(joined(argument, name, value));
                }
            }
            _ => self.items.push(format!("--{name}").into()),
        }
    }

    /// `-v`, `-vv`, `-v2`, `-v=2` and `-v 2`.
    fn short<'b>(&mut self, text: &str, rest: &mut (impl Iterator<Item = &'b OsString> + Clone)) {
        let letters = &text[1..];
        let first = letters.chars().next().unwrap_or_default();
        let Some(argument) = self.command.get_arguments().find(|it| it.get_short() == Some(first)) else {
            self.items.push(text.into());
            return;
        };
        let effect = &letters[first.len_utf8()..];
        let value = Some(effect.strip_prefix('=').unwrap_or(effect)).filter(|it| !it.is_empty());
        let value = value.map(OsString::from);
        match argument.get_action() {
            ArgAction::Count if effect.chars().all(|letter| letter == first) => {
                let level = if effect.is_empty() { level_ahead(rest) } else { None };
                match level {
                    Some(level) => self.counted(argument, Some(&level)),
                    None => self.items.push(text.into()),
                }
            }
            ArgAction::Count => self.counted(argument, value.as_deref()),
            action if action.takes_values() => {
                let value = value.or_else(|| rest.next().cloned());
                let name = argument.get_long().map(str::to_owned);
                self.items.push(match name {
                    Some(name) => joined(argument, &name, value),
                    None => text.into(),
                });
            }
            _ => self.items.push(text.into()),
        }
    }

    /// A flag that is counted, given as a number.
    fn counted(&mut self, argument: &Arg, value: Option<&OsStr>) {
        let Some(letter) = argument.get_short() else { return };
        let count = match value.map(|value| value.to_string_lossy().parse::<usize>()) {
            None => 1,
            Some(Ok(count)) => count.min(MOST),
            Some(Err(_)) => {
                self.problems
                    .push(format!("invalid value for '-{letter}': must be a whole number, at least 0"));
                return;
            }
        };
        if count > 0 {
            self.items.push(format!("-{}", letter.to_string().repeat(count)).into());
        }
    }

    /// Adds the warning of an ignored or deprecated flag.
    fn warn(&mut self, argument: &Arg, called: &str) {
        let listed = argument.get_help_heading() == Some(HEADING);
        let ignored =
            ignored_flags(self.command.get_name()).into_iter().find(|it| listed && it.name == called);
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let warning = match (ignored, help.split_once(DEPRECATED)) {
            (Some(ignored), _) => ignored.warning(),
            (None, Some((_, instead))) => format!("--{called} is deprecated: {instead}"),
            (None, None) => match argument.get_long() {
                Some(name) if name != called && called.len() > 1 => {
                    format!("--{called} is deprecated: use --{name}")
                }
                _ => return,
            },
        };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn is_called(argument: &Arg, name: &str) -> bool {
    argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|it| it.contains(&name))
}

/// The next word, if it is a number.
fn level_ahead<'b>(rest: &mut (impl Iterator<Item = &'b OsString> + Clone)) -> Option<OsString> {
    let next = rest.clone().next()?;
    let number = !next.is_empty() && next.to_string_lossy().bytes().all(|c| c.is_ascii_digit());
    number.then(|| rest.next().cloned()).flatten()
}

/// `--name=value`; a truth is spelled as clap wants it.
fn joined(argument: &Arg, name: &str, value: Option<OsString>) -> OsString {
    let mut whole = OsString::from(format!("--{name}"));
    let Some(value) = value else { return whole };
    let is_bool = argument.get_value_parser().type_id() == TypeId::of::<bool>();
    let known = value.to_str().filter(|_| is_bool).and_then(parse_bool);
    whole.push("=");
    whole.push(known.map_or(value, |it| OsString::from(it.to_string())));
    whole
}

fn parse_error(error: &clap::Error, command: Option<&Command>) -> ParseError {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ParseError::Help(error.to_string()),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let inner = |command: &Command| -> Vec<String> {
                let names = command.get_subcommands().map(Command::get_name).filter(|it| *it != "help");
                names.map(|name| format!("'pintle {} {name}'", command.get_name())).collect()
            };
            let components = || COMPONENTS.iter().map(|it| format!("'pintle {}'", it.command)).collect();
            let what = match command {
                Some(command) => format!("no command given: try {}", inner(command).join(", ")),
                None => {
                    let known: Vec<String> = components();
                    format!("no command given: try 'pintle up' or {}", known.join(", "))
                }
            };
            ParseError::ConfigErrors(vec![what], None)
        }
        _ => ParseError::ConfigErrors(vec![problem(error)], None),
    }
}

/// The error in clap's message, as one line.
fn problem(error: &clap::Error) -> String {
    let message = error.to_string();
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let problem = lines.join("; ");
    problem.strip_prefix("error: ").unwrap_or(&problem).to_owned()
}
