//! From a profile's configuration to the plugins that run, in order, with weights and arguments.

use super::args::{Args, ArgsKind};
use super::error::ConfigError;
use super::extender::Extender;
use super::extension_point::ExtensionPoint;
use super::gates::Gates;
use super::plugins::EnabledPlugin;
use super::read::{int32, int64, text, texts};
use super::types::{Configuration, PluginConfig, ProfileConfig};
use super::validate_args::{self, Errors};
use crate::framework::profile::{
    DefaultPreemptionArgs, InterPodAffinityArgs, NodeAffinityArgs, NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs, Plugin, PluginArgs, Plugins, PodTopologySpreadArgs,
    PodTopologySpreadConstraintsDefaulting, Profile, ResourceSpec, ScoringStrategy, ScoringStrategyType,
    UtilizationShapePoint, VolumeBindingArgs,
};
use schema::Value;
use std::collections::HashSet;

impl Configuration {
    /// The profiles of a validated configuration.
    pub fn profiles(&self, gates: Gates) -> Result<Vec<Profile>, ConfigError> {
        let ignored = self.ignored_resources();
        let build = |profile: &ProfileConfig| {
            build_profile(profile, &ignored, gates).map_err(|why| {
                let name = &profile.scheduler_name;
                let place = format!("initializing profiles: creating profile for scheduler name {name}");
                ConfigError::Profile(format!("{place}: {why}"))
            })
        };
        self.profiles.iter().map(build).collect()
    }

    /// The profiles as the scheduler uses them: the arguments of needed plugins only, by name.
    pub fn completed_profiles(&self) -> Vec<ProfileConfig> {
        let ignored = self.ignored_resources();
        let complete = |profile: &ProfileConfig| {
            let needed = profile.plugins.names(ExtensionPoint::ALL);
            let configs = profile.plugin_config.iter().filter(|config| needed.contains(&*config.name));
            let mut configs: Vec<PluginConfig> = configs.cloned().collect();
            configs.sort_by(|a, b| a.name.cmp(&b.name));
            for config in &mut configs {
                ignore_resources(&mut config.args, &ignored);
            }
            ProfileConfig { plugin_config: configs, ..profile.clone() }
        };
        self.profiles.iter().map(complete).collect()
    }

    /// Resources that extenders manage and NodeResourcesFit ignores.
    fn ignored_resources(&self) -> Vec<String> {
        let resources = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        resources.filter(|it| it.ignored_by_scheduler).map(|it| it.name.clone()).collect()
    }
}

/// Extenders in the order of their calls: those that may fail come last.
pub fn extender_order(extenders: &[Extender]) -> Vec<&Extender> {
    let (last, first): (Vec<_>, Vec<_>) = extenders.iter().partition(|extender| extender.ignorable);
    first.into_iter().chain(last).collect()
}

/// The resources of extenders replace those of the arguments.
fn ignore_resources(args: &mut Args, resources: &[String]) {
    if let Args::InTree(ArgsKind::NodeResourcesFit, value) = args
        && !resources.is_empty()
    {
        let resources: Vec<Value> = resources.iter().map(|name| Value::from(&**name)).collect();
        value.set(&["ignoredResources"], resources);
    }
}

fn build_profile(profile: &ProfileConfig, ignored: &[String], gates: Gates) -> Result<Profile, String> {
    let args = build_args(profile, ignored, gates)?;
    // upstream reports mistakes of single points before those of multiPoint
    for point in ExtensionPoint::CHECKED {
        check_point(profile, point)?;
    }
    let mut plugins = Plugins {
        pre_enqueue: Vec::new(),
        queue_sort: Vec::new(),
        pre_filter: Vec::new(),
        filter: Vec::new(),
        post_filter: Vec::new(),
        pre_score: Vec::new(),
        score: Vec::new(),
        reserve: Vec::new(),
        permit: Vec::new(),
        pre_bind: Vec::new(),
        bind: Vec::new(),
        post_bind: Vec::new(),
    };
    for point in ExtensionPoint::CHECKED {
        let expanded = expand(profile, point)?;
        let list = match point {
            ExtensionPoint::PreEnqueue => &mut plugins.pre_enqueue,
            ExtensionPoint::QueueSort => &mut plugins.queue_sort,
            ExtensionPoint::PreFilter => &mut plugins.pre_filter,
            ExtensionPoint::Filter => &mut plugins.filter,
            ExtensionPoint::PostFilter => &mut plugins.post_filter,
            ExtensionPoint::PreScore => &mut plugins.pre_score,
            ExtensionPoint::Reserve => &mut plugins.reserve,
            ExtensionPoint::Permit => &mut plugins.permit,
            ExtensionPoint::PreBind => &mut plugins.pre_bind,
            ExtensionPoint::Bind => &mut plugins.bind,
            ExtensionPoint::PostBind => &mut plugins.post_bind,
            ExtensionPoint::Score => {
                plugins.score = with_weights(profile, &expanded);
                continue;
            }
            ExtensionPoint::MultiPoint => continue,
        };
        *list = expanded;
    }
    let name = &profile.scheduler_name;
    let sorts = plugins.queue_sort.len();
    if sorts != 1 {
        let needed = "only one queue sort plugin required for profile with scheduler name";
        return Err(format!("{needed} {name:?}, but got {sorts}"));
    }
    if plugins.bind.is_empty() {
        return Err(format!("at least one bind plugin is needed for profile with scheduler name {name:?}"));
    }
    Ok(Profile {
        scheduler_name: name.clone(),
        percentage_of_nodes_to_score: profile.percentage_of_nodes_to_score,
        plugins,
        args,
    })
}

fn find(plugin: &EnabledPlugin, point: ExtensionPoint) -> Result<Plugin, String> {
    let missing = || format!("{}Plugin {:?} does not exist", point.name(), plugin.name);
    Plugin::from_name(&plugin.name).ok_or_else(missing)
}

fn already_registered(name: &str, point: ExtensionPoint) -> String {
    format!("plugin {name:?} already registered as {:?}", format!("{}Plugin", point.name()))
}

/// Checks the plugins that a point enables by itself.
fn check_point(profile: &ProfileConfig, point: ExtensionPoint) -> Result<(), String> {
    let mut seen = HashSet::new();
    for enabled in &profile.plugins.get(point).enabled {
        let plugin = find(enabled, point)?;
        if !point.is_implemented_by(plugin) {
            return Err(format!("plugin {:?} does not extend {}Plugin plugin", enabled.name, point.name()));
        }
        if !seen.insert(plugin) {
            return Err(already_registered(&enabled.name, point));
        }
    }
    Ok(())
}

/// The plugins of a point: those of multiPoint that the point configures itself, in the point's order; the other ones
/// of multiPoint; then the point's other ones.
///
/// Upstream means the same, but changes the list that it walks: of three or more plugins that a point enables, two of
/// them in multiPoint too, one can then stand twice and another behind its place. That is not repeated here.
fn expand(profile: &ProfileConfig, point: ExtensionPoint) -> Result<Vec<Plugin>, String> {
    let own = profile.plugins.get(point);
    let own_plugins = own.enabled.iter().map(|plugin| find(plugin, point)).collect::<Result<Vec<_>, _>>()?;
    let multi = &profile.plugins.get(ExtensionPoint::MultiPoint).enabled;
    if multi.is_empty() || own.disabled.iter().any(|plugin| plugin.name == "*") {
        return Ok(own_plugins);
    }
    let mut overridden = HashSet::new();
    let mut from_multi = Vec::new();
    for enabled in multi {
        let plugin = find(enabled, point)?;
        let is_disabled = own.disabled.iter().any(|other| other.name == enabled.name);
        if !point.is_implemented_by(plugin) || is_disabled {
            continue;
        }
        if own_plugins.contains(&plugin) {
            overridden.insert(plugin);
        } else if from_multi.contains(&plugin) {
            return Err(already_registered(&enabled.name, point));
        } else {
            from_multi.push(plugin);
        }
    }
    let (first, last): (Vec<Plugin>, Vec<Plugin>) =
        own_plugins.into_iter().partition(|plugin| overridden.contains(plugin));
    Ok([first, from_multi, last].concat())
}

/// The weight at the point itself counts before that of multiPoint; 0 is 1.
fn with_weights(profile: &ProfileConfig, plugins: &[Plugin]) -> Vec<(Plugin, i64)> {
    let selections = [ExtensionPoint::Score, ExtensionPoint::MultiPoint];
    let weight = |plugin: Plugin| {
        let mut enabled = selections.iter().flat_map(|point| &profile.plugins.get(*point).enabled);
        let found = enabled.find(|enabled| enabled.name == plugin.name());
        found.map(|enabled| i64::from(enabled.weight)).filter(|weight| *weight != 0).unwrap_or(1)
    };
    plugins.iter().map(|plugin| (*plugin, weight(*plugin))).collect()
}

fn build_args(profile: &ProfileConfig, ignored: &[String], gates: Gates) -> Result<PluginArgs, String> {
    let mut all = PluginArgs::default();
    let mut seen = HashSet::new();
    let needed = profile.plugins.names(ExtensionPoint::ALL);
    for config in &profile.plugin_config {
        if !seen.insert(&config.name) {
            return Err(format!("repeated config for plugin {}", config.name));
        }
        let mut args = config.args.clone();
        ignore_resources(&mut args, ignored);
        let Some((kind, value)) = args.in_tree().filter(|_| needed.contains(&*config.name)) else { continue };
        let mut errors = Errors::default();
        validate_args::validate(kind, value, "", gates, &mut errors);
        errors.finish().map_err(|why| format!("initializing plugin {:?}: {why}", config.name))?;
        set_args(&mut all, kind, value)
            .map_err(|why| format!("initializing plugin {:?}: {why}", config.name))?;
    }
    Ok(all)
}

fn set_args(all: &mut PluginArgs, kind: ArgsKind, args: &Value) -> Result<(), String> {
    match kind {
        ArgsKind::DefaultPreemption => {
            all.default_preemption = DefaultPreemptionArgs {
                min_candidate_nodes_percentage: int32(args, "minCandidateNodesPercentage").unwrap_or(0),
                min_candidate_nodes_absolute: int32(args, "minCandidateNodesAbsolute").unwrap_or(0),
            };
        }
        ArgsKind::InterPodAffinity => {
            all.inter_pod_affinity = InterPodAffinityArgs {
                hard_pod_affinity_weight: int32(args, "hardPodAffinityWeight").unwrap_or(0),
                ..InterPodAffinityArgs::default()
            };
        }
        ArgsKind::NodeAffinity => {
            let added_affinity = args.at(&["addedAffinity"]).map(typed).transpose()?;
            all.node_affinity = NodeAffinityArgs { added_affinity };
        }
        ArgsKind::NodeResourcesBalancedAllocation => {
            let resources = resources(args);
            all.node_resources_balanced_allocation = NodeResourcesBalancedAllocationArgs { resources };
        }
        ArgsKind::NodeResourcesFit => {
            let scoring_strategy = args.at(&["scoringStrategy"]).map(scoring_strategy);
            all.node_resources_fit = NodeResourcesFitArgs {
                ignored_resources: texts(args, "ignoredResources"),
                ignored_resource_groups: texts(args, "ignoredResourceGroups"),
                scoring_strategy: scoring_strategy.unwrap_or_default(),
            };
        }
        ArgsKind::PodTopologySpread => {
            let constraints = args.items(&["defaultConstraints"]).iter().map(typed);
            all.pod_topology_spread = PodTopologySpreadArgs {
                default_constraints: constraints.collect::<Result<_, _>>()?,
                defaulting_type: match &*text(args, "defaultingType") {
                    "List" => PodTopologySpreadConstraintsDefaulting::List,
                    _ => PodTopologySpreadConstraintsDefaulting::System,
                },
            };
        }
        ArgsKind::VolumeBinding => {
            all.volume_binding = VolumeBindingArgs {
                bind_timeout_seconds: int64(args, "bindTimeoutSeconds").unwrap_or(0),
                shape: shape(args.items(&["shape"])),
            };
        }
    }
    Ok(())
}

/// A part of arguments as a struct of the API.
fn typed<T: api::Json>(value: &Value) -> Result<T, String> {
    api::from_json(&schema::encode::untyped(value)).map_err(|why| why.to_string())
}

fn scoring_strategy(strategy: &Value) -> ScoringStrategy {
    ScoringStrategy {
        kind: match &*text(strategy, "type") {
            "MostAllocated" => ScoringStrategyType::MostAllocated,
            "RequestedToCapacityRatio" => ScoringStrategyType::RequestedToCapacityRatio,
            _ => ScoringStrategyType::LeastAllocated,
        },
        resources: resources(strategy),
        shape: shape(strategy.items(&["requestedToCapacityRatio", "shape"])),
    }
}

fn resources(args: &Value) -> Vec<ResourceSpec> {
    let resources = args.items(&["resources"]).iter();
    let resource =
        |it: &Value| ResourceSpec { name: text(it, "name"), weight: int64(it, "weight").unwrap_or(1) };
    resources.map(resource).collect()
}

fn shape(points: &[Value]) -> Vec<UtilizationShapePoint> {
    let number = |point: &Value, field: &str| int32(point, field).unwrap_or(0);
    let point = |it: &Value| UtilizationShapePoint {
        utilization: number(it, "utilization"),
        score: number(it, "score"),
    };
    points.iter().map(point).collect()
}
