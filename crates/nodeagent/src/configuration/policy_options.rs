//! Options of the policies of the CPU manager and the topology manager, with the feature gates that they need.

use super::gates::Gates;
use super::values::Configuration;
use std::collections::BTreeMap;

/// Options of the CPU manager's static policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuPolicyOptions {
    /// `full-pcpus-only`: exclusive CPUs come in whole cores.
    pub has_full_cores_only: bool,
    /// `distribute-cpus-across-numa`: requests that need several NUMA nodes take as many CPUs from each.
    pub is_distributed: bool,
    /// `align-by-socket`: CPUs are aligned at sockets rather than at NUMA nodes.
    pub is_aligned_by_socket: bool,
}

/// Options of the topology manager's policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopologyPolicyOptions {
    /// `prefer-closest-numa-nodes`: among sets of as many nodes, those close to each other are better.
    pub prefers_closest: bool,
}

const CPU_GATE: &str = "CPUManagerPolicyOptions";
const TOPOLOGY_GATE: &str = "TopologyManagerPolicyOptions";

/// Reads a truth as Go does.
fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// A map as Go prints it.
fn go_map(options: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = options.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", pairs.join(" "))
}

/// Checks an option: its stage, and the gate of that stage.
fn check(manager: &str, stages: &[(&str, &str)], name: &str, gates: &Gates) -> Result<(), String> {
    let Some((_, stage)) = stages.iter().find(|(option, _)| *option == name) else {
        return Err(format!("unknown {manager} Manager Policy option: {name:?}"));
    };
    let gate = format!("{}ManagerPolicy{stage}Options", manager);
    match gates.is_open(&gate) {
        true => Ok(()),
        false => Err(format!(
            "{manager} Manager Policy {stage}-level Options not enabled, but option {name:?} provided"
        )),
    }
}

fn truth(name: &str, text: &str) -> Result<bool, String> {
    parse_bool(text).map_err(|why| format!("bad value for option {name:?}: {why}"))
}

/// Checks that options are given only if their gate is open.
pub fn check_gates(config: &Configuration, gates: &Gates) -> Result<(), String> {
    let options = config.map("cpuManagerPolicyOptions");
    if !options.is_empty() && !gates.is_open(CPU_GATE) {
        let shown = go_map(&options);
        return Err(format!(
            "CPU Manager policy options {shown} require feature gates \"CPUManager\", {CPU_GATE:?} enabled"
        ));
    }
    let options = config.map("topologyManagerPolicyOptions");
    if !options.is_empty() && gates.is_open("TopologyManager") && !gates.is_open(TOPOLOGY_GATE) {
        let shown = go_map(&options);
        return Err(format!(
            "topology manager policy options {shown} require feature gates \"TopologyManager\", {TOPOLOGY_GATE:?} enabled"
        ));
    }
    Ok(())
}

/// The options of the static CPU policy.
pub fn cpu_options(config: &Configuration, gates: &Gates) -> Result<CpuPolicyOptions, String> {
    const STAGES: &[(&str, &str)] = &[
        ("full-pcpus-only", "Beta"),
        ("distribute-cpus-across-numa", "Alpha"),
        ("align-by-socket", "Alpha"),
    ];
    let mut options = CpuPolicyOptions::default();
    for (name, text) in config.map("cpuManagerPolicyOptions") {
        check("CPU", STAGES, &name, gates)?;
        let value = truth(&name, &text)?;
        match &*name {
            "full-pcpus-only" => options.has_full_cores_only = value,
            "distribute-cpus-across-numa" => options.is_distributed = value,
            _ => options.is_aligned_by_socket = value,
        }
    }
    Ok(options)
}

/// The options of the topology manager.
pub fn topology_options(config: &Configuration, gates: &Gates) -> Result<TopologyPolicyOptions, String> {
    const STAGES: &[(&str, &str)] = &[("prefer-closest-numa-nodes", "Alpha")];
    let mut options = TopologyPolicyOptions::default();
    for (name, text) in config.map("topologyManagerPolicyOptions") {
        check("Topology", STAGES, &name, gates)?;
        options.prefers_closest = truth(&name, &text)?;
    }
    Ok(options)
}

/// Checks the policies of the managers as far as the machine does not matter, in upstream's order.
pub fn check_policies(config: &Configuration, gates: &Gates) -> Result<(), String> {
    check_gates(config, gates)?;
    if gates.is_open("TopologyManager") {
        topology_options(config, gates)?;
    }
    let policy = config.text(&["cpuManagerPolicy"]);
    let options = config.map("cpuManagerPolicyOptions");
    match policy {
        "none" if options.is_empty() => {}
        "none" => {
            return Err(format!(
                "new none policy error: None policy: received unsupported options={}",
                go_map(&options)
            ));
        }
        "static" => {
            cpu_options(config, gates).map_err(|why| format!("new static policy error: {why}"))?;
        }
        _ => return Err(format!("unknown policy: {policy:?}")),
    }
    let policy = config.text(&["memoryManagerPolicy"]);
    match policy {
        "None" | "Static" => Ok(()),
        _ => Err(format!("unknown policy: {policy:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gates::Gate;
    use super::*;
    use schema::Value;

    fn check_case(options: &[(&'static str, &'static str)], open: &[&'static str], expected: &str) {
        let mut given = Value::map();
        for (path, value) in options {
            given.set(&path.split('.').collect::<Vec<_>>(), *value);
        }
        let config = Configuration::with_defaults(given);
        let gates: Vec<Gate> =
            open.iter().map(|name| Gate { name, is_open: true, stage: "alpha", is_locked: false }).collect();
        let gates = Gates::new(&gates, &[]).unwrap();
        assert_eq!(check_policies(&config, &gates).err().unwrap_or_default(), expected, "{options:?}");
    }

    #[test]
    fn options_need_their_gates() {
        const CPU: &str = "CPUManagerPolicyOptions";
        let full = &[("cpuManagerPolicy", "static"), ("cpuManagerPolicyOptions.full-pcpus-only", "true")];
        check_case(full, &[CPU, "CPUManagerPolicyBetaOptions"], "");
        check_case(
            full,
            &[],
            "CPU Manager policy options map[full-pcpus-only:true] require feature gates \"CPUManager\", \"CPUManagerPolicyOptions\" enabled",
        );
        check_case(
            full,
            &[CPU],
            "new static policy error: CPU Manager Policy Beta-level Options not enabled, but option \"full-pcpus-only\" provided",
        );
        let unknown = &[("cpuManagerPolicy", "static"), ("cpuManagerPolicyOptions.x", "1")];
        check_case(unknown, &[CPU], "new static policy error: unknown CPU Manager Policy option: \"x\"");
        let spread = &[("cpuManagerPolicy", "static"), ("cpuManagerPolicyOptions.align-by-socket", "yes")];
        check_case(
            spread,
            &[CPU, "CPUManagerPolicyAlphaOptions"],
            "new static policy error: bad value for option \"align-by-socket\": strconv.ParseBool: parsing \"yes\": invalid syntax",
        );
        let closest = &[("topologyManagerPolicyOptions.prefer-closest-numa-nodes", "true")];
        check_case(closest, &[], "");
        check_case(
            closest,
            &["TopologyManager"],
            "topology manager policy options map[prefer-closest-numa-nodes:true] require feature gates \"TopologyManager\", \"TopologyManagerPolicyOptions\" enabled",
        );
        check_case(
            closest,
            &["TopologyManager", "TopologyManagerPolicyOptions"],
            "Topology Manager Policy Alpha-level Options not enabled, but option \"prefer-closest-numa-nodes\" provided",
        );
        check_case(
            &[("cpuManagerPolicyOptions.a", "b")],
            &[CPU],
            "new none policy error: None policy: received unsupported options=map[a:b]",
        );
    }
}
