use super::*;
use crate::filesystem::LinuxFilesystem;

const HYBRID: &str = "\
30 1 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:2 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:3 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 30 0:4 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:5 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn mount_tables_name_the_hierarchies() {
    let path = |name: &str| PathBuf::from(format!("/sys/fs/cgroup/{name}"));
    let expected = [
        ("cpu", "cpu"),
        ("cpuacct", "cpu"),
        ("memory", "memory"),
        ("name=systemd", "systemd"),
        ("unified", "unified"),
    ];
    let expected = expected.map(|(name, directory)| (name.to_owned(), path(directory)));
    assert_eq!(CgroupFiles::from_mount_table(HYBRID), Some(CgroupFiles::V1(BTreeMap::from(expected))));
    let unified = "31 30 0:2 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
    assert_eq!(
        CgroupFiles::from_mount_table(unified),
        Some(CgroupFiles::V2(PathBuf::from("/sys/fs/cgroup")))
    );
    assert_eq!(CgroupFiles::from_mount_table(""), None);
}

#[test]
fn controllers_that_the_machine_lacks_are_named() {
    let hybrid = CgroupFiles::from_mount_table(HYBRID).unwrap();
    assert_eq!(hybrid.missing_controllers(), ["pids", "cpuset"]);
    let roots: Vec<PathBuf> =
        ["cpu", "memory", "systemd"].map(|it| PathBuf::from(format!("/sys/fs/cgroup/{it}/"))).into();
    assert_eq!(hybrid.roots(), roots);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cgroup.controllers"), "cpuset cpu io pids\n").unwrap();
    let unified = CgroupFiles::V2(folder.path().to_owned());
    assert_eq!(unified.missing_controllers(), ["memory"]);
    assert_eq!(unified.roots(), [folder.path().join("")]);
}

fn limits() -> CgroupLimits {
    CgroupLimits {
        cpu_shares: Some(307),
        cpu_quota: Some((30_000, 100_000)),
        memory: Some(1 << 20),
        memory_min: Some(4096),
        pids: Some(300),
        hugepages: BTreeMap::from([(2 << 20, 0)]),
    }
}

/// A tree as a machine has it: directories with the files of version 2.
fn unified(root: &Path, controllers: &str) {
    for (file, text) in
        [("cgroup.controllers", controllers), ("cgroup.subtree_control", ""), ("cgroup.procs", "")]
    {
        std::fs::write(root.join(file), text).unwrap();
    }
}

#[test]
fn version_2_enables_controllers_and_writes_limits() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    unified(root, "cpuset cpu io memory pids\n");
    std::fs::create_dir_all(root.join("kubepods")).unwrap();
    unified(&root.join("kubepods"), "cpu memory pids\n");
    let files = CgroupFiles::V2(root.to_owned());
    files.create("/kubepods/podu", &LinuxFilesystem).unwrap();
    assert!(files.exists("/kubepods/podu"));
    // a real file would gather what is written one after the other
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("cgroup.subtree_control"), "+cpuset");
    assert_eq!(read("kubepods/cgroup.subtree_control"), "+pids");
    files.set("/kubepods/podu", &limits(), &LinuxFilesystem).unwrap();
    let expected = [
        ("cpu.weight", "12"),
        ("cpu.max", "30000 100000"),
        ("memory.max", "1048576"),
        ("memory.min", "4096"),
        ("pids.max", "300"),
    ];
    for (file, text) in expected {
        assert_eq!(read(&format!("kubepods/podu/{file}")), text, "{file}");
    }
    assert!(!root.join("kubepods/podu/hugetlb.2MB.max").exists());
    let free = CgroupLimits { cpu_quota: Some((-1, 100_000)), ..CgroupLimits::default() };
    files.set("/kubepods/podu", &free, &LinuxFilesystem).unwrap();
    assert_eq!(read("kubepods/podu/cpu.max"), "max 100000");
    assert_eq!(files.children("/kubepods"), ["podu"]);
}

#[test]
fn version_1_has_a_directory_per_hierarchy() {
    let dir = tempfile::tempdir().unwrap();
    let root = |name: &str| dir.path().join(name);
    for name in ["cpu", "memory", "pids", "cpuset", "systemd"] {
        std::fs::create_dir(root(name)).unwrap();
    }
    for (file, text) in [("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")] {
        std::fs::write(root("cpuset").join(file), text).unwrap();
        // a real directory has its files from the start
        std::fs::create_dir_all(root("cpuset/kubepods/podu")).unwrap();
        std::fs::write(root("cpuset/kubepods").join(file), "\n").unwrap();
        std::fs::write(root("cpuset/kubepods/podu").join(file), "\n").unwrap();
    }
    let names = ["cpu", "memory", "pids", "cpuset", "name=systemd"];
    let hierarchies = names.map(|name| (name.to_owned(), root(name.trim_start_matches("name="))));
    let files = CgroupFiles::V1(BTreeMap::from(hierarchies));
    assert!(!files.exists("/kubepods/podu"));
    files.create("/kubepods/podu", &LinuxFilesystem).unwrap();
    assert!(files.exists("/kubepods/podu"));
    let read = |path: &str| std::fs::read_to_string(root(path)).unwrap();
    assert_eq!(read("cpuset/kubepods/podu/cpuset.cpus"), "0-1\n");
    files.set("/kubepods/podu", &limits(), &LinuxFilesystem).unwrap();
    let expected = [
        ("cpu/kubepods/podu/cpu.shares", "307"),
        ("cpu/kubepods/podu/cpu.cfs_quota_us", "30000"),
        ("cpu/kubepods/podu/cpu.cfs_period_us", "100000"),
        ("memory/kubepods/podu/memory.limit_in_bytes", "1048576"),
        ("pids/kubepods/podu/pids.max", "300"),
    ];
    for (file, text) in expected {
        assert_eq!(read(file), text, "{file}");
    }
    std::fs::write(root("pids/kubepods/podu/cgroup.procs"), "12\n7\n").unwrap();
    assert_eq!(files.processes("/kubepods"), [7, 12]);
}

#[test]
fn the_cgroup_of_a_pod_is_made_where_its_limits_are() {
    let dir = tempfile::tempdir().unwrap();
    let root = |name: &str| dir.path().join(name);
    let names = ["cpu", "cpuset", "devices", "memory", "pids"];
    for name in names {
        std::fs::create_dir_all(root(name).join("kubepods")).unwrap();
    }
    let files = CgroupFiles::V1(names.map(|name| (name.to_owned(), root(name))).into());
    let limits = CgroupLimits { cpu_shares: Some(2), pids: Some(300), ..CgroupLimits::default() };
    assert!(!files.is_limited("/kubepods/podu", &limits));
    assert!(files.create_limited("/kubepods/podu", &limits, &LinuxFilesystem).unwrap());
    let made = names.map(|name| root(name).join("kubepods/podu").exists());
    assert_eq!(made, [true, false, false, false, true]);
    assert!(files.is_limited("/kubepods/podu", &limits) && files.is_anywhere("/kubepods/podu"));
    // the limits of one that was there are compared before they are written
    assert!(!files.create_limited("/kubepods/podu", &limits, &LinuxFilesystem).unwrap());
    std::fs::remove_dir_all(root("pids").join("kubepods")).unwrap();
    assert!(!files.create_limited("/kubepods/podu", &limits, &LinuxFilesystem).unwrap());
    assert!(files.is_limited("/kubepods/podu", &limits), "one hierarchy has lost it");
    files.remove("/kubepods/podu", &LinuxFilesystem).unwrap();
    assert_eq!(files.children("/kubepods"), Vec::<String>::new());
}

#[test]
fn removal_goes_from_the_leaves_up() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("kubepods/podu/a/b")).unwrap();
    let files = CgroupFiles::V2(dir.path().to_owned());
    files.remove("/kubepods/podu", &LinuxFilesystem).unwrap();
    files.remove("/kubepods/podu", &LinuxFilesystem).unwrap();
    assert!(dir.path().join("kubepods").exists() && !files.exists("/kubepods/podu"));
}

#[test]
fn shares_become_weights() {
    assert_eq!([2, 102, 1024, 262_144].map(cpu_weight), [1, 4, 39, 10_000]);
}

/// Needs a machine with writable hierarchies.
#[test]
fn real_hierarchies_take_limits() {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Some(files) = CgroupFiles::from_mount_table(&table) else {
        return testdata::skip("no cgroup filesystem is mounted");
    };
    let name = format!("/pintle-test-{}", std::process::id());
    let pod = format!("{name}/podu");
    if let Err(error) = files.create(&pod, &LinuxFilesystem) {
        return testdata::skip(&format!("cgroups cannot be made: {error}"));
    }
    let limits = CgroupLimits { hugepages: BTreeMap::new(), ..limits() };
    let set = files.set(&pod, &limits, &LinuxFilesystem);
    let inside = pod.trim_start_matches('/');
    let (file, expected) = match &files {
        CgroupFiles::V1(hierarchies) => {
            (hierarchies["memory"].join(inside).join("memory.limit_in_bytes"), "1048576")
        }
        CgroupFiles::V2(root) => (root.join(inside).join("memory.max"), "1048576"),
    };
    let written = std::fs::read_to_string(file).unwrap_or_default();
    let is_there = files.exists(&pod);
    files.remove(&name, &LinuxFilesystem).unwrap();
    set.unwrap();
    assert_eq!((written.trim(), is_there, files.exists(&name)), (expected, true, false));
}

#[test]
fn limits_of_a_new_cgroup_are_written_without_a_look() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c/cpu.shares");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "307\n").unwrap();
    let files = CgroupFiles::V1(BTreeMap::from([("cpu".to_owned(), folder.path().to_owned())]));
    let limits = CgroupLimits { cpu_shares: Some(307), ..CgroupLimits::default() };
    files.set("/c", &limits, &LinuxFilesystem).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "307\n");
    files.set_new("/c", &limits, &LinuxFilesystem).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "307");
}
