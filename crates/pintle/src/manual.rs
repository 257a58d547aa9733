//! The commands `pintle completion` and `pintle man`: completions of shells and manual pages, made from the declarations
//! of the command line.
//!
//! The node agent and the service proxy parse their own command lines; their flags are added here from their tables.

use crate::cli::Cli;
use crate::etcd_server;
use crate::flags;
use crate::options::{CompletionArgs, ManArgs};
use anyhow::Context as _;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use clap_mangen::Man;
use std::io::{self, Write as _, stdout};
use std::path::Path;

pub fn completion(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program(), "pintle", &mut text);
    // a closed pipe is not an error
    let _ = stdout().write_all(&text);
    Ok(())
}

pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut program = program();
    // sets the full names of commands
    program.build();
    write_pages(&program, &args.dir).with_context(|| format!("cannot write to {}", args.dir.display()))
}

/// Writes the page of a command and of those below it.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().next().is_some() {
        page.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(examples) = command.get_after_help() {
        write_examples(&examples.to_string(), &mut text)?;
    }
    std::fs::write(folder.join(page.get_filename()), text)?;
    command.get_subcommands().try_for_each(|command| write_pages(command, folder))
}

/// The section of examples, line by line as in the help; the library would join lines.
fn write_examples(text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, ".SH EXAMPLES\n.nf")?;
    for line in text.lines().skip_while(|line| *line == "Examples:") {
        // a line that begins with a dot or a quote would be a request
        writeln!(out, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(out, ".fi")
}

/// The whole command line, for documents.
fn program() -> Command {
    let agent = nodeagent::configuration::flag_rows().into_iter().map(|row| {
        let default =
            if row.default.is_empty() { String::new() } else { format!(" [default: {}]", row.default) };
        flag(row.name, row.ty, format!("{}{default}", row.description().replace('`', "")))
    });
    // every command has --help
    let proxy = network::proxy::flag_table::flag_rows().into_iter().filter(|row| row.name != "help");
    let proxy = proxy.map(|row| {
        let text = row.description();
        match row.default {
            "" => flag(row.name, row.value, text),
            default => flag(row.name, row.value, format!("{text} [default: {default}]")),
        }
    });
    let etcd = etcd_server::flag_rows().iter();
    let etcd = etcd.map(|row| flag(row.name, row.kind.placeholder(), row.description()));
    flags::complete(Cli::command())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .mut_subcommand("nodeagent", |command| with_flags("nodeagent", &command, agent))
        .mut_subcommand("proxy", |command| with_flags("proxy", &command, proxy))
        .mut_subcommand("etcd", |command| with_flags("etcd", &command, etcd))
}

/// The command with flags in place of the words that it passes on.
fn with_flags(name: &'static str, command: &Command, flags: impl IntoIterator<Item = Arg>) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new(name).about(about).args(flags)
}

/// A flag with the type of its value; a boolean needs none.
fn flag(name: &'static str, value: &'static str, help: String) -> Arg {
    let flag = Arg::new(name).long(name).help(help);
    match value {
        "" => flag.action(ArgAction::SetTrue),
        "bool" => flag.value_name("BOOL").num_args(0..=1).require_equals(true),
        _ => flag.value_name(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn documents_have_the_flags_of_all_commands() {
        let program = program();
        program.clone().debug_assert();
        let commands: Vec<_> = program.get_subcommands().collect();
        assert_eq!(commands.len(), Cli::command().get_subcommands().count());
        let flags = |name: &str| {
            let command = program.find_subcommand(name).unwrap();
            command.get_arguments().filter(|it| it.get_long().is_some()).count()
        };
        assert_eq!(flags("nodeagent"), nodeagent::configuration::flag_rows().len());
        assert!(flags("proxy") > 30 && flags("up") > 100);
    }

    #[test]
    fn shells_know_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut program(), "pintle", &mut text);
            let text = String::from_utf8(text).unwrap();
            for word in ["snapshot", "restore", "discovery-token-ca-cert-hash", "max-pods", "cluster-cidr"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs { dir: folder.path().to_owned() }).unwrap();
        for page in ["pintle", "pintle-up", "pintle-join", "pintle-token-create", "pintle-nodeagent"] {
            let text = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).unwrap();
            assert!(text.contains(&format!(".TH {page} 1")) && text.contains(".SH NAME"), "{page}: {text}");
        }
        let examples = std::fs::read_to_string(folder.path().join("pintle-convert.1")).unwrap();
        assert!(examples.contains(".SH EXAMPLES\n.nf\n\\&  pintle convert \\-f pod.yaml"), "{examples}");
        let pages = std::fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.file_name());
        let strange: Vec<_> = pages.filter(|it| it.to_string_lossy().contains("help")).collect();
        assert!(strange.is_empty(), "{strange:?}");
        let absent = ManArgs { dir: folder.path().join("absent") };
        assert!(man(&absent).unwrap_err().to_string().contains("absent"));
    }
}
