//! Validation: every mistake, in upstream's words.

use super::*;

fn errors_as(version: Version, text: &str) -> Vec<String> {
    let configuration = read_as(version, text).unwrap_or_else(|why| panic!("{text}: {why}"));
    match configuration.validate(&Names::kubernetes(), GATES) {
        Ok(()) => Vec::new(),
        Err(ConfigError::Invalid(errors)) => errors,
        Err(other) => panic!("{other}"),
    }
}

fn errors(text: &str) -> Vec<String> {
    errors_as(Version::V1, text)
}

fn args_errors(plugin: &str, args: &str) -> Vec<String> {
    let text = format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]");
    let path = "profiles[0].pluginConfig[0].args.";
    let errors = errors(&text).into_iter();
    errors.map(|error| error.strip_prefix(path).unwrap_or_else(|| panic!("{error}")).to_owned()).collect()
}

#[test]
fn all_mistakes_are_listed() {
    let text = "parallelism: 0
clientConnection: {burst: -1}
leaderElection: {leaseDuration: -1s, renewDeadline: -2s, retryPeriod: -3s}
percentageOfNodesToScore: 101
podInitialBackoffSeconds: 0
podMaxBackoffSeconds: -1
profiles: [{schedulerName: '', percentageOfNodesToScore: -1}]
";
    let expected = [
        "clientConnection.burst: Invalid value: -1: must be non-negative",
        "leaderElection.leaseDuration: Invalid value: v1.Duration{Duration:-1000000000}: must be greater than zero",
        "leaderElection.renewDeadline: Invalid value: v1.Duration{Duration:-2000000000}: must be greater than zero",
        "leaderElection.retryPeriod: Invalid value: v1.Duration{Duration:-3000000000}: must be greater than zero",
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
        "profiles[0].schedulerName: Required value",
        "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        "podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds",
    ];
    assert_eq!(errors(text), expected);
    let whole = read(text).validate(&Names::kubernetes(), GATES).unwrap_err().to_string();
    assert_eq!(whole, format!("[{}]", expected.join(", ")));
    let one = read("parallelism: -3\n").validate(&Names::kubernetes(), GATES).unwrap_err();
    assert_eq!(
        one.to_string(),
        "parallelism: Invalid value: -3: should be an integer value greater than zero"
    );
}

#[test]
fn the_lease_outlives_the_renewal() {
    assert_eq!(
        errors("leaderElection: {leaseDuration: 10s, renewDeadline: 10s}\n"),
        [
            "leaderElection.leaseDuration: Invalid value: v1.Duration{Duration:10000000000}: LeaseDuration must be greater than RenewDeadline"
        ]
    );
    assert_eq!(errors("leaderElection: {leaderElect: false, leaseDuration: 1s}\n"), [""; 0]);
}

#[test]
fn profiles_have_distinct_names_and_one_order_of_the_queue() {
    assert_eq!(
        errors("profiles: [{schedulerName: a}, {schedulerName: a}]\n"),
        ["profiles[1].schedulerName: Duplicate value: profiles[0].schedulerName"]
    );
    assert_eq!(
        errors(
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: Mine}]}}}]\n"
        ),
        [
            "profiles[1].plugins.queueSort: Invalid value: config.PluginSet{Enabled:[]config.Plugin{config.Plugin{Name:\"Mine\", Weight:0}}, Disabled:[]config.Plugin(nil)}: has to match for all profiles"
        ]
    );
    assert_eq!(
        errors("profiles: [{plugins: {queueSort: {enabled: [{name: a}, {name: b}]}}}]\n"),
        [
            "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled"
        ]
    );
}

#[test]
fn removed_plugins_are_named() {
    let text = "profiles: [{plugins: {score: {enabled: [{name: SelectorSpread}]}}, pluginConfig: [{name: SelectorSpread}]}]\n";
    let why = "was invalid in version \"v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")";
    assert_eq!(
        errors(text),
        [
            format!("profiles[0].plugins.score.enabled[0]: Invalid value: \"SelectorSpread\": {why}"),
            format!("profiles[0].pluginConfig[0]: Invalid value: \"SelectorSpread\": {why}")
        ]
    );
    assert_eq!(errors_as(Version::V1beta3, text), [""; 0]);
    assert_eq!(
        errors("profiles: [{pluginConfig: [{name: A}, {name: A}]}]\n"),
        ["profiles[0].pluginConfig[1]: Duplicate value: \"A\""]
    );
}

#[test]
fn addresses_of_v1beta2_have_no_port() {
    let error = |address: &str| errors_as(Version::V1beta2, &format!("healthzBindAddress: '{address}'\n"));
    assert_eq!(error("0.0.0.0:0"), [""; 0]);
    assert_eq!(error("[::1]:0"), [""; 0]);
    let wrong = |address: &str, why: &str| {
        assert_eq!(error(address), [format!("healthzBindAddress: Invalid value: {address:?}: {why}")]);
    };
    wrong("0.0.0.0:10251", "must be empty or with an explicit 0 port");
    wrong("localhost:0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    wrong("localhost", "address localhost: missing port in address");
    wrong("::1:0", "address ::1:0: too many colons in address");
    wrong("0.0.0.0:x", "strconv.Atoi: parsing \"x\": invalid syntax");
}

#[test]
fn extenders_are_checked() {
    let text = "extenders:
- {urlPrefix: a, prioritizeVerb: p, bindVerb: b, managedResources: [{name: foo}, {name: example.com/x}]}
- {urlPrefix: b, bindVerb: b, weight: 1, prioritizeVerb: p, managedResources: [{name: example.com/x}, {name: '@'}, {name: kubernetes.io/x}]}
";
    let expected = [
        "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        "extenders[0].managedResources[0].name: Invalid value: \"foo\": is an invalid extended resource name",
        "extenders[1].managedResources[0].name: Invalid value: \"example.com/x\": duplicate extender managed resource name",
        "extenders[1].managedResources[1].name: Invalid value: @: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        "extenders[1].managedResources[2].name: Invalid value: \"kubernetes.io/x\": is an invalid extended resource name",
        "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
    ];
    assert_eq!(errors(text), expected);
}

#[test]
fn arguments_are_checked() {
    assert_eq!(
        args_errors("DefaultPreemption", "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}"),
        [
            "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
            "minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage"
        ]
    );
    assert_eq!(
        args_errors("DefaultPreemption", "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}"),
        [
            "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
            "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)"
        ]
    );
    assert_eq!(
        args_errors("InterPodAffinity", "{hardPodAffinityWeight: 101}"),
        ["hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"]
    );
    assert_eq!(
        args_errors("NodeResourcesBalancedAllocation", "{resources: [{name: a}, {name: a, weight: 2}]}"),
        ["resources[1].name: Duplicate value: \"a\"", "resources[1].weight: Invalid value: 2: must be 1"]
    );
    assert_eq!(
        args_errors("VolumeBinding", "{shape: []}"),
        [
            "shape: Invalid value: []config.UtilizationShapePoint{}: unexpected field `shape`, remove it or turn on the feature gate VolumeCapacityPriority"
        ]
    );
    assert_eq!(
        args_errors("VolumeBinding", "{bindTimeoutSeconds: -1, shape: [{utilization: 10, score: 1}]}"),
        [
            "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
            "shape: Invalid value: []config.UtilizationShapePoint{config.UtilizationShapePoint{Utilization:10, Score:1}}: unexpected field `shape`, remove it or turn on the feature gate VolumeCapacityPriority"
        ]
    );
}

#[test]
fn default_constraints_are_checked() {
    let constraints = "[{maxSkew: 0, topologyKey: '', whenUnsatisfiable: ''}, \
        {maxSkew: 1, topologyKey: a, whenUnsatisfiable: Maybe, labelSelector: {}}, \
        {maxSkew: 1, topologyKey: b, whenUnsatisfiable: DoNotSchedule}, \
        {maxSkew: 2, topologyKey: b, whenUnsatisfiable: DoNotSchedule}]";
    assert_eq!(
        args_errors("PodTopologySpread", &format!("{{defaultConstraints: {constraints}}}")),
        [
            "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
            "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            "defaultConstraints[0].topologyKey: Required value: can not be empty",
            "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            "defaultConstraints[1].whenUnsatisfiable: Unsupported value: \"Maybe\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            "defaultConstraints[1].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod",
            "defaultConstraints[3]: Duplicate value: \"{b, DoNotSchedule}\""
        ]
    );
    assert_eq!(
        args_errors("PodTopologySpread", "{defaultingType: Other}"),
        ["defaultingType: Unsupported value: \"Other\": supported values: \"System\", \"List\""]
    );
}

#[test]
fn added_affinity_is_checked() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let args = format!(
        "{{addedAffinity: {{{required}: {{nodeSelectorTerms: [{{matchExpressions: [{{key: a, operator: Foo}}, \
         {{key: a, operator: In}}, {{key: a, operator: Gt, values: [x]}}], matchFields: [{{key: metadata.name, operator: \
         Exists}}, {{key: metadata.name, operator: In, values: [a, b]}}]}}]}}, {preferred}: [{{weight: 1, preference: \
         {{matchExpressions: [{{key: '', operator: Exists, values: [v]}}]}}}}]}}}}"
    );
    let terms = format!("addedAffinity.{required}.nodeSelectorTerms[0]");
    let errors = args_errors("NodeAffinity", &args);
    assert_eq!(
        errors[..6],
        [
            format!("{terms}.matchExpressions[0].operator: Unsupported value: \"Foo\""),
            format!(
                "{terms}.matchExpressions[1].values: Invalid value: []string(nil): for 'in', 'notin' operators, values set can't be empty"
            ),
            format!(
                "{terms}.matchExpressions[2].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
            format!(
                "{terms}.matchFields[0].operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\""
            ),
            format!(
                "{terms}.matchFields[1].values: Invalid value: []string{{\"a\", \"b\"}}: must have one element"
            ),
            format!(
                "addedAffinity.{preferred}[0].matchExpressions[0].key: Invalid value: \"\": name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
        ]
    );
    assert_eq!(errors.len(), 7);
}

#[test]
fn the_fit_is_checked_with_its_profile() {
    let text = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: ['@'], ignoredResourceGroups: [a/b], \
        scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 101}], requestedToCapacityRatio: \
        {shape: [{utilization: 10, score: 11}, {utilization: 10, score: -1}, {utilization: 101, score: 0}]}}}}]}]";
    assert_eq!(errors(text), [""; 0]);
    let why = read(text).profiles(GATES).unwrap_err().to_string();
    let expected = [
        "ignoredResources[0]: Invalid value: \"@\": name part must consist",
        "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        "scoringStrategy.shape[1].utilization: Invalid value: 10: utilization values must be sorted in increasing order",
        "scoringStrategy.shape[0].score: Invalid value: 11: not in valid range [0, 10]",
        "scoringStrategy.shape[1].score: Invalid value: -1: not in valid range [0, 10]",
        "scoringStrategy.shape[2].utilization: Invalid value: 101: not in valid range [0, 100]",
    ];
    let mut rest = &*why;
    for part in expected {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part}: {why}"));
        rest = &rest[at + part.len()..];
    }
}
