//! The program of a process: it is found in the container, and takes the place of this one.

use super::failure::during;
use super::users::ResolvedUser;
use crate::containers::spec::ProcessSpec;
use nix::unistd::execve;
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// See the module.
pub struct Program {
    name: String,
    path: CString,
    arguments: Vec<CString>,
    variables: Vec<CString>,
}

/// Why a program did not take the place of this process.
pub enum ExecFailure {
    Refused(String),
    /// The file is no program; as with a shell, that is an error of the running container.
    Format(String),
}

impl Program {
    pub fn new(process: &ProcessSpec, user: &ResolvedUser) -> Result<Self, String> {
        let name = process.args.first().ok_or("no command specified")?;
        // the last value of a name counts
        let mut names = HashSet::new();
        let pairs = process.env.iter().rev().filter_map(|it| it.split_once('='));
        let mut variables: Vec<(&str, &str)> = pairs.filter(|(name, _)| names.insert(*name)).collect();
        variables.reverse();
        if !variables.iter().any(|(name, _)| *name == "HOME") {
            variables.push(("HOME", &user.home));
        }
        let path = variables.iter().find(|(name, _)| *name == "PATH").map_or("", |(_, value)| *value);
        let path = find(name, path, &process.cwd)?;
        let text = |it: &[u8]| CString::new(it).map_err(|_| "an argument has a zero byte".to_owned());
        let variables = variables.iter().map(|(name, value)| text(format!("{name}={value}").as_bytes()));
        Ok(Program {
            name: name.clone(),
            path: text(path.as_os_str().as_bytes())?,
            arguments: process.args.iter().map(|it| text(it.as_bytes())).collect::<Result<_, _>>()?,
            variables: variables.collect::<Result<_, _>>()?,
        })
    }

    /// Replaces this process. Returns why that failed.
    pub fn replace_process(self) -> ExecFailure {
        let why = match execve(&self.path, &self.arguments, &self.variables) {
            Ok(never) => match never {},
            Err(why) => io::Error::from(why),
        };
        let path = self.path.to_string_lossy();
        match why.kind() {
            ErrorKind::NotFound => ExecFailure::Refused(format!("exec {path}: no such file or directory")),
            ErrorKind::PermissionDenied => {
                ExecFailure::Refused(format!("exec: {:?}: permission denied", self.name))
            }
            _ if why.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                ExecFailure::Format(format!("exec {path}: exec format error"))
            }
            _ => ExecFailure::Refused(format!("exec {path}: {why}")),
        }
    }
}

/// A missing directory is made, while the process may still do so.
pub fn change_directory(path: &str) -> Result<(), String> {
    let path = if path.is_empty() { "/" } else { path };
    match rustix::process::chdir(path) {
        Ok(()) => return Ok(()),
        Err(Errno::NOTDIR) => return Err(format!("mkdir {path}: not a directory")),
        Err(_) => {}
    }
    std::fs::create_dir_all(path).map_err(during(format_args!("mkdir {path}")))?;
    rustix::process::chdir(path).map_err(during(format_args!("chdir to cwd ({path:?})")))
}

fn find(name: &str, path: &str, cwd: &str) -> Result<PathBuf, String> {
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let whole = Path::new(if cwd.is_empty() { "/" } else { cwd }).join(name);
        return match whole.metadata() {
            Err(_) => Err(format!("exec: {name:?}: stat {name}: no such file or directory")),
            Ok(_) if !is_executable(&whole) => Err(format!("exec: {name:?}: permission denied")),
            Ok(_) => Ok(name.into()),
        };
    }
    let mut folders = std::env::split_paths(path).filter(|it| it.is_absolute());
    folders
        .find_map(|folder| Some(folder.join(name)).filter(|it| is_executable(it)))
        .ok_or_else(|| format!("exec: {name:?}: executable file not found in $PATH"))
}
