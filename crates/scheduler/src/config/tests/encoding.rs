//! Configuration to text.

use super::*;
use schema::Value;

#[test]
fn the_default_configuration_is_written() {
    let expected = "apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  acceptContentTypes: \"\"
  burst: 100
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: \"\"
  qps: 50
enableContentionProfiling: true
enableProfiling: true
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: DefaultPreemptionArgs
      minCandidateNodesAbsolute: 100
      minCandidateNodesPercentage: 10
    name: DefaultPreemption
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      hardPodAffinityWeight: 1
      kind: InterPodAffinityArgs
    name: InterPodAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeAffinityArgs
    name: NodeAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesBalancedAllocationArgs
      resources:
      - name: cpu
        weight: 1
      - name: memory
        weight: 1
    name: NodeResourcesBalancedAllocation
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: memory
          weight: 1
        type: LeastAllocated
    name: NodeResourcesFit
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      defaultingType: System
      kind: PodTopologySpreadArgs
    name: PodTopologySpread
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      bindTimeoutSeconds: 600
      kind: VolumeBindingArgs
    name: VolumeBinding
  plugins:
    bind: {}
    filter: {}
    multiPoint:
      enabled:
      - name: PrioritySort
        weight: 0
      - name: NodeUnschedulable
        weight: 0
";
    let text = default().to_yaml(&Names::kubernetes());
    assert!(text.starts_with(expected), "{text}");
    let end = "    postBind: {}
    postFilter: {}
    preBind: {}
    preEnqueue: {}
    preFilter: {}
    preScore: {}
    queueSort: {}
    reserve: {}
    score: {}
  schedulerName: default-scheduler
";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_written_configuration_reads_as_the_same() {
    let text = "parallelism: 8
clientConnection: {qps: 2.5}
profiles:
- schedulerName: a
  plugins: {score: {enabled: [{name: ImageLocality, weight: 3}], disabled: [{name: '*'}]}}
  pluginConfig:
  - {name: NodeResourcesFit, args: {ignoredResources: [a/b]}}
  - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}}
- schedulerName: b
extenders:
- {urlPrefix: http://x, filterVerb: f, weight: 2, httpTimeout: 1m, tlsConfig: {keyData: YQ==}, managedResources: [{name: example.com/a}], ignorable: true}
";
    // v1beta2 does not keep disabled plugins: reading enables them again, as upstream does
    for version in [Version::V1, Version::V1beta3] {
        let first = read_as(version, text).unwrap();
        let written = first.to_yaml(&Names::kubernetes());
        let again = Configuration::read(written.as_bytes(), &Names::kubernetes(), GATES).unwrap();
        assert_eq!(again.to_yaml(&Names::kubernetes()), written);
        let completed = Configuration { profiles: first.completed_profiles(), ..first };
        assert_eq!(again.profiles(GATES), completed.profiles(GATES), "{written}");
        assert_eq!(
            (again.extenders, again.client_connection),
            (completed.extenders, completed.client_connection)
        );
    }
}

#[test]
fn v1beta2_is_written_as_such() {
    let text = read_as(Version::V1beta2, "").unwrap().to_yaml(&Names::kubernetes());
    assert!(text.contains("healthzBindAddress: \"\"\n") && text.contains("metricsBindAddress: \"\"\n"));
    assert!(text.contains("    multiPoint: {}\n"));
    assert!(text.contains("      apiVersion: kubescheduler.config.k8s.io/v1beta2\n"));
}

#[test]
fn configz_shows_the_internal_form() {
    let mut configuration = read("extenders: [{urlPrefix: u, tlsConfig: {keyData: YQ==}}]");
    configuration.profiles[0].plugins = PluginSelections::default();
    let configz = configuration.to_configz(&Names::kubernetes());
    let at = |path: &[&str]| configz.at(&[&["componentconfig"], path].concat()).cloned();
    assert_eq!(at(&["Parallelism"]), Some(Value::Int(16)));
    assert_eq!(at(&["ClientConnection", "QPS"]), Some(Value::Int(50)));
    assert_eq!(at(&["LeaderElection", "LeaseDuration"]), Some("15s".into()));
    assert_eq!(at(&["EnableProfiling"]), Some(true.into()));
    let profiles = at(&["Profiles"]).unwrap();
    let profile = &profiles.as_list().unwrap()[0];
    assert_eq!(profile.text(&["SchedulerName"]), "default-scheduler");
    assert_eq!(profile.at(&["Plugins", "MultiPoint", "Enabled"]), Some(&Value::Null));
    let args = profile.items(&["PluginConfig"]);
    assert_eq!(args[0].at(&["Args", "MinCandidateNodesAbsolute"]), Some(&Value::Int(100)));
    assert_eq!(args[4].at(&["Args", "IgnoredResources"]), Some(&Value::Null));
    assert_eq!(args[4].text(&["Args", "ScoringStrategy", "Type"]), "LeastAllocated");
    let extenders = at(&["Extenders"]).unwrap();
    assert_eq!(extenders.as_list().unwrap()[0].at(&["TLSConfig", "KeyData"]), Some(&Value::Null));
}
