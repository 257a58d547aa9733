use super::super::machine::{Cgroups, DataDirectory, MissingCapability, PortUse, RuntimeFacts, Shortage};
use super::super::report::{Report, TextWriter};
use super::*;
use std::net::IpAddr;
use std::path::PathBuf;

/// A machine of which all facts are set.
#[derive(Clone)]
struct FakeMachine {
    is_root: bool,
    missing_capabilities: Vec<MissingCapability>,
    cgroups: Option<Cgroups>,
    runtime: Result<RuntimeFacts, RuntimeProblem>,
    driver: CgroupDriver,
    has_system_bus: bool,
    other_network: Result<Option<PathBuf>, String>,
    packet_filter: Result<(), String>,
    connection_tracking: Result<(), String>,
    veth: Result<bool, String>,
    vxlan: Result<bool, String>,
    closed_forwarding: Vec<&'static str>,
    node_name: &'static str,
    node_address: Result<IpAddr, String>,
    taken_ports: Vec<PortUse>,
    data_directory: DataDirectory,
    shortages: Vec<Shortage>,
    swap: Swap,
    is_clock_behind: bool,
    open_file_limit: Option<u64>,
    file_watch: Result<(), String>,
}

impl Default for FakeMachine {
    fn default() -> Self {
        FakeMachine {
            is_root: true,
            missing_capabilities: Vec::new(),
            cgroups: Some(Cgroups { is_v2: true, missing_controllers: Vec::new(), read_only: Vec::new() }),
            runtime: Ok(RuntimeFacts {
                endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
                version: "containerd 1.7.0".to_owned(),
                not_ready: None,
                copies_in: None,
                cgroup_driver: Some(CgroupDriver::Cgroupfs),
            }),
            driver: CgroupDriver::Cgroupfs,
            has_system_bus: false,
            other_network: Ok(None),
            packet_filter: Ok(()),
            connection_tracking: Ok(()),
            veth: Ok(true),
            vxlan: Ok(true),
            closed_forwarding: Vec::new(),
            node_name: "shelf",
            node_address: Ok([192, 0, 2, 7].into()),
            taken_ports: Vec::new(),
            data_directory: DataDirectory { path: "/data".into(), problem: None, is_in_use: false },
            shortages: Vec::new(),
            swap: Swap::Off,
            is_clock_behind: false,
            open_file_limit: Some(1 << 20),
            file_watch: Ok(()),
        }
    }
}

impl Machine for FakeMachine {
    fn is_root(&self) -> bool {
        self.is_root
    }
    fn missing_capabilities(&self) -> Vec<MissingCapability> {
        self.missing_capabilities.clone()
    }
    fn kernel_release(&self) -> String {
        "6.1.0".to_owned()
    }
    fn cgroups(&self) -> Option<Cgroups> {
        self.cgroups.clone()
    }
    fn runtime(&self) -> Result<RuntimeFacts, RuntimeProblem> {
        self.runtime.clone()
    }
    fn cgroup_driver(&self) -> CgroupDriver {
        self.driver
    }
    fn has_system_bus(&self) -> bool {
        self.has_system_bus
    }
    fn other_network(&self) -> Result<Option<PathBuf>, String> {
        self.other_network.clone()
    }
    fn packet_filter(&self) -> Result<(), String> {
        self.packet_filter.clone()
    }
    fn connection_tracking(&self) -> Result<(), String> {
        self.connection_tracking.clone()
    }
    fn has_veth(&self) -> Result<bool, String> {
        self.veth.clone()
    }
    fn has_vxlan(&self) -> Result<bool, String> {
        self.vxlan.clone()
    }
    fn closed_forwarding(&self) -> Vec<&'static str> {
        self.closed_forwarding.clone()
    }
    fn node_name(&self) -> String {
        self.node_name.to_owned()
    }
    fn node_address(&self) -> Result<IpAddr, String> {
        self.node_address.clone()
    }
    fn taken_ports(&self) -> Vec<PortUse> {
        self.taken_ports.clone()
    }
    fn data_directory(&self) -> DataDirectory {
        self.data_directory.clone()
    }
    fn shortages(&self) -> Vec<Shortage> {
        self.shortages.clone()
    }
    fn swap(&self) -> Swap {
        self.swap
    }
    fn is_clock_behind(&self) -> bool {
        self.is_clock_behind
    }
    fn open_file_limit(&self) -> Option<u64> {
        self.open_file_limit
    }
    fn file_watch(&self) -> Result<(), String> {
        self.file_watch.clone()
    }
}

/// The findings that are not ok: `status name: detail`.
fn findings(machine: &FakeMachine) -> Vec<String> {
    let all = REQUIREMENTS.iter().map(|it| (it.name, it.check(machine)));
    let bad = all.filter(|(_, finding)| finding.status != Status::Ok);
    bad.map(|(name, it)| format!("{} {name}: {}", it.status.name(), it.detail)).collect()
}

/// A change of a machine, and its one finding.
fn check(change: impl FnOnce(&mut FakeMachine), expected: &str) {
    let mut machine = FakeMachine::default();
    change(&mut machine);
    assert_eq!(findings(&machine), [expected]);
}

#[test]
fn a_machine_that_has_everything_is_ready() {
    assert!(findings(&FakeMachine::default()).is_empty());
    let mut names: Vec<_> = REQUIREMENTS.iter().map(|it| it.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), REQUIREMENTS.len(), "each name once");
    for requirement in REQUIREMENTS {
        assert!(!requirement.purpose.is_empty() && !requirement.advice.is_empty(), "{}", requirement.name);
        assert!(!requirement.advice.contains("  "), "{}", requirement.advice);
    }
}

#[test]
fn rights_are_checked() {
    let lacks = |name, is_required| vec![MissingCapability { name, is_required }];
    check(
        |it| it.missing_capabilities = lacks("CAP_NET_ADMIN", true),
        "missing capabilities: without CAP_NET_ADMIN",
    );
    check(
        |it| it.missing_capabilities = lacks("CAP_SYS_RESOURCE", false),
        "warning capabilities: without CAP_SYS_RESOURCE",
    );
}

#[test]
fn without_root_the_rest_is_not_checked() {
    let user =
        FakeMachine { is_root: false, packet_filter: Err("EPERM".to_owned()), ..FakeMachine::default() };
    let all = findings(&user);
    assert_eq!(all[0], "missing root: this user is not root");
    assert!(all[1..].iter().all(|it| it.ends_with("not checked: this takes root")), "{all:?}");
    assert!(all.iter().any(|it| it.starts_with("warning packet filter")), "{all:?}");
}

#[test]
fn cgroups_are_checked() {
    let with = |is_v2, missing: &[&'static str]| {
        Some(Cgroups { is_v2, missing_controllers: missing.to_vec(), read_only: Vec::new() })
    };
    check(|it| it.cgroups = None, "missing cgroups: no cgroup file system is mounted");
    let without = "without the controllers";
    check(
        |it| it.cgroups = with(true, &["memory"]),
        &format!("missing cgroups: version 2, {without} memory"),
    );
    check(
        |it| it.cgroups = with(true, &["cpuset"]),
        &format!("warning cgroups: version 2, {without} cpuset"),
    );
    check(|it| it.cgroups = with(false, &["pids"]), &format!("warning cgroups: version 1, {without} pids"));
    let read_only = Cgroups { is_v2: true, missing_controllers: Vec::new(), read_only: vec!["/cg".into()] };
    check(|it| it.cgroups = Some(read_only), "missing cgroups: version 2; /cg cannot be written");
}

#[test]
fn runtimes_are_checked() {
    let runtime = |problem| FakeMachine { runtime: Err(problem), ..FakeMachine::default() };
    let first = |machine: &FakeMachine| findings(machine).swap_remove(0);
    let embedded = FakeMachine {
        runtime: Ok(RuntimeFacts {
            endpoint: "embedded".to_owned(),
            ..FakeMachine::default().runtime.unwrap()
        }),
        ..FakeMachine::default()
    };
    assert!(findings(&embedded).is_empty(), "{:?}", findings(&embedded));
    let mut copying = embedded;
    copying.runtime = copying.runtime.map(|it| RuntimeFacts { copies_in: Some("/data".into()), ..it });
    let copying = first(&copying);
    assert!(copying.starts_with("warning container runtime: the embedded one"), "{copying}");
    assert!(copying.contains("overlayfs does not work in /data"), "{copying}");
    let no_cri = first(&runtime(RuntimeProblem::NoCri("unix:///x".to_owned())));
    assert_eq!(no_cri, "missing container runtime: unix:///x answers, without CRI v1");
    let user = runtime(RuntimeProblem::NotPermitted("unix:///x".to_owned()));
    assert_eq!(first(&user), "warning container runtime: not checked: unix:///x takes root");
    let with = |change: fn(&mut RuntimeFacts)| {
        let mut facts = FakeMachine::default().runtime.unwrap();
        change(&mut facts);
        Ok(facts)
    };
    check(
        |it| it.runtime = with(|it| it.not_ready = Some("RuntimeReady: no runc".to_owned())),
        "missing container runtime: containerd 1.7.0 is not ready: RuntimeReady: no runc",
    );
    check(
        |it| it.runtime = with(|it| it.cgroup_driver = Some(CgroupDriver::Systemd)),
        "missing cgroup driver: cgroupfs in the agent, systemd in the runtime",
    );
    check(
        |it| it.runtime = with(|it| it.cgroup_driver = None),
        "warning cgroup driver: cgroupfs in the agent; that of the runtime is not known",
    );
    check(
        |it| it.driver = CgroupDriver::Systemd,
        "missing cgroup driver: the agent uses systemd, whose bus is not there",
    );
}

#[test]
fn networks_are_checked() {
    check(
        |it| it.other_network = Ok(Some("/etc/cni/net.d/10-x.conf".into())),
        "warning pod network: pods use the network of /etc/cni/net.d/10-x.conf",
    );
    check(|it| it.packet_filter = Err("ENOENT".to_owned()), "missing packet filter: Linux 6.1.0: ENOENT");
    check(|it| it.connection_tracking = Err("x".to_owned()), "missing connection tracking: x");
    check(|it| it.veth = Ok(false), "missing veth links: the kernel has none");
    check(|it| it.vxlan = Ok(false), "warning vxlan links: the kernel has none");
    check(
        |it| it.closed_forwarding = vec!["net.ipv4.ip_forward"],
        "missing forwarding: off, and cannot be turned on: net.ipv4.ip_forward",
    );
    check(|it| it.node_name = "a_b", "missing node name: \"a_b\" is not a name of a node");
    check(|it| it.node_name = "localhost", "warning node name: localhost is the name of every machine");
    check(|it| it.node_address = Err("no route".to_owned()), "missing node address: no route");
}

#[test]
fn ports_are_free_or_those_of_a_pintle_that_runs() {
    let port =
        |is_required| PortUse { address: ([0, 0, 0, 0], 10250).into(), purpose: "node agent", is_required };
    check(|it| it.taken_ports = vec![port(true)], "missing ports: taken: 0.0.0.0:10250 (node agent)");
    check(|it| it.taken_ports = vec![port(false)], "warning ports: taken: 0.0.0.0:10250 (node agent)");
    let mut running = FakeMachine { taken_ports: vec![port(true)], ..FakeMachine::default() };
    running.data_directory.is_in_use = true;
    assert!(findings(&running).is_empty());
}

#[test]
fn the_rest_of_the_machine_is_checked() {
    check(
        |it| it.data_directory.problem = Some("/ cannot be written".to_owned()),
        "missing data directory: /data: / cannot be written",
    );
    let shortage = Shortage { signal: Signal::NodeDisk, available: 5 << 20, threshold: 10 << 20 };
    check(|it| it.shortages = vec![shortage], "missing space: nodefs.available is 5 MiB, below 10 MiB");
    check(|it| it.swap = Swap::Refused, "missing swap: on, which the agent's configuration refuses");
    assert!(findings(&FakeMachine { swap: Swap::Allowed, ..FakeMachine::default() }).is_empty());
    check(|it| it.is_clock_behind = true, "missing clock: behind the date of this program");
    check(
        |it| it.open_file_limit = Some(1024),
        "warning open files: at most 1024: a server would accept fewer connections than 32768",
    );
    check(
        |it| it.file_watch = Err("Too many open files".to_owned()),
        "warning file watches: Too many open files",
    );
}

#[test]
fn reports_say_what_to_do() {
    let machine = FakeMachine { veth: Ok(false), vxlan: Ok(false), ..FakeMachine::default() };
    let mut report = Report::default();
    let mut text = TextWriter(Vec::new());
    for requirement in REQUIREMENTS.iter().filter(|it| it.name.ends_with("links")) {
        let finding = requirement.check(&machine);
        text.line(requirement, &finding);
        report.add(requirement, finding);
    }
    text.end(&report, Role::Up);
    assert!(!report.is_ready());
    let text = String::from_utf8(text.0).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "missing  veth links           the kernel has none");
    assert_eq!(lines[1], "         needed for: the links of pods");
    assert!(lines[2].starts_with("         what to do: load the module: modprobe veth"), "{text}");
    assert_eq!(lines[7], "Pods cannot run here by pintle up yet: 1 thing is missing, 1 warning.");
    let mut json = TextWriter(Vec::new());
    json.json(&report);
    let json: serde_json::Value = serde_json::from_slice(&json.0).unwrap();
    assert_eq!(json["ready"], false);
    assert_eq!(json["checks"][0]["status"], "missing");
    assert_eq!(json["checks"][1]["advice"], "load the module: modprobe vxlan");
}
