//! Checks that upstream makes while it starts: TLS, authentication, reserved resources, thresholds, policies.

use super::error::StartError;
use super::flag_checks::SECCOMP_FLAG;
use super::flags::Flags;
use super::gates::Gates;
use super::policy_options::check_policies;
use super::values::Configuration;
use crate::container::security::dotted_sysctl;
use schema::quantity::Quantity;
use schema::time::{format_duration, parse_duration};
use std::path::Path;

/// Cipher suites that may be named.
const CIPHERS: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

const SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

/// Sysctls that have a namespace, by prefix; `kernel.sem` has one too.
const NAMESPACED: &[&str] = &["kernel.shm", "kernel.msg", "fs.mqueue.", "net."];
/// The longest name of a sysctl, and the form of a pattern of names.
const SYSCTL_MAX: usize = 253;
const SYSCTL_PATTERN: &str = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

fn failed(context: &str, why: String) -> StartError {
    StartError::new(format!("{context}: {why}"))
}

/// All checks, in upstream's order.
pub fn check(config: &Configuration, flags: &Flags, gates: &Gates) -> Result<(), StartError> {
    dependencies(config, flags).map_err(|why| failed("failed to construct kubelet dependencies", why))?;
    let run = |why| failed("failed to run Kubelet", why);
    process(flags, gates).map_err(run)?;
    access(config, flags).map_err(run)?;
    resources(config).map_err(run)?;
    if flags.text("experimental-allocatable-ignore-eviction") != "true" {
        hard_thresholds(config).map_err(run)?;
    }
    reserved_for_qos(config).map_err(run)?;
    check_policies(config, gates).map_err(run)?;
    node(config, flags, gates).map_err(run)?;
    kubelet(config, flags, gates).map_err(|why| run(format!("failed to create kubelet: {why}")))
}

/// Refuses a machine that swaps. `swaps` is the text of `/proc/swaps`: a head, and a line for each place.
pub fn check_swap(config: &Configuration, swaps: &str) -> Result<(), StartError> {
    let lines: Vec<&str> = swaps.trim().split('\n').collect();
    if lines.len() < 2 || !config.flag(&["failSwapOn"]) {
        return Ok(());
    }
    let why =
        "running with swap on is not supported, please disable swap! or set --fail-swap-on flag to false";
    Err(failed("failed to run Kubelet", format!("{why}. /proc/swaps contained: [{}]", lines.join(" "))))
}

/// Host name and TLS.
fn dependencies(config: &Configuration, flags: &Flags) -> Result<(), String> {
    let has_own = ["tlsCertFile", "tlsPrivateKeyFile"].iter().any(|field| !config.text(&[field]).is_empty());
    if !has_own && !config.flag(&["serverTLSBootstrap"]) {
        let directory = Path::new(flags.text("cert-dir"));
        let files = ["kubelet.crt", "kubelet.key"].map(|name| directory.join(name));
        match files.each_ref().map(|file| std::fs::File::open(file).is_ok()) {
            [true, true] => {}
            [false, false] => host_name(flags)?,
            [has_certificate, _] => {
                let [certificate, key] = &files;
                let missing = if has_certificate { key } else { certificate };
                return Err(format!(
                    "error reading {}, certificate and key must be supplied as a pair",
                    missing.display()
                ));
            }
        }
    }
    if let Some(suite) = config.texts("tlsCipherSuites").iter().find(|it| !CIPHERS.contains(&it.as_str())) {
        return Err(format!("Cipher suite {suite} not supported or doesn't exist"));
    }
    let version = config.text(&["tlsMinVersion"]);
    if !matches!(version, "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13") {
        return Err(format!("unknown tls version {version:?}"));
    }
    let file = config.text(&["authentication", "x509", "clientCAFile"]);
    if file.is_empty() {
        return Ok(());
    }
    let text = std::fs::read_to_string(file).map_err(|why| {
        let why = match why.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => why.to_string(),
        };
        format!("unable to load client CA file {file}: open {file}: {why}")
    })?;
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(()),
        false => Err(format!(
            "unable to load client CA file {file}: error creating pool from {file}: data does not contain any valid RSA or ECDSA certificates"
        )),
    }
}

fn host_name(flags: &Flags) -> Result<(), String> {
    match flags.given("hostname-override").is_some_and(|name| name.trim().is_empty()) {
        true => Err("empty hostname is invalid".to_owned()),
        false => Ok(()),
    }
}

/// Flags of the process as a whole.
fn process(flags: &Flags, gates: &Gates) -> Result<(), String> {
    if flags.turns_on("seccompDefault") && !gates.is_open("SeccompDefault") {
        return Err(SECCOMP_FLAG.to_owned());
    }
    if flags.text("exit-on-lock-contention") == "true" && flags.given("lock-file").is_none() {
        return Err("cannot exit on lock file contention: no lock file specified".to_owned());
    }
    let provider = flags.text("cloud-provider");
    if !matches!(provider, "" | "external" | "aws" | "azure" | "gce" | "vsphere") {
        return Err(format!("unknown cloud provider {provider:?}"));
    }
    host_name(flags)
}

/// Authentication and authorization by the API server need one.
fn access(config: &Configuration, flags: &Flags) -> Result<(), String> {
    // a configuration that is only printed names no server
    let has_client = flags.asks_for_config
        || flags.given("kubeconfig").is_some()
        || flags.given("bootstrap-kubeconfig").is_some();
    if config.flag(&["authentication", "webhook", "enabled"]) && !has_client {
        return Err("no client provided, cannot use webhook authentication".to_owned());
    }
    match config.text(&["authorization", "mode"]) {
        "AlwaysAllow" => Ok(()),
        "Webhook" if has_client => Ok(()),
        "Webhook" => Err("no client provided, cannot use webhook authorization".to_owned()),
        "" => Err("no authorization mode specified".to_owned()),
        other => Err(format!("unknown authorization mode {other}")),
    }
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse::<Quantity>().map_err(|why| why.to_string())
}

fn resources(config: &Configuration) -> Result<(), String> {
    for field in ["kubeReserved", "systemReserved"] {
        for (name, text) in config.map(field) {
            if !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
                return Err(format!("cannot reserve {name:?} resource"));
            }
            if quantity(&text)?.sign() < 0 {
                return Err(format!("resource quantity for {name:?} cannot be negative: {text}"));
            }
        }
    }
    Ok(())
}

/// Shares of memory that are held back from lower classes. They are read even if their feature gate is closed.
fn reserved_for_qos(config: &Configuration) -> Result<(), String> {
    for (name, text) in config.map("qosReserved") {
        if name != "memory" {
            return Err(format!("cannot reserve {name:?} resource"));
        }
        if !text.ends_with('%') {
            return Err(format!("percentage expected, got '{text}'"));
        }
        let number = text.trim_end_matches('%').parse::<i64>();
        let number = number.map_err(|_| format!("invalid number in percentage '{text}'"))?;
        if !(0..=100).contains(&number) {
            return Err("percentage must be between 0 and 100".to_owned());
        }
    }
    Ok(())
}

/// The addresses of the node, and the profile of its containers.
fn node(config: &Configuration, flags: &Flags, gates: &Gates) -> Result<(), String> {
    let (text, ips) = (flags.text("node-ip"), flags.node_ips());
    match ips[..] {
        [first, second] if first.is_ipv6() == second.is_ipv6() => return Err(bad_node_ip(text)),
        [_, _] if !flags.text("cloud-provider").is_empty() => {
            return Err(format!("dual-stack --node-ip {text:?} not supported when using a cloud provider"));
        }
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            return Err(format!("dual-stack --node-ip {text:?} cannot include '0.0.0.0' or '::'"));
        }
        [] | [_] | [_, _] => {}
        _ => return Err(bad_node_ip(text)),
    }
    match config.flag(&["seccompDefault"]) && !gates.is_open("SeccompDefault") {
        true => Err("the SeccompDefault feature gate must be enabled in order to use the SeccompDefault configuration".to_owned()),
        false => Ok(()),
    }
}

fn bad_node_ip(text: &str) -> String {
    format!("bad --node-ip {text:?}; must contain either a single IP or a dual-stack pair of IPs")
}

fn hard_thresholds(config: &Configuration) -> Result<(), String> {
    config.map("evictionHard").iter().try_for_each(|(signal, text)| threshold(signal, text))
}

fn signal_exists(signal: &str) -> Result<(), String> {
    match SIGNALS.contains(&signal) {
        true => Ok(()),
        false => Err(format!("unsupported eviction signal {signal}")),
    }
}

/// The number before a percent sign.
fn percentage(text: &str) -> Result<f32, String> {
    let number = text.trim_end_matches('%');
    number.parse().map_err(|_| format!("strconv.ParseFloat: parsing {number:?}: invalid syntax"))
}

fn threshold(signal: &str, text: &str) -> Result<(), String> {
    signal_exists(signal)?;
    // these turn the threshold off
    if matches!(text, "0%" | "100%") {
        return Ok(());
    }
    if text.ends_with('%') {
        let number = percentage(text)?;
        if number < 0.0 {
            return Err(format!("eviction percentage threshold {signal} must be >= 0%: {text}"));
        }
        if number > 100.0 {
            return Err(format!("eviction percentage threshold {signal} must be <= 100%: {text}"));
        }
        return Ok(());
    }
    let parsed = quantity(text)?;
    match parsed.sign() < 0 || parsed.is_zero() {
        true => Err(format!("eviction threshold {signal} must be positive: {parsed}")),
        false => Ok(()),
    }
}

/// Thresholds with a grace period, and how much is reclaimed.
fn soft_thresholds(config: &Configuration) -> Result<(), String> {
    let soft = config.map("evictionSoft");
    soft.iter().try_for_each(|(signal, text)| threshold(signal, text))?;
    let grace = config.map("evictionSoftGracePeriod");
    for (signal, text) in &grace {
        signal_exists(signal)?;
        let nanos = parse_duration(text).map_err(|why| why.to_string())?;
        if nanos < 0 {
            return Err(format!("invalid eviction grace period specified: {text}, must be a positive value"));
        }
    }
    for (signal, text) in config.map("evictionMinimumReclaim") {
        signal_exists(&signal)?;
        if text.ends_with('%') {
            if percentage(&text)? <= 0.0 {
                return Err(format!("eviction percentage minimum reclaim {signal} must be positive: {text}"));
            }
        } else if quantity(&text)?.sign() < 0 {
            return Err(format!("negative eviction minimum reclaim specified for {signal}"));
        }
    }
    // a percentage that turns a threshold off needs no grace period
    let counts = |text: &String| !matches!(text.as_str(), "0%" | "100%");
    match soft.iter().find(|(signal, text)| counts(text) && !grace.contains_key(*signal)) {
        Some((signal, _)) => {
            Err(format!("grace period must be specified for the soft eviction threshold {signal}"))
        }
        None => Ok(()),
    }
}

/// Directories, periods, thresholds, log rotation, sysctls.
fn kubelet(config: &Configuration, flags: &Flags, gates: &Gates) -> Result<(), String> {
    if flags.text("root-dir").is_empty() {
        return Err("invalid root directory \"\"".to_owned());
    }
    let frequency = config.nanos(&["syncFrequency"]);
    if frequency <= 0 {
        return Err(format!("invalid sync frequency {frequency}"));
    }
    let has_chains = config.flag(&["makeIPTablesUtilChains"]);
    if has_chains && config.int("iptablesDropBit") == config.int("iptablesMasqueradeBit") {
        return Err("iptables-masquerade-bit and iptables-drop-bit must be different".to_owned());
    }
    let provider = flags.text("cloud-provider");
    if gates.is_open("DisableCloudProviders") && !matches!(provider, "" | "external") {
        return Err(format!(
            "cloud provider {provider:?} was specified, but built-in cloud providers are disabled. Please set --cloud-provider=external and migrate to an external cloud provider"
        ));
    }
    hard_thresholds(config)?;
    soft_thresholds(config)?;
    let strategy = config.text(&["configMapAndSecretChangeDetectionStrategy"]);
    if flags.given("kubeconfig").is_some() && !matches!(strategy, "Watch" | "Cache" | "Get") {
        return Err(format!("unknown configmap and secret manager mode: {strategy}"));
    }
    log_rotation(config).map_err(|why| format!("failed to initialize container log manager: {why}"))?;
    let age = parse_duration(flags.text("minimum-container-ttl-duration")).unwrap_or(0);
    if age < 0 {
        return Err(format!("invalid minimum garbage collection age: {}", format_duration(age)));
    }
    config.texts("allowedUnsafeSysctls").iter().try_for_each(|pattern| sysctl(pattern))
}

fn log_rotation(config: &Configuration) -> Result<(), String> {
    let files = config.int("containerLogMaxFiles");
    if files <= 1 {
        return Err(format!("invalid MaxFiles {files}, must be > 1"));
    }
    let size = config.text(&["containerLogMaxSize"]);
    let failed = |why: String| format!("failed to parse container log max size {size:?}: {why}");
    match quantity(size).map_err(failed)?.is_whole() {
        true => Ok(()),
        false => Err(failed("invalid max log size".to_owned())),
    }
}

fn sysctl(pattern: &str) -> Result<(), String> {
    if pattern.len() > SYSCTL_MAX || !is_sysctl_pattern(pattern) {
        return Err(format!(
            "sysctl {pattern:?} must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_PATTERN}"
        ));
    }
    let dotted = dotted_sysctl(pattern);
    let (name, subject) = dotted.strip_suffix('*').map_or((&*dotted, "sysctl"), |name| (name, "sysctls"));
    match name == "kernel.sem" || NAMESPACED.iter().any(|prefix| name.starts_with(prefix)) {
        true => Ok(()),
        false => Err(format!("the {subject} {dotted:?} are not known to be namespaced")),
    }
}

/// Whether a text has the form of [`SYSCTL_PATTERN`].
fn is_sysctl_pattern(pattern: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: &u8| is_alphanumeric(*byte) || matches!(byte, b'-' | b'_');
    let begins_well =
        |part: &[u8]| part.first().is_none_or(|first| is_alphanumeric(*first)) && part.iter().all(is_inner);
    let mut segments: Vec<&[u8]> = pattern.as_bytes().split(|byte| matches!(byte, b'.' | b'/')).collect();
    let Some((last, before_last)) = segments.pop().and_then(<[u8]>::split_last) else { return false };
    let ends_well = |part: &&[u8]| part.last().is_some_and(|last| is_alphanumeric(*last));
    (is_alphanumeric(*last) || *last == b'*')
        && begins_well(before_last)
        && segments.iter().all(|part| begins_well(part) && ends_well(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_swap_are_refused() {
        let (head, place) = ("Filename\tType\n", "/swapfile\tfile\n");
        let config = Configuration::default();
        assert!(check_swap(&config, head).is_ok() && check_swap(&config, "").is_ok());
        let error = check_swap(&config, &format!("{head}{place}")).unwrap_err().message;
        assert!(error.ends_with("/proc/swaps contained: [Filename\tType /swapfile\tfile]"), "{error}");
        let mut given = schema::Value::map();
        given.set(&["failSwapOn"], false);
        assert!(check_swap(&Configuration::with_defaults(given), &format!("{head}{place}")).is_ok());
    }

    #[test]
    fn patterns_of_sysctls_have_their_form() {
        for pattern in
            ["net.core.somaxconn", "net/ipv4/conf/eth0.100/x", "net.*", "*", "kernel.msg*", "a_b.c-d"]
        {
            assert!(is_sysctl_pattern(pattern), "{pattern}");
        }
        for pattern in ["", "!", "net.", ".a", "-a.b", "a-.b", "a.**b", "a.-*", "A"] {
            assert!(!is_sysctl_pattern(pattern), "{pattern}");
        }
        assert_eq!(sysctl("net/core/x"), Ok(()));
        assert_eq!(sysctl("vm/*").unwrap_err(), "the sysctls \"vm.*\" are not known to be namespaced");
    }
}
