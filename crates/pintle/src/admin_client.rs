//! Clients of the commands: of the administrator, and of servers that a command names.

use crate::data_dir;
use crate::options::AdminAccess;
use anyhow::Context as _;
use client::{Client, Metrics};
use client::{Rate, transport};
use env::World;
use outbound::Target;
use std::path::PathBuf;
use std::time::Duration;

const AGENT: &str = "pintle";
/// A server that does not accept connections for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The server and the credentials of the administrator.
pub fn admin_target(access: &AdminAccess) -> anyhow::Result<Target> {
    let file = kubeconfig(access, |name| std::env::var_os(name).map(PathBuf::from))?;
    Target::from_kubeconfig(&file).with_context(|| {
        format!(
            "cannot use the kubeconfig {}: run this where pintle up runs, or name one with --kubeconfig",
            file.display()
        )
    })
}

fn kubeconfig(access: &AdminAccess, variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    const NAME: &str = "admin.kubeconfig";
    if let Some(file) = &access.kubeconfig {
        return Ok(file.clone());
    }
    if let Some(directory) = &access.data_dir {
        return Ok(directory.join(NAME));
    }
    let listed = variable("KUBECONFIG").unwrap_or_default();
    match std::env::split_paths(&listed).find(|file| !file.as_os_str().is_empty()) {
        Some(file) => Ok(file),
        None => Ok(data_dir::default_directory(variable)?.join(NAME)),
    }
}

/// A client of a server.
pub fn client(target: &Target, world: &World) -> anyhow::Result<Client> {
    let target = Target { connect_timeout: Some(CONNECT_TIMEOUT), ..target.clone() };
    let transport = transport::transport(&target, AGENT, &Metrics::default())?;
    Ok(transport::client(&transport, Rate::default(), world))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_kubeconfig_is_that_of_a_flag_or_of_the_environment() {
        let variable = |name: &str| match name {
            "KUBECONFIG" => Some(PathBuf::from("/env:/second")),
            _ => None,
        };
        let of = |file: Option<&str>, directory: Option<&str>| {
            let access =
                AdminAccess { kubeconfig: file.map(Into::into), data_dir: directory.map(Into::into) };
            kubeconfig(&access, variable).unwrap()
        };
        assert_eq!(of(Some("/f"), Some("/d")), Path::new("/f"));
        assert_eq!(of(None, Some("/d")), Path::new("/d/admin.kubeconfig"));
        assert_eq!(of(None, None), Path::new("/env"));
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        let access = AdminAccess { kubeconfig: None, data_dir: None };
        assert_eq!(kubeconfig(&access, home).unwrap(), Path::new("/h/.local/share/pintle/admin.kubeconfig"));
    }
}
