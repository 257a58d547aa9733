//! `pintle assets`: a directory with the programs that test harnesses look for, as links to this one.

use std::io::{Write as _, stdout};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::Context as _;
use clap::Args;

/// The links to this program.
const LINKS: [&str; 2] = ["kube-apiserver", "etcd"];
/// A program that is linked where there is one.
const KUBECTL: &str = "kubectl";

pub const ASSETS_EXAMPLES: &str = "\
Examples:
  KUBEBUILDER_ASSETS=$(pintle assets) go test ./...
      Run a suite of controller-runtime's envtest on this program.

  KUBEBUILDER_ASSETS=$(pintle assets) PINTLE_ENVTEST=full go test ./...
      The same with control loops, scheduler and simulated nodes: a Deployment becomes Available, a namespace goes away.";

#[derive(Debug, Clone, Args)]
pub struct AssetsArgs {
    /// The directory, which is created if it does not exist [default: pintle/assets in the user's cache directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Makes the links, and prints the directory.
pub fn assets(args: &AssetsArgs) -> anyhow::Result<()> {
    let program = env::current_exe().context("cannot find this program's file")?;
    let directory = match &args.dir {
        Some(directory) => directory.clone(),
        None => cache_directory().context("no HOME and no XDG_CACHE_HOME: name a directory")?,
    };
    make_links(&directory, &program, find_on_path(KUBECTL).as_deref())?;
    let directory = fs::canonicalize(&directory).context("cannot find the directory again")?;
    writeln!(stdout(), "{}", directory.display()).context("cannot print the directory")
}

fn make_links(directory: &Path, program: &Path, kubectl: Option<&Path>) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    for (name, target) in LINKS.iter().map(|name| (*name, program)).chain(kubectl.map(|it| (KUBECTL, it))) {
        let link = directory.join(name);
        replace_link(&link, target).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(())
}

/// Makes a link in one step: a suite that runs at the same time finds the old one or the new one. A file is left alone.
fn replace_link(link: &Path, target: &Path) -> io::Result<()> {
    match fs::read_link(link) {
        Ok(current) if current == target => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => return Err(io::Error::other("it exists, and is no link")),
    }
    let fresh = link.with_extension(format!("{}.new", std::process::id()));
    symlink(target, &fresh)?;
    fs::rename(&fresh, link)
}

fn cache_directory() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("pintle/assets"))
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("a/b");
        let (program, kubectl) = (folder.path().join("pintle"), folder.path().join("kubectl"));
        let target = |name: &str| fs::read_link(directory.join(name)).ok();
        make_links(&directory, Path::new("/old"), None).unwrap();
        make_links(&directory, &program, None).unwrap();
        assert_eq!(
            (target("etcd"), target("kube-apiserver")),
            (Some(program.clone()), Some(program.clone()))
        );
        assert_eq!(target("kubectl"), None);
        make_links(&directory, &program, Some(&kubectl)).unwrap();
        assert_eq!(target("kubectl"), Some(kubectl));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_file(directory.join("etcd")).unwrap();
        fs::write(directory.join("etcd"), "a real one").unwrap();
        let refused = make_links(&directory, &program, None).unwrap_err();
        assert!(format!("{refused:#}").contains("no link"), "{refused:#}");
    }
}
