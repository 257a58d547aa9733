//! Checks of the configuration's values, in upstream's words and order.

use super::cpuset;
use super::error::StartError;
use super::flags::Flags;
use super::gates::Gates;
use super::values::Configuration;
use names::Names;
use schema::Value;
use schema::format::{label_value, qualified_name};
use schema::quantity::Quantity;
use schema::time::format_duration;

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Several messages as one; equal ones appear once.
pub fn aggregate(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for message in messages {
        if !distinct.contains(&message.as_str()) {
            distinct.push(message);
        }
    }
    match distinct[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// Checks the log options, before all others.
pub fn logging(config: &Configuration, flags: &Flags, gates: &Gates) -> Result<(), StartError> {
    let errors = logging_errors(config, flags, gates);
    if !errors.is_empty() {
        return Err(StartError::new(format!("initialize logging: {}", aggregate(&errors))));
    }
    if config.at(&["logging", "flushFrequency"]).and_then(Value::as_int).is_some_and(|nanos| nanos <= 0) {
        let message = "panic: non-positive interval for NewTicker".to_owned();
        return Err(StartError { message, exit_status: 2 });
    }
    Ok(())
}

fn logging_errors(config: &Configuration, flags: &Flags, gates: &Gates) -> Vec<String> {
    let mut errors = Vec::new();
    let format = config.text(&["logging", "format"]);
    match format {
        "text" => {}
        "json" if gates.is_open("LoggingBetaOptions") => {}
        "json" => errors.push(
            "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"
                .to_owned(),
        ),
        _ => errors.push(format!("logging.format: Invalid value: {format:?}: Unsupported log format")),
    }
    let too_high = |path: &str, item: &Value| {
        let level = item.at(&["verbosity"]).and_then(Value::as_int).unwrap_or(0);
        (level > i64::from(i32::MAX))
            .then(|| format!("{path}: Invalid value: {level:#x}: Must be <= {}", i32::MAX))
    };
    errors.extend(config.at(&["logging"]).and_then(|it| too_high("logging.verbosity", it)));
    let items = config.at(&["logging", "vmodule"]).and_then(Value::as_list).unwrap_or(&[]);
    if !matches!(format, "" | "text") && !items.is_empty() {
        errors.push("logging.vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    for (at, item) in items.iter().enumerate() {
        let (path, pattern) = (format!("logging.vmodule[{at}]"), item.text(&["filePattern"]));
        if pattern.is_empty() {
            errors.push(format!("{path}: Required value: File pattern must not be empty"));
        }
        if pattern.contains(['=', ',']) {
            errors.push(format!(
                "{path}: Invalid value: {pattern:?}: File pattern must not contain equal sign or comma"
            ));
        }
        errors.extend(too_high(&path, item));
    }
    if !gates.is_open("LoggingAlphaOptions") {
        let disabled = |field: &str| {
            format!("logging.options.json.{field}: Forbidden: Feature LoggingAlphaOptions is disabled")
        };
        // upstream takes this one from the command line only
        if flags.turns_on("logging.options.json.splitStream") {
            errors.push(disabled("splitStream"));
        }
        let size = config.text(&["logging", "options", "json", "infoBufferSize"]);
        if size.parse::<Quantity>().is_ok_and(|it| !it.is_zero()) {
            errors.push(disabled("infoBufferSize"));
        }
    }
    errors
}

/// Collects mistakes.
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, why: String) {
        self.0.push(format!("invalid configuration: {why}"));
    }

    fn add_if(&mut self, is_wrong: bool, why: impl FnOnce() -> String) {
        if is_wrong {
            self.add(why());
        }
    }

    fn not_negative(&mut self, config: &Configuration, field: &str, flag: &str) {
        let value = config.int(field);
        self.add_if(value < 0, || format!("{field} (--{flag}) {value} must not be a negative number"));
    }

    fn in_range(&mut self, config: &Configuration, (field, flag): (&str, &str), first: i64, last: i64) {
        let value = config.int(field);
        self.add_if(!(first..=last).contains(&value), || {
            format!("{field} (--{flag}) {value} must be between {first} and {last}, inclusive")
        });
    }
}

/// All mistakes.
pub fn validate(config: &Configuration, gates: &Gates, names: &Names) -> Vec<String> {
    let mut errors = Errors(Vec::new());
    numbers(config, gates, &mut errors);
    topology_policy(config, gates, &mut errors);
    taints(config, &mut errors);
    topology_values(config, gates, &mut errors);
    shutdown(config, gates, &mut errors);
    swap(config, gates, &mut errors);
    allocatable(config, &mut errors);
    reserved(config, names, &mut errors);
    rest(config, gates, &mut errors);
    errors.0
}

fn numbers(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    errors.add_if(config.int("nodeLeaseDurationSeconds") <= 0, || {
        "nodeLeaseDurationSeconds must be greater than 0".to_owned()
    });
    errors.add_if(!config.flag(&["cgroupsPerQOS"]) && !config.texts("enforceNodeAllocatable").is_empty(), || {
        "enforceNodeAllocatable (--enforce-node-allocatable) is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true".to_owned()
    });
    errors.add_if(
        !config.text(&["systemCgroups"]).is_empty() && config.text(&["cgroupRoot"]).is_empty(),
        || {
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
                .to_owned()
        },
    );
    errors.not_negative(config, "eventBurst", "event-burst");
    errors.not_negative(config, "eventRecordQPS", "event-qps");
    if config.int("healthzPort") != 0 {
        errors.in_range(config, ("healthzPort", "healthz-port"), 1, 65535);
    }
    let period = config.nanos(&["cpuCFSQuotaPeriod"]);
    let has_gate = gates.is_open("CustomCPUCFSQuotaPeriod");
    errors.add_if(!has_gate && period != 100 * MILLISECOND, || {
        format!(
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{}}} requires feature gate CustomCPUCFSQuotaPeriod",
            format_duration(period)
        )
    });
    errors.add_if(has_gate && !(MILLISECOND..=SECOND).contains(&period), || {
        format!(
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{}}} must be between 1ms and 1sec, inclusive",
            format_duration(period)
        )
    });
    errors.in_range(config, ("imageGCHighThresholdPercent", "image-gc-high-threshold"), 0, 100);
    errors.in_range(config, ("imageGCLowThresholdPercent", "image-gc-low-threshold"), 0, 100);
    let (low, high) = (config.int("imageGCLowThresholdPercent"), config.int("imageGCHighThresholdPercent"));
    errors.add_if(low >= high, || {
        format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        )
    });
    errors.in_range(config, ("iptablesDropBit", "iptables-drop-bit"), 0, 31);
    errors.in_range(config, ("iptablesMasqueradeBit", "iptables-masquerade-bit"), 0, 31);
    errors.not_negative(config, "kubeAPIBurst", "kube-api-burst");
    errors.not_negative(config, "kubeAPIQPS", "kube-api-qps");
    let images = config.int("nodeStatusMaxImages");
    errors.add_if(images < -1, || {
        format!("nodeStatusMaxImages (--node-status-max-images) {images} must be -1 or greater")
    });
    errors.not_negative(config, "maxOpenFiles", "max-open-files");
    errors.not_negative(config, "maxPods", "max-pods");
    errors.in_range(config, ("oomScoreAdj", "oom-score-adj"), -1000, 1000);
    errors.not_negative(config, "podsPerCore", "pods-per-core");
    errors.in_range(config, ("port", "port"), 1, 65535);
    errors.in_range(config, ("readOnlyPort", "read-only-port"), 0, 65535);
    errors.not_negative(config, "registryBurst", "registry-burst");
    errors.not_negative(config, "registryPullQPS", "registry-qps");
}

fn topology_policy(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    errors.add_if(
        config.flag(&["serverTLSBootstrap"]) && !gates.is_open("RotateKubeletServerCertificate"),
        || "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate".to_owned(),
    );
    let policy = config.text(&["topologyManagerPolicy"]);
    errors.add_if(policy != "none" && !gates.is_open("TopologyManager"), || {
        format!("topologyManagerPolicy {policy} requires feature gate TopologyManager")
    });
}

fn topology_values(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    let (policy, scope) = (config.text(&["topologyManagerPolicy"]), config.text(&["topologyManagerScope"]));
    errors.add_if(!matches!(policy, "none" | "best-effort" | "restricted" | "single-numa-node"), || {
        format!(
            "topologyManagerPolicy (--topology-manager-policy) {policy:?} must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]"
        )
    });
    errors.add_if(scope != "container" && !gates.is_open("TopologyManager"), || {
        format!("topologyManagerScope {scope} requires feature gate TopologyManager")
    });
    errors.add_if(!matches!(scope, "container" | "pod"), || {
        format!("topologyManagerScope (--topology-manager-scope) {scope:?} must be one of: \"container\", or \"pod\"")
    });
}

fn taints(config: &Configuration, errors: &mut Errors) {
    for taint in config.at(&["registerWithTaints"]).and_then(Value::as_list).unwrap_or(&[]) {
        let (key, value, effect) = (taint.text(&["key"]), taint.text(&["value"]), taint.text(&["effect"]));
        let is_valid = qualified_name(key).is_empty()
            && (value.is_empty() || label_value(value).is_empty())
            && matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute");
        let time = taint.at(&["timeAdded"]).filter(|time| !time.is_null());
        if !is_valid {
            let time = time.and_then(Value::as_str).map_or("<nil>".to_owned(), go_time);
            errors.0.push(format!("invalid taint: {{{key} {value} {effect} {time}}}"));
        }
        errors.add_if(time.is_some(), || "taint.TimeAdded is not nil".to_owned());
    }
}

/// A time as Go prints it.
fn go_time(text: &str) -> String {
    format!("{} +0000 UTC", text.trim_end_matches('Z').replacen('T', " ", 1))
}

fn shutdown(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    let period = config.nanos(&["shutdownGracePeriod"]);
    let critical = config.nanos(&["shutdownGracePeriodCriticalPods"]);
    let by_priority = config.at(&["shutdownGracePeriodByPodPriority"]).is_some();
    let shown = |nanos| format_duration(nanos);
    if gates.is_open("GracefulNodeShutdown") {
        errors.add_if(critical > period, || {
            let (period, critical) = (shown(period), shown(critical));
            format!(
                "shutdownGracePeriodCriticalPods {{{critical}}} must be <= shutdownGracePeriod {{{period}}}"
            )
        });
        for (field, nanos) in [("shutdownGracePeriod", period), ("shutdownGracePeriodCriticalPods", critical)]
        {
            errors.add_if(nanos != 0 && nanos < SECOND, || {
                format!("{field} {{{}}} must be either zero or otherwise >= 1 sec", shown(nanos))
            });
        }
    }
    errors.add_if((period > 0 || critical > 0) && !gates.is_open("GracefulNodeShutdown"), || {
        "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown".to_owned()
    });
    let has_gate = gates.is_open("GracefulNodeShutdownBasedOnPodPriority");
    errors.add_if(has_gate && by_priority && (period > 0 || critical > 0), || {
        "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
            .to_owned()
    });
    errors.add_if(!has_gate && by_priority, || {
        "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority".to_owned()
    });
}

fn swap(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    let behavior = config.text(&["memorySwap", "swapBehavior"]);
    match gates.is_open("NodeSwap") {
        true => errors.add_if(!matches!(behavior, "" | "LimitedSwap" | "UnlimitedSwap"), || {
            format!("memorySwap.swapBehavior {behavior:?} must be one of: \"\", \"LimitedSwap\", or \"UnlimitedSwap\"")
        }),
        false => errors.add_if(!behavior.is_empty(), || {
            "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled".to_owned()
        }),
    }
}

fn allocatable(config: &Configuration, errors: &mut Errors) {
    let enforced = config.texts("enforceNodeAllocatable");
    for option in &enforced {
        match option.as_str() {
            "pods" => {}
            "system-reserved" => errors.add_if(config.text(&["systemReservedCgroup"]).is_empty(), || {
                "systemReservedCgroup (--system-reserved-cgroup) must be specified when \"system-reserved\" contained in enforceNodeAllocatable (--enforce-node-allocatable)".to_owned()
            }),
            "kube-reserved" | "cluster-reserved" => {
                errors.add_if(config.text(&["kubeReservedCgroup"]).is_empty(), || {
                    "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when \"kube-reserved\" contained in enforceNodeAllocatable (--enforce-node-allocatable)".to_owned()
                });
            }
            "none" => errors.add_if(enforced.len() > 1, || {
                "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when \"none\" is specified".to_owned()
            }),
            other => errors.add(format!(
                "option {other:?} specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \"kube-reserved\", or \"none\""
            )),
        }
    }
    let mode = config.text(&["hairpinMode"]);
    errors.add_if(!matches!(mode, "none" | "hairpin-veth" | "promiscuous-bridge"), || {
        format!(
            "option {mode:?} specified for hairpinMode (--hairpin-mode). Valid options are \"none\", \"hairpin-veth\" or \"promiscuous-bridge\""
        )
    });
}

fn reserved(config: &Configuration, _names: &Names, errors: &mut Errors) {
    let cpus = config.text(&["reservedSystemCPUs"]);
    if !cpus.is_empty() {
        let has_cgroup =
            ["systemReservedCgroup", "kubeReservedCgroup"].iter().any(|it| !config.text(&[it]).is_empty());
        errors.add_if(has_cgroup, || {
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)".to_owned()
        });
        if let Err(why) = cpuset::parse(cpus) {
            errors.add(format!("unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {why}"));
        }
    }
    let mut seen = Vec::new();
    for node in config.at(&["reservedMemory"]).and_then(Value::as_list).unwrap_or(&[]) {
        let number = node.at(&["numaNode"]).and_then(Value::as_int).unwrap_or(0);
        let Some(limits) = node.at(&["limits"]).and_then(Value::as_map) else { continue };
        for (resource, quantity) in limits.iter() {
            let resource: &str = resource;
            errors.add_if(resource != "memory" && !resource.starts_with("hugepages-"), || {
                format!(
                    "the limit type {resource:?} for NUMA node {number} is not supported, only [memory hugepages-<HugePageSize>] is accepted"
                )
            });
            let is_zero =
                quantity.as_str().and_then(|it| it.parse::<Quantity>().ok()).is_some_and(|it| it.is_zero());
            errors.add_if(is_zero, || {
                format!("reserved memory may not be zero for NUMA node {number} and resource {resource:?}")
            });
            let key = (number, resource.to_owned());
            errors.add_if(seen.contains(&key), || {
                format!(
                    "the reserved memory has a duplicate value for NUMA node {number} and resource {resource:?}"
                )
            });
            seen.push(key);
        }
    }
}

fn rest(config: &Configuration, gates: &Gates, errors: &mut Errors) {
    let hidden = config.text(&["showHiddenMetricsForVersion"]);
    if !matches!(hidden, "" | "1.25") {
        errors.0.push(
            "--show-hidden-metrics-for-version must be omitted or have the value '1.25'. Only the previous minor version is allowed"
                .to_owned(),
        );
    }
    let has_tracing = config.at(&["tracing"]).is_some_and(|it| !it.is_null());
    if gates.is_open("KubeletTracing") {
        tracing(config, errors);
    } else {
        errors.add_if(has_tracing, || {
            "tracing should not be configured if KubeletTracing feature flag is disabled.".to_owned()
        });
    }
    let factor = config.float("memoryThrottlingFactor");
    errors.add_if(factor <= 0.0 || factor > 1.0, || {
        let factor = go_float(factor);
        format!("memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0")
    });
}

/// The share of requests that are traced, and where the traces are sent.
fn tracing(config: &Configuration, errors: &mut Errors) {
    let rate = config.at(&["tracing", "samplingRatePerMillion"]).and_then(Value::as_int).unwrap_or(0);
    let rate_error = |why: &str| format!("tracing.samplingRatePerMillion: Invalid value: {rate}: {why}");
    if rate < 0 {
        errors.0.push(rate_error("sampling rate must be positive"));
    }
    if rate > 1_000_000 {
        errors.0.push(rate_error("sampling rate per million must be less than or equal to one million"));
    }
    let Some(endpoint) = config.at(&["tracing", "endpoint"]).and_then(Value::as_str) else { return };
    let whole = if endpoint.contains("//") { endpoint.to_owned() } else { format!("dns://{endpoint}") };
    let invalid = |why: String| format!("tracing.endpoint: Invalid value: {whole:?}: {why}");
    match schema::url::parse(&whole) {
        Err(why) => errors.0.push(invalid(why)),
        Ok(url) if matches!(&*url.scheme, "dns" | "unix" | "unix-abstract") => {}
        Ok(url) => errors.0.push(invalid(format!(
            "unsupported scheme: {}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
            url.scheme
        ))),
    }
}

/// A number as Go prints it: with an exponent if it is very small or large.
fn go_float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |it| ('-', it));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_shown_as_go_shows_them() {
        let shown = [1.1, -0.5, 0.0, 2.0, -0.00001, 1e21, 2.5e-7].map(go_float);
        assert_eq!(shown, ["1.1", "-0.5", "0", "2", "-1e-05", "1e+21", "2.5e-07"]);
        assert_eq!(go_time("2020-01-02T03:04:05Z"), "2020-01-02 03:04:05 +0000 UTC");
    }
}
