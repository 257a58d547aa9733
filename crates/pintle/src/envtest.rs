//! What a test suite adds to the API server that it starts by a link, by an environment variable: suites choose the flags
//! themselves.

use crate::cli::{Cli, Command};
use crate::host::program_name;
use crate::options::Controllers;
use names::Names;

/// The variable; `full` brings the control loops, the scheduler and simulated nodes.
const VARIABLE: &str = "PINTLE_ENVTEST";

/// The flags of the control loops, if they run beside the API server.
pub fn loops() -> anyhow::Result<Option<Controllers>> {
    let link = format!("{}-apiserver", Names::kubernetes().prefix);
    let is_link = program_name().is_some_and(|name| name == link);
    chosen(std::env::var(VARIABLE).ok().filter(|_| is_link).as_deref())
}

fn chosen(value: Option<&str>) -> anyhow::Result<Option<Controllers>> {
    match value {
        None | Some("") => Ok(None),
        Some("full") => {
            let defaults = Cli::read(["pintle", "up"].map(Into::into), |_| Vec::new());
            match defaults.map(|cli| cli.command) {
                Ok(Command::Up(up)) => Ok(Some(up.loops)),
                _ => anyhow::bail!("the defaults of the control loops cannot be read"),
            }
        }
        Some(other) => anyhow::bail!("{VARIABLE} is '{other}', and can be 'full'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_brings_all_loops() {
        assert_eq!(chosen(Some("full")).unwrap().map(|it| it.controllers), Some(vec!["*".to_owned()]));
        assert!(chosen(None).unwrap().is_none() && chosen(Some("")).unwrap().is_none());
        assert!(chosen(Some("some")).unwrap_err().to_string().contains("'full'"));
    }
}
