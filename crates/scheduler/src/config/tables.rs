//! Tables of the configuration's kinds: the fields that a text may have.
//!
//! The types of pod fields inside of arguments are those of the built-in API.

use super::args::ArgsKind;
use super::extension_point::ExtensionPoint;
use super::version::Version;
use schema::table::{Field, Flags, ListKind, ListShape, Ref, Scalar, Shape, Type};
use std::sync::LazyLock;

static CONFIGURATIONS: LazyLock<[Type; 3]> = LazyLock::new(|| Version::ALL.map(build_configuration));
static ARGS: LazyLock<[[Type; 7]; 3]> =
    LazyLock::new(|| Version::ALL.map(|version| ArgsKind::ALL.map(|kind| build_args(kind, version))));

/// The table of a configuration.
pub(super) fn configuration(version: Version) -> &'static Type {
    &CONFIGURATIONS[version as usize]
}

/// The table of arguments. All versions have the same fields; errors name the version.
pub(super) fn args(kind: ArgsKind, version: Version) -> &'static Type {
    &ARGS[version as usize][kind as usize]
}

/// A field that is left out when it is empty.
fn field(name: &'static str, shape: Shape) -> Field {
    Field::new(name, shape)
}

/// A field whose absence differs from zero.
fn nilable(name: &'static str, shape: Shape) -> Field {
    Field { flags: Flags::NILABLE, ..Field::new(name, shape) }
}

/// A field that is always written.
fn always(name: &'static str, shape: Shape) -> Field {
    Field { flags: Flags::ALWAYS, ..Field::new(name, shape) }
}

/// A text whose type has a name of its own in errors.
fn named(name: &'static str, type_name: String) -> Field {
    Field { named: type_name.into(), ..Field::new(name, STRING) }
}

const STRING: Shape = Shape::Scalar(Scalar::String);
const BOOL: Shape = Shape::Scalar(Scalar::Bool);
const INT32: Shape = Shape::Scalar(Scalar::Int32);
const INT64: Shape = Shape::Scalar(Scalar::Int64);
const BYTES: Shape = Shape::Scalar(Scalar::Bytes);
const DURATION: Shape = Shape::Scalar(Scalar::Duration);

fn list(item: Shape) -> Shape {
    Shape::List(ListShape { item, kind: ListKind::Atomic, default: None }.into())
}

fn structure(ty: Type) -> Shape {
    Shape::Struct(ty.into())
}

/// A type of a configuration's package; its last word is the prefix of type names in errors.
fn declare(name: &'static str, package: &'static str, fields: Vec<Field>) -> Type {
    Type::new(name, package, fields)
}

fn package(version: Version) -> &'static str {
    match version {
        Version::V1beta2 => "config.v1beta2",
        Version::V1beta3 => "config.v1beta3",
        Version::V1 => "config.v1",
    }
}

fn type_meta() -> [Field; 2] {
    [field("kind", STRING), field("apiVersion", STRING)]
}

fn build_configuration(version: Version) -> Type {
    let mut fields = type_meta().to_vec();
    fields.extend([
        nilable("parallelism", INT32),
        always("leaderElection", structure(leader_election())),
        always("clientConnection", structure(client_connection())),
    ]);
    if version == Version::V1beta2 {
        fields.extend([nilable("healthzBindAddress", STRING), nilable("metricsBindAddress", STRING)]);
    }
    fields.extend([
        nilable("enableProfiling", BOOL),
        nilable("enableContentionProfiling", BOOL),
        nilable("percentageOfNodesToScore", INT32),
        nilable("podInitialBackoffSeconds", INT64),
        nilable("podMaxBackoffSeconds", INT64),
        field("profiles", list(structure(profile(version)))),
        field("extenders", list(structure(extender(version)))),
    ]);
    declare("KubeSchedulerConfiguration", package(version), fields)
}

fn leader_election() -> Type {
    let fields = vec![
        nilable("leaderElect", BOOL),
        always("leaseDuration", DURATION),
        always("renewDeadline", DURATION),
        always("retryPeriod", DURATION),
        always("resourceLock", STRING),
        always("resourceName", STRING),
        always("resourceNamespace", STRING),
    ];
    declare("LeaderElectionConfiguration", "config.v1alpha1", fields)
}

fn client_connection() -> Type {
    let fields = vec![
        always("kubeconfig", STRING),
        always("acceptContentTypes", STRING),
        always("contentType", STRING),
        always("qps", Shape::Scalar(Scalar::Float)),
        always("burst", INT32),
    ];
    declare("ClientConnectionConfiguration", "config.v1alpha1", fields)
}

fn profile(version: Version) -> Type {
    let package = package(version);
    let plugin = declare("Plugin", package, vec![always("name", STRING), nilable("weight", INT32)]);
    let plugins = list(structure(plugin));
    let selection =
        declare("PluginSet", package, vec![field("enabled", plugins.clone()), field("disabled", plugins)]);
    let selection: Ref<Type> = selection.into();
    let points = ExtensionPoint::ALL.map(|point| field(point.field(), Shape::Struct(selection.clone())));
    let plugins = declare("Plugins", package, points.to_vec());
    let config = vec![always("name", STRING), nilable("args", Shape::Scalar(Scalar::Any))];
    let config = declare("PluginConfig", package, config);
    let mut fields = vec![nilable("schedulerName", STRING)];
    if version == Version::V1 {
        fields.push(nilable("percentageOfNodesToScore", INT32));
    }
    fields.push(nilable("plugins", structure(plugins)));
    fields.push(field("pluginConfig", list(structure(config))));
    declare("KubeSchedulerProfile", package, fields)
}

fn extender(version: Version) -> Type {
    let package = package(version);
    let tls = vec![
        field("insecure", BOOL),
        field("serverName", STRING),
        field("certFile", STRING),
        field("keyFile", STRING),
        field("caFile", STRING),
        field("certData", BYTES),
        field("keyData", BYTES),
        field("caData", BYTES),
    ];
    let resource = vec![always("name", STRING), field("ignoredByScheduler", BOOL)];
    let resource = declare("ExtenderManagedResource", package, resource);
    let fields = vec![
        always("urlPrefix", STRING),
        field("filterVerb", STRING),
        field("preemptVerb", STRING),
        field("prioritizeVerb", STRING),
        field("weight", INT64),
        field("bindVerb", STRING),
        field("enableHTTPS", BOOL),
        nilable("tlsConfig", structure(declare("ExtenderTLSConfig", package, tls))),
        field("httpTimeout", DURATION),
        field("nodeCacheCapable", BOOL),
        field("managedResources", list(structure(resource))),
        field("ignorable", BOOL),
    ];
    declare("Extender", package, fields)
}

fn build_args(kind: ArgsKind, version: Version) -> Type {
    let package = package(version);
    let mut fields = type_meta().to_vec();
    let core = |name: &'static Type| Shape::Struct(Ref::Static(name));
    match kind {
        ArgsKind::DefaultPreemption => fields.extend([
            nilable("minCandidateNodesPercentage", INT32),
            nilable("minCandidateNodesAbsolute", INT32),
        ]),
        ArgsKind::InterPodAffinity => fields.push(nilable("hardPodAffinityWeight", INT32)),
        ArgsKind::NodeAffinity => {
            fields.push(nilable("addedAffinity", core(&api::tables::CORE_V1_NODE_AFFINITY)));
        }
        ArgsKind::NodeResourcesBalancedAllocation => {
            fields.push(field("resources", list(structure(resource(package)))));
        }
        ArgsKind::NodeResourcesFit => {
            let ratio = vec![field("shape", list(structure(shape_point(package))))];
            let ratio = declare("RequestedToCapacityRatioParam", package, ratio);
            let strategy = vec![
                named("type", format!("{}.ScoringStrategyType", version.name())),
                field("resources", list(structure(resource(package)))),
                nilable("requestedToCapacityRatio", structure(ratio)),
            ];
            fields.extend([
                field("ignoredResources", list(STRING)),
                field("ignoredResourceGroups", list(STRING)),
                nilable("scoringStrategy", structure(declare("ScoringStrategy", package, strategy))),
            ]);
        }
        ArgsKind::PodTopologySpread => fields.extend([
            field("defaultConstraints", list(core(&api::tables::CORE_V1_TOPOLOGY_SPREAD_CONSTRAINT))),
            named("defaultingType", format!("{}.PodTopologySpreadConstraintsDefaulting", version.name())),
        ]),
        ArgsKind::VolumeBinding => fields.extend([
            nilable("bindTimeoutSeconds", INT64),
            field("shape", list(structure(shape_point(package)))),
        ]),
    }
    declare(kind.kind(), package, fields)
}

fn resource(package: &'static str) -> Type {
    declare("ResourceSpec", package, vec![always("name", STRING), field("weight", INT64)])
}

fn shape_point(package: &'static str) -> Type {
    let fields = vec![always("utilization", INT32), always("score", INT32)];
    declare("UtilizationShapePoint", package, fields)
}
