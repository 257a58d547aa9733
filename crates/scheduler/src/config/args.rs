//! Arguments of plugins.

use super::gates::Gates;
use schema::{Map, Value};

/// The plugins that take arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgsKind {
    DefaultPreemption,
    InterPodAffinity,
    NodeAffinity,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    PodTopologySpread,
    VolumeBinding,
}

impl ArgsKind {
    pub const ALL: [ArgsKind; 7] = [
        ArgsKind::DefaultPreemption,
        ArgsKind::InterPodAffinity,
        ArgsKind::NodeAffinity,
        ArgsKind::NodeResourcesBalancedAllocation,
        ArgsKind::NodeResourcesFit,
        ArgsKind::PodTopologySpread,
        ArgsKind::VolumeBinding,
    ];

    /// The value of `kind`.
    pub fn kind(self) -> &'static str {
        match self {
            ArgsKind::DefaultPreemption => "DefaultPreemptionArgs",
            ArgsKind::InterPodAffinity => "InterPodAffinityArgs",
            ArgsKind::NodeAffinity => "NodeAffinityArgs",
            ArgsKind::NodeResourcesBalancedAllocation => "NodeResourcesBalancedAllocationArgs",
            ArgsKind::NodeResourcesFit => "NodeResourcesFitArgs",
            ArgsKind::PodTopologySpread => "PodTopologySpreadArgs",
            ArgsKind::VolumeBinding => "VolumeBindingArgs",
        }
    }

    /// The plugin that takes them.
    pub fn plugin(self) -> &'static str {
        self.kind().trim_end_matches("Args")
    }

    pub fn of_plugin(name: &str) -> Option<ArgsKind> {
        ArgsKind::ALL.into_iter().find(|kind| kind.plugin() == name)
    }

    pub(super) fn of_kind(kind: &str) -> Option<ArgsKind> {
        ArgsKind::ALL.into_iter().find(|known| known.kind() == kind)
    }
}

/// The arguments of one plugin.
#[derive(Debug, Clone, PartialEq)]
pub enum Args {
    /// In the normal form of the kind's table, without `apiVersion` and `kind`.
    InTree(ArgsKind, Value),
    /// Of a plugin that this scheduler does not know, as written.
    OutOfTree(Value),
}

impl Args {
    pub fn in_tree(&self) -> Option<(ArgsKind, &Value)> {
        match self {
            Args::InTree(kind, value) => Some((*kind, value)),
            Args::OutOfTree(_) => None,
        }
    }
}

/// Fills in the defaults of arguments.
pub(super) fn set_defaults(kind: ArgsKind, args: &mut Value, gates: Gates) {
    let args = args.make_map();
    match kind {
        ArgsKind::DefaultPreemption => {
            default_to(args, "minCandidateNodesPercentage", 10);
            default_to(args, "minCandidateNodesAbsolute", 100);
        }
        ArgsKind::InterPodAffinity => default_to(args, "hardPodAffinityWeight", 1),
        ArgsKind::NodeAffinity => {}
        ArgsKind::NodeResourcesBalancedAllocation => default_resources(args),
        ArgsKind::NodeResourcesFit => {
            let absent = !args.contains("scoringStrategy");
            let strategy = args.entry("scoringStrategy").make_map();
            if absent {
                default_to(strategy, "type", "LeastAllocated");
            }
            default_resources(strategy);
        }
        ArgsKind::PodTopologySpread => default_to(args, "defaultingType", "System"),
        ArgsKind::VolumeBinding => {
            default_to(args, "bindTimeoutSeconds", 600);
            if gates.volume_capacity_priority && is_empty(args, "shape") {
                args.insert("shape", vec![point(0, 0), point(100, 10)]);
            }
        }
    }
}

fn default_to(args: &mut Map, field: &'static str, value: impl Into<Value>) {
    if !args.contains(field) {
        args.insert(field, value);
    }
}

fn is_empty(args: &Map, field: &str) -> bool {
    args.get(field).and_then(Value::as_list).is_none_or(<[Value]>::is_empty)
}

fn point(utilization: i64, score: i64) -> Value {
    let mut point = Map::new();
    point.insert("utilization", utilization);
    point.insert("score", score);
    point.into()
}

/// CPU and memory when no resources are named; weight 1 where none is given.
fn default_resources(args: &mut Map) {
    if is_empty(args, "resources") {
        let resource = |name: &str| {
            let mut resource = Map::new();
            resource.insert("name", name);
            Value::from(resource)
        };
        args.insert("resources", vec![resource("cpu"), resource("memory")]);
    }
    let resources = args.get_mut("resources").and_then(Value::as_list_mut);
    for resource in resources.into_iter().flatten().filter_map(Value::as_map_mut) {
        if resource.get("weight").is_none_or(|weight| *weight == Value::Int(0)) {
            resource.insert("weight", 1);
        }
    }
}
