//! The program of a process: it is found in the container, and takes the place of this one.

use super::failure::during;
use super::users::ResolvedUser;
use crate::containers::spec::ProcessSpec;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
pub struct Program {
    name: String,
    path: PathBuf,
    command: Command,
}

impl Program {
    pub fn new(process: &ProcessSpec, user: &ResolvedUser) -> Result<Self, String> {
        let (name, args) = process.args.split_first().ok_or("no command specified")?;
        let mut variables: Vec<(OsString, OsString)> = Vec::new();
        for (name, value) in process.env.iter().filter_map(|it| it.split_once('=')) {
            // the last value counts
            variables.retain(|(present, _)| *present != *name);
            variables.push((name.into(), value.into()));
        }
        if !variables.iter().any(|(name, _)| name == "HOME") {
            variables.push(("HOME".into(), user.home.clone().into()));
        }
        let path = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let path = find(name, &path.unwrap_or_default(), &process.cwd)?;
        let mut command = Command::new(&path);
        command.arg0(name).args(args).env_clear().envs(variables);
        Ok(Program { name: name.clone(), path, command })
    }

    /// A missing directory is made, while the process may still do so.
    pub fn change_directory(&self, path: &str) -> Result<(), String> {
        let path = if path.is_empty() { "/" } else { path };
        if rustix::process::chdir(path).is_ok() {
            return Ok(());
        }
        std::fs::create_dir_all(path).map_err(during(format_args!("mkdir {path}")))?;
        rustix::process::chdir(path).map_err(during(format_args!("chdir to cwd ({path:?})")))
    }

    /// Replaces this process. Returns why that failed.
    pub fn replace_process(mut self) -> String {
        let why = self.command.exec();
        match why.kind() {
            ErrorKind::NotFound => format!("exec {}: no such file or directory", self.path.display()),
            ErrorKind::PermissionDenied => format!("exec: {:?}: permission denied", self.name),
            _ => format!("exec {}: {why}", self.path.display()),
        }
    }
}

fn find(name: &str, path: &OsStr, cwd: &str) -> Result<PathBuf, String> {
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
