//! Processes of the machine in cgroups of their own: the agent, and what runs beside pods.

use super::files::CgroupFiles;
use crate::filesystem::LinuxFilesystem;
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
        for _ in 0..ATTEMPTS {
            let found: Vec<i32> =
                self.files.own_processes("/").into_iter().filter(|pid| self.is_movable(*pid)).collect();
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
        move_agent(&files, "/agent").unwrap();
        let pid = std::process::id().to_string();
        assert_eq!(std::fs::read_to_string(root.join("agent/cgroup.procs")).unwrap(), pid);
    }
}
