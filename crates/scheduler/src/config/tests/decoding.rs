//! Text to configuration: versions, strictness, defaults, merged plugins, flags.

use super::*;
use std::time::Duration;

fn error(version: Version, text: &str) -> String {
    read_as(version, text).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_the_default_configuration() {
    let configuration = read("");
    assert_eq!(configuration, default());
    assert_eq!(configuration.parallelism, 16);
    let election = &configuration.leader_election;
    assert!(election.leader_elect);
    let durations =
        [election.lease_duration_nanos, election.renew_deadline_nanos, election.retry_period_nanos];
    assert_eq!(durations, [15_000_000_000, 10_000_000_000, 2_000_000_000]);
    let lock = (&*election.resource_lock, &*election.resource_namespace, &*election.resource_name);
    assert_eq!(lock, ("leases", "kube-system", "kube-scheduler"));
    let connection = &configuration.client_connection;
    assert_eq!(connection.content_type, "application/vnd.kubernetes.protobuf");
    assert_eq!((connection.qps, connection.burst), (50.0, 100));
    assert_eq!(configuration.percentage_of_nodes_to_score, Some(0));
    assert_eq!(configuration.backoff(), crate::queue::Backoff::default());
    let profile = &configuration.profiles[0];
    assert_eq!(profile.scheduler_name, "default-scheduler");
    let configs: Vec<&str> = profile.plugin_config.iter().map(|config| &*config.name).collect();
    let with_args: Vec<&str> = ArgsKind::ALL.into_iter().map(ArgsKind::plugin).collect();
    assert_eq!(configs, with_args);
    configuration.validate(&Names::kubernetes(), GATES).unwrap();
}

#[test]
fn given_values_stay() {
    let configuration = read(
        "parallelism: 8
leaderElection: {leaderElect: false, leaseDuration: 1m, resourceName: mine}
clientConnection: {kubeconfig: /k, qps: 2.5, burst: 7}
enableProfiling: false
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- schedulerName: mine
  percentageOfNodesToScore: 40
extenders:
- urlPrefix: http://x
  filterVerb: filter
  weight: 5
  httpTimeout: 3s
  enableHTTPS: true
  tlsConfig: {insecure: true, caData: YQ==}
  managedResources: [{name: example.com/a, ignoredByScheduler: true}]
",
    );
    assert_eq!(configuration.parallelism, 8);
    let election = &configuration.leader_election;
    assert_eq!((election.leader_elect, election.lease_duration_nanos), (false, 60_000_000_000));
    assert_eq!(election.resource_name, "mine");
    let connection = &configuration.client_connection;
    assert_eq!((&*connection.kubeconfig, connection.qps, connection.burst), ("/k", 2.5, 7));
    assert!(!configuration.enable_profiling && !configuration.enable_contention_profiling);
    assert_eq!(configuration.percentage_of_nodes_to_score, Some(30));
    let backoff = configuration.backoff();
    assert_eq!((backoff.initial, backoff.max), (Duration::from_secs(2), Duration::from_secs(20)));
    let profile = &configuration.profiles[0];
    assert_eq!((&*profile.scheduler_name, profile.percentage_of_nodes_to_score), ("mine", Some(40)));
    let extender = &configuration.extenders[0];
    assert_eq!((&*extender.filter_verb, extender.weight), ("filter", 5));
    assert_eq!(extender.http_timeout_nanos, 3_000_000_000);
    let tls = extender.tls_config.as_ref().unwrap();
    assert_eq!((tls.insecure, &*tls.ca_data), (true, "YQ=="));
    assert!(extender.managed_resources[0].ignored_by_scheduler);
}

#[test]
fn json_is_read_too() {
    let text = r#"{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","parallelism":3}"#;
    let read = |text: &str| Configuration::read(text.as_bytes(), &Names::kubernetes(), GATES);
    assert_eq!(read(text).unwrap().parallelism, 3);
    let twice = text.replace("\"parallelism\":3", "\"parallelism\":3,\"parallelism\":4");
    assert_eq!(
        read(&twice).unwrap_err().to_string(),
        "strict decoding error: duplicate field \"parallelism\""
    );
    let inside = text.replace(
        "\"parallelism\":3",
        r#""profiles":[{"pluginConfig":[{"name":"InterPodAffinity","args":{"hardPodAffinityWeight":1,"hardPodAffinityWeight":2}}]}]"#,
    );
    assert_eq!(
        read(&inside).unwrap_err().to_string(),
        "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin InterPodAffinity: strict decoding error: duplicate field \"hardPodAffinityWeight\""
    );
    assert!(read("{").unwrap_err().to_string().starts_with("couldn't get version/kind; json parse error: "));
}

#[test]
fn other_kinds_and_versions_are_refused() {
    let read = |text: &str| {
        Configuration::read(text.as_bytes(), &Names::kubernetes(), GATES).unwrap_err().to_string()
    };
    assert_eq!(
        read("kind: KubeSchedulerConfiguration\n"),
        "Object 'apiVersion' is missing in 'kind: KubeSchedulerConfiguration\n'"
    );
    assert_eq!(read(""), "Object 'Kind' is missing in ''");
    assert!(
        read("[]")
            .starts_with("couldn't get version/kind; json parse error: json: cannot unmarshal array into")
    );
    assert_eq!(read("a: b\n"), "Object 'Kind' is missing in 'a: b\n'");
    assert_eq!(
        read("kind: KubeSchedulerConfiguration\napiVersion: componentconfig/v1alpha1\n"),
        "no kind \"KubeSchedulerConfiguration\" is registered for version \"componentconfig/v1alpha1\" in scheme \"pkg/scheduler/apis/config/scheme/scheme.go:31\""
    );
    let args = "kind: VolumeBindingArgs\napiVersion: kubescheduler.config.k8s.io/v1\n";
    assert_eq!(
        read(args),
        "couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, Kind=VolumeBindingArgs: "
    );
}

#[test]
fn unknown_and_duplicate_fields_are_errors() {
    assert_eq!(error(Version::V1, "foo: bar\n"), "strict decoding error: unknown field \"foo\"");
    assert_eq!(
        error(Version::V1, "leaderElection:\n  leaderElect: true\n  leaderElect: false\nfoo: 1\n"),
        "strict decoding error: yaml: unmarshal errors:\n  line 5: key \"leaderElect\" already set in map, unknown field \"foo\""
    );
    // fields that only some versions have
    for (version, field) in [(Version::V1, "healthzBindAddress"), (Version::V1beta3, "metricsBindAddress")] {
        let expected = format!("strict decoding error: unknown field {field:?}");
        assert_eq!(error(version, &format!("{field}: ''\n")), expected);
    }
    let percentage = "profiles: [{percentageOfNodesToScore: 3}]\n";
    for version in [Version::V1beta2, Version::V1beta3] {
        assert_eq!(
            error(version, percentage),
            "strict decoding error: unknown field \"profiles[0].percentageOfNodesToScore\""
        );
    }
    assert!(read_as(Version::V1beta2, "healthzBindAddress: 0.0.0.0:0\n").is_ok());
}

#[test]
fn values_of_another_type_are_errors() {
    assert_eq!(
        error(Version::V1, "parallelism: many\n"),
        "json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32"
    );
    assert_eq!(
        error(
            Version::V1,
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: x}}]}]"
        ),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: json: cannot unmarshal string into Go struct field InterPodAffinityArgs.hardPodAffinityWeight of type int32"
    );
}

#[test]
fn arguments_are_strict_too() {
    for version in Version::ALL {
        let api = format!("kubescheduler.config.k8s.io/{}", version.name());
        let of_another_kind = format!(
            "profiles:\n- pluginConfig:\n  - name: DefaultPreemption\n    args:\n      apiVersion: {api}\n      kind: InterPodAffinityArgs\n"
        );
        assert_eq!(
            error(version, &of_another_kind),
            "decoding .profiles[0].pluginConfig[0]: args for plugin DefaultPreemption were not of type DefaultPreemptionArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io"
        );
        let unknown = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {requestedToCapacityRatio: {shape: [{Utilization: 1, Score: 2}]}}}}]}]";
        assert_eq!(
            error(version, unknown),
            "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeResourcesFit: strict decoding error: unknown field \"scoringStrategy.requestedToCapacityRatio.shape[0].Score\", unknown field \"scoringStrategy.requestedToCapacityRatio.shape[0].Utilization\""
        );
    }
    let scheme = "in scheme \"pkg/scheduler/apis/config/scheme/scheme.go:31\"";
    let start = "decoding .profiles[0].pluginConfig[0]: decoding args for plugin NodeAffinity:";
    let of_args = |args: &str| {
        error(Version::V1, &format!("profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {args}}}]}}]"))
    };
    assert_eq!(
        of_args("{kind: Foo}"),
        format!(
            "{start} no kind \"Foo\" is registered for version \"kubescheduler.config.k8s.io/v1\" {scheme}"
        )
    );
    assert_eq!(
        of_args("{apiVersion: foo/v1}"),
        format!("{start} no kind \"NodeAffinityArgs\" is registered for version \"foo/v1\" {scheme}")
    );
    assert_eq!(
        of_args("[]"),
        format!(
            "{start} couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )
    );
    assert_eq!(
        of_args("{apiVersion: kubescheduler.config.k8s.io/v1beta2, kind: NodeAffinityArgs, foo: 1}"),
        "converting .Profiles[0].PluginConfig[0].Args into internal type: no kind is registered for the type v1beta2.NodeAffinityArgs in scheme \"pkg/scheduler/apis/config/v1/conversion.go:41\""
    );
}

fn args<'c>(configuration: &'c Configuration, plugin: &str) -> &'c Args {
    let configs = &configuration.profiles[0].plugin_config;
    &configs.iter().find(|config| config.name == plugin).unwrap().args
}

fn json(args: &Args) -> String {
    let value = match args {
        Args::InTree(_, value) | Args::OutOfTree(value) => value,
    };
    String::from_utf8(schema::encode::untyped(value)).unwrap()
}

#[test]
fn arguments_have_defaults() {
    let configuration = read(
        "profiles:
- pluginConfig:
  - name: OutOfTree
    args: {any: [thing]}
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy: {type: MostAllocated, resources: [{name: gpu}]}
  - name: DefaultPreemption
    args: {minCandidateNodesAbsolute: 0}
  - name: InterPodAffinity
",
    );
    assert_eq!(json(args(&configuration, "OutOfTree")), r#"{"any":["thing"]}"#);
    assert_eq!(
        json(args(&configuration, "NodeResourcesFit")),
        r#"{"scoringStrategy":{"resources":[{"name":"gpu","weight":1}],"type":"MostAllocated"}}"#
    );
    assert_eq!(
        json(args(&configuration, "DefaultPreemption")),
        r#"{"minCandidateNodesAbsolute":0,"minCandidateNodesPercentage":10}"#
    );
    assert_eq!(json(args(&configuration, "InterPodAffinity")), r#"{"hardPodAffinityWeight":1}"#);
    assert_eq!(json(args(&configuration, "NodeAffinity")), "{}");
    assert_eq!(json(args(&configuration, "PodTopologySpread")), r#"{"defaultingType":"System"}"#);
    assert_eq!(json(args(&configuration, "VolumeBinding")), r#"{"bindTimeoutSeconds":600}"#);
    let resources = r#"{"resources":[{"name":"cpu","weight":1},{"name":"memory","weight":1}]}"#;
    assert_eq!(json(args(&configuration, "NodeResourcesBalancedAllocation")), resources);
    let gates = Gates { volume_capacity_priority: true, ..GATES };
    let with_gate = Configuration::with_defaults(&Names::kubernetes(), gates);
    assert_eq!(
        json(args(&with_gate, "VolumeBinding")),
        r#"{"bindTimeoutSeconds":600,"shape":[{"score":0,"utilization":0},{"score":10,"utilization":100}]}"#
    );
}

#[test]
fn custom_plugins_change_the_default_ones() {
    let configuration = read(
        "profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodeAffinity, weight: 9}, {name: Mine}]
      disabled: [{name: ImageLocality}]
    reserve:
      enabled: [{name: foo}]
      disabled: [{name: VolumeBinding}]
",
    );
    let multi = enabled(&configuration, ExtensionPoint::MultiPoint);
    assert_eq!(multi[4], "NodeAffinity:9");
    assert_eq!(multi.last().unwrap(), "Mine:0");
    assert!(!multi.iter().any(|plugin| plugin.starts_with("ImageLocality")));
    assert_eq!(enabled(&configuration, ExtensionPoint::Reserve), ["foo:0"]);
    let reserve = configuration.profiles[0].plugins.get(ExtensionPoint::Reserve);
    assert_eq!(reserve.disabled[0].name, "VolumeBinding");
    let all_off =
        "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}]}}}]";
    assert_eq!(enabled(&read(all_off), ExtensionPoint::MultiPoint), ["DefaultBinder:0"]);
}

#[test]
fn v1beta2_has_its_plugins_at_single_points() {
    let read = |text: &str| read_as(Version::V1beta2, text).unwrap();
    let configuration = read("");
    assert_eq!(enabled(&configuration, ExtensionPoint::MultiPoint), [""; 0]);
    assert_eq!(enabled(&configuration, ExtensionPoint::PreEnqueue), ["SchedulingGates:0"]);
    assert_eq!(
        enabled(&configuration, ExtensionPoint::Score),
        [
            "NodeResourcesBalancedAllocation:1",
            "ImageLocality:1",
            "InterPodAffinity:1",
            "NodeResourcesFit:1",
            "NodeAffinity:1",
            "PodTopologySpread:2",
            "TaintToleration:1"
        ]
    );
    // fields that the version has and does not read
    let ignored = "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}]}, preEnqueue: {enabled: [{name: Mine}]}}}]";
    assert_eq!(read(ignored).profiles[0].plugins, configuration.profiles[0].plugins);
    let off = read("profiles: [{plugins: {score: {disabled: [{name: '*'}]}}}]");
    let score = off.profiles[0].plugins.get(ExtensionPoint::Score);
    assert!(score.enabled.is_empty() && score.disabled.is_empty());
}

#[test]
fn only_a_single_profile_has_a_default_name() {
    let configuration = read("profiles: [{}, {schedulerName: b}]");
    assert_eq!(configuration.profiles[0].scheduler_name, "");
}

#[test]
fn flags_change_the_configuration() {
    let names = Names::kubernetes();
    let mut options = Options {
        deprecated: DeprecatedOptions {
            profiling: Some(false),
            kubeconfig: Some("/k".to_owned()),
            kube_api_qps: Some(3.0),
            kube_api_burst: Some(4),
            lock_object_name: Some("deprecated".to_owned()),
            lock_object_namespace: Some("ns".to_owned()),
            ..DeprecatedOptions::default()
        },
        leader_election: LeaderElectionOptions {
            leader_elect: Some(false),
            resource_name: Some("lock".to_owned()),
            ..LeaderElectionOptions::default()
        },
        config: None,
    };
    let configuration = options.configuration(&names, GATES).unwrap();
    assert!(!configuration.enable_profiling && configuration.enable_contention_profiling);
    let connection = &configuration.client_connection;
    assert_eq!((&*connection.kubeconfig, connection.qps, connection.burst), ("/k", 3.0, 4));
    let election = &configuration.leader_election;
    assert!(!election.leader_elect);
    assert_eq!((&*election.resource_name, &*election.resource_namespace), ("lock", "ns"));
    assert_eq!(options.max_in_unschedulable(), Duration::from_secs(300));

    options.config = Some(head(Version::V1).into_bytes());
    let configuration = options.configuration(&names, GATES).unwrap();
    assert_eq!(configuration.client_connection, default().client_connection);
    let election = &configuration.leader_election;
    assert_eq!((&*election.resource_name, &*election.resource_namespace), ("lock", "kube-system"));

    options.leader_election.leader_elect = Some(true);
    options.leader_election.lease_duration_nanos = Some(1);
    assert!(matches!(options.configuration(&names, GATES), Err(ConfigError::Invalid(_))));
}

#[test]
fn damaged_text_is_an_error_and_no_panic() {
    let text = format!(
        "{}profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {{}}}}}}]}}]",
        head(Version::V1)
    );
    for end in 0..text.len() {
        let _ = Configuration::read(&text.as_bytes()[..end], &Names::kubernetes(), GATES);
    }
    for value in ["null", "[]", "{}", "7", "-1", "x", "1e400", "[[null]]"] {
        for field in ["profiles", "extenders", "leaderElection", "clientConnection", "parallelism"] {
            let _ = read_as(Version::V1, &format!("{field}: {value}\n"));
        }
        let args = format!("profiles: [{{pluginConfig: [{{name: VolumeBinding, args: {value}}}]}}]");
        let _ = read_as(Version::V1, &args).map(|read| read.validate(&Names::kubernetes(), GATES));
    }
}
