//! Processes of the machine in cgroups of their own: the agent, and what runs beside pods.

use super::files::CgroupFiles;
use crate::filesystem::{Filesystem, LinuxFilesystem};
use std::io;
use std::path::Path;

/// How often processes are looked for: others may start meanwhile.
const ATTEMPTS: usize = 10;

/// Moves this process to a cgroup, which is made if it is absent.
pub fn move_agent(files: &CgroupFiles, cgroup: &str) -> io::Result<()> {
    files.create(cgroup, &LinuxFilesystem)?;
    files.add_process(cgroup, rustix::process::getpid().as_raw_pid(), &LinuxFilesystem)
}

/// The processes in the root of the hierarchies.
pub struct SystemProcesses<'a> {
    pub files: &'a CgroupFiles,
    /// `/proc`, but for tests.
    pub proc: &'a Path,
}

impl SystemProcesses<'_> {
    /// Moves the processes that are in no cgroup to one, which is made if it is absent. Threads of the kernel and the
    /// first process stay.
    pub fn collect(&self, cgroup: &str) -> io::Result<()> {
        self.files.create(cgroup, &LinuxFilesystem)?;
        self.move_from_root(cgroup, |pid| self.is_movable(pid))
    }

    /// Moves all processes out of a root that is not the machine's, but a cgroup of version 2 that a container sees as its
    /// root: such a cgroup divides nothing among others while it has processes.
    pub fn empty_container_root(&self, cgroup: &str) -> io::Result<()> {
        let CgroupFiles::V2(root) = self.files else { return Ok(()) };
        // the machine's has no type
        let is_of_container = root.join("cgroup.type").exists();
        if !is_of_container || self.files.own_processes("/").is_empty() {
            return Ok(());
        }
        LinuxFilesystem.create_dir_all(&root.join(cgroup.trim_start_matches('/')), 0o755)?;
        // a process of another namespace has the number 0
        self.move_from_root(cgroup, |pid| pid > 0)
    }

    fn move_from_root(&self, cgroup: &str, is_movable: impl Fn(i32) -> bool) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let found: Vec<i32> =
                self.files.own_processes("/").into_iter().filter(|pid| is_movable(*pid)).collect();
            if found.is_empty() {
                return Ok(());
            }
            for pid in found {
                match self.files.add_process(cgroup, pid, &LinuxFilesystem) {
                    // it has ended meanwhile
                    Err(why) if why.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                    moved => moved?,
                }
            }
        }
        Err(io::Error::other("processes appear faster than they are moved"))
    }

    /// A thread of the kernel has no program.
    fn is_movable(&self, pid: i32) -> bool {
        let program = std::fs::read_link(self.proc.join(pid.to_string()).join("exe"));
        pid != 1 && !program.is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn processes_without_a_cgroup_are_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (root, proc) = (dir.path().join("cgroup"), dir.path().join("proc"));
        std::fs::create_dir_all(root.join("system")).unwrap();
        std::fs::write(root.join("cgroup.procs"), "1\n2\n").unwrap();
        std::fs::create_dir_all(proc.join("1")).unwrap();
        std::fs::create_dir_all(proc.join("7")).unwrap();
        symlink("/bin/x", proc.join("1/exe")).unwrap();
        symlink("/bin/x", proc.join("7/exe")).unwrap();
        let files = CgroupFiles::V2(root.clone());
        let processes = SystemProcesses { files: &files, proc: &proc };
        // the first process and a thread of the kernel stay
        processes.collect("/system").unwrap();
        assert!(!root.join("system/cgroup.procs").exists());
        std::fs::write(root.join("cgroup.procs"), "1\n2\n7\n").unwrap();
        // the files of a test do not lose what is moved
        assert!(processes.collect("/system").is_err());
        assert_eq!(std::fs::read_to_string(root.join("system/cgroup.procs")).unwrap(), "7");
        // the root of the machine keeps its own
        processes.empty_container_root("/init").unwrap();
        assert!(!root.join("init").exists());
        std::fs::write(root.join("cgroup.type"), "domain\n").unwrap();
        assert!(processes.empty_container_root("/init").is_err());
        assert_eq!(std::fs::read_to_string(root.join("init/cgroup.procs")).unwrap(), "7");
        std::fs::write(root.join("cgroup.procs"), "").unwrap();
        processes.empty_container_root("/other").unwrap();
        assert!(!root.join("other").exists());
        move_agent(&files, "/agent").unwrap();
        let pid = std::process::id().to_string();
        assert_eq!(std::fs::read_to_string(root.join("agent/cgroup.procs")).unwrap(), pid);
    }
}
