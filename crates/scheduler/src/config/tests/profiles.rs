//! Profiles: expansion of multiPoint, weights, arguments.

use super::*;
use crate::framework::profile::{
    Plugin, PodTopologySpreadConstraintsDefaulting, Profile, ScoringStrategyType, UtilizationShapePoint,
};

fn profile(plugins: &str) -> Result<Profile, String> {
    let configuration = read(&format!("profiles: [{{{plugins}}}]\n"));
    configuration.profiles(GATES).map(|mut profiles| profiles.remove(0)).map_err(|why| why.to_string())
}

fn error(plugins: &str) -> String {
    let text = profile(plugins).unwrap_err();
    let start = "initializing profiles: creating profile for scheduler name default-scheduler: ";
    text.strip_prefix(start).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn the_default_configuration_is_the_default_profile() {
    let profiles = default().profiles(GATES).unwrap();
    assert_eq!(profiles, [Profile::default()]);
    let without = Gates { pod_scheduling_readiness: false, ..GATES };
    let configuration = Configuration::with_defaults(&Names::kubernetes(), without);
    assert!(configuration.profiles(without).unwrap()[0].plugins.pre_enqueue.is_empty());
}

#[test]
fn v1beta2_gives_its_own_order() {
    let profile = read_as(Version::V1beta2, "").unwrap().profiles(GATES).unwrap().remove(0);
    assert_eq!(profile.plugins.pre_filter[0], Plugin::NodeResourcesFit);
    assert_eq!(profile.plugins.score[2], (Plugin::InterPodAffinity, 1));
    assert_eq!(profile.plugins.bind, [Plugin::DefaultBinder]);
}

#[test]
fn a_point_disables_plugins_of_multi_point() {
    let profile =
        profile("plugins: {score: {disabled: [{name: ImageLocality}]}, filter: {disabled: [{name: '*'}]}}");
    let plugins = profile.unwrap().plugins;
    assert!(plugins.score.iter().all(|(plugin, _)| *plugin != Plugin::ImageLocality));
    assert!(plugins.filter.is_empty());
    assert!(!plugins.pre_filter.is_empty());
}

#[test]
fn a_point_overrides_the_order_and_weight_of_multi_point() {
    let text = "plugins: {multiPoint: {disabled: [{name: ImageLocality}]}, \
                score: {enabled: [{name: ImageLocality, weight: 7}, {name: NodeAffinity, weight: 5}]}}";
    let score = profile(text).unwrap().plugins.score;
    assert_eq!(score[0], (Plugin::NodeAffinity, 5));
    assert_eq!(score[1], (Plugin::TaintToleration, 3));
    assert_eq!(score.last(), Some(&(Plugin::ImageLocality, 7)));
    let all = "plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}]}}";
    assert_eq!(profile(all).unwrap().plugins.score, [(Plugin::ImageLocality, 1)]);
    let multi = "plugins: {multiPoint: {enabled: [{name: ImageLocality, weight: 6}]}}";
    assert_eq!(profile(multi).unwrap().plugins.score.last(), Some(&(Plugin::ImageLocality, 6)));
}

#[test]
fn several_overridden_plugins_keep_their_order() {
    let text =
        "plugins: {score: {enabled: [{name: NodeAffinity}, {name: TaintToleration}, {name: VolumeBinding}]}}";
    let score = profile(text).unwrap().plugins.score;
    let expected = [(Plugin::NodeAffinity, 1), (Plugin::TaintToleration, 1), (Plugin::VolumeBinding, 1)];
    assert_eq!((score.len(), &score[..3]), (8, &expected[..]));
}

#[test]
fn plugins_that_do_not_go_together_are_errors() {
    assert_eq!(error("plugins: {filter: {enabled: [{name: foo}]}}"), "FilterPlugin \"foo\" does not exist");
    assert_eq!(
        error("plugins: {multiPoint: {enabled: [{name: foo}]}}"),
        "PreFilterPlugin \"foo\" does not exist"
    );
    assert_eq!(
        error("plugins: {filter: {enabled: [{name: ImageLocality}]}}"),
        "plugin \"ImageLocality\" does not extend FilterPlugin plugin"
    );
    assert_eq!(
        error("plugins: {score: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}}"),
        "plugin \"ImageLocality\" already registered as \"ScorePlugin\""
    );
    assert_eq!(
        error("plugins: {multiPoint: {enabled: [{name: SelectorSpread}, {name: SelectorSpread}]}}"),
        "plugin \"SelectorSpread\" already registered as \"PreScorePlugin\""
    );
    assert_eq!(
        error("plugins: {queueSort: {disabled: [{name: '*'}]}}"),
        "only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 0"
    );
    assert_eq!(
        error("plugins: {bind: {disabled: [{name: DefaultBinder}]}}"),
        "at least one bind plugin is needed for profile with scheduler name \"default-scheduler\""
    );
    assert_eq!(
        error("pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Foo}}}]"),
        "initializing plugin \"NodeResourcesFit\": scoringStrategy.type: Unsupported value: \"Foo\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\""
    );
}

#[test]
fn arguments_become_those_of_the_engine() {
    let args = profile(
        "pluginConfig: [
  {name: DefaultPreemption, args: {minCandidateNodesPercentage: 5, minCandidateNodesAbsolute: 6}},
  {name: InterPodAffinity, args: {hardPodAffinityWeight: 7}},
  {name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}},
  {name: NodeResourcesFit, args: {ignoredResources: [a/b], ignoredResourceGroups: [g], scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 3}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}}},
  {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}},
  {name: VolumeBinding, args: {bindTimeoutSeconds: 30}}]",
    );
    let args = args.unwrap().args;
    assert_eq!(args.default_preemption.min_candidate_nodes_percentage, 5);
    assert_eq!(args.default_preemption.min_candidate_nodes_absolute, 6);
    assert_eq!(args.inter_pod_affinity.hard_pod_affinity_weight, 7);
    let affinity = args.node_affinity.added_affinity.unwrap();
    let required = affinity.required_during_scheduling_ignored_during_execution.unwrap();
    assert_eq!(required.node_selector_terms[0].match_expressions[0].key, "a");
    let fit = args.node_resources_fit;
    assert_eq!(
        (&*fit.ignored_resources, &*fit.ignored_resource_groups),
        (&["a/b".to_owned()][..], &["g".to_owned()][..])
    );
    let strategy = fit.scoring_strategy;
    assert_eq!(
        (strategy.kind, strategy.resources[0].weight),
        (ScoringStrategyType::RequestedToCapacityRatio, 3)
    );
    assert_eq!(strategy.shape[1], UtilizationShapePoint { utilization: 100, score: 0 });
    let spread = args.pod_topology_spread;
    assert_eq!(spread.defaulting_type, PodTopologySpreadConstraintsDefaulting::List);
    assert_eq!(
        (spread.default_constraints[0].max_skew, &*spread.default_constraints[0].topology_key),
        (2, "zone")
    );
    assert_eq!(args.volume_binding.bind_timeout_seconds, 30);
}

#[test]
fn resources_of_extenders_are_ignored_by_the_fit() {
    let configuration = read(
        "extenders:
- {urlPrefix: http://a, ignorable: true, managedResources: [{name: example.com/a, ignoredByScheduler: true}, {name: example.com/b}]}
- {urlPrefix: http://b}
",
    );
    let profiles = configuration.profiles(GATES).unwrap();
    assert_eq!(profiles[0].args.node_resources_fit.ignored_resources, ["example.com/a"]);
    let order: Vec<&str> =
        extender_order(&configuration.extenders).iter().map(|it| &*it.url_prefix).collect();
    assert_eq!(order, ["http://b", "http://a"]);
}
