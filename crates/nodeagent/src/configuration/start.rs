//! Checks that upstream makes while it starts: TLS, authentication, reserved resources, thresholds, policies.

use super::error::StartError;
use super::flags::Flags;
use super::gates::Gates;
use super::policy_options::check_policies;
use super::values::Configuration;
use schema::quantity::Quantity;
use schema::time::parse_duration;

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

/// Sysctls that have a namespace, by exact name or by prefix.
const NAMESPACED: &[&str] =
    &["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue.", "net.", "kernel.shm_rmid_forced"];

fn failed(context: &str, why: String) -> StartError {
    StartError::new(format!("{context}: {why}"))
}

/// All checks, in upstream's order.
pub fn check(config: &Configuration, flags: &Flags, gates: &Gates) -> Result<(), StartError> {
    dependencies(config, flags).map_err(|why| failed("failed to construct kubelet dependencies", why))?;
    let run = |why| failed("failed to run Kubelet", why);
    if !matches!(
        flags.text("cloud-provider"),
        "" | "external" | "aws" | "azure" | "gce" | "openstack" | "vsphere"
    ) {
        return Err(run(format!("unknown cloud provider {:?}", flags.text("cloud-provider"))));
    }
    access(config, flags).map_err(run)?;
    resources(config, gates).map_err(run)?;
    thresholds(config).map_err(run)?;
    check_policies(config, gates).map_err(run)?;
    kubelet(config).map_err(|why| run(format!("failed to create kubelet: {why}")))
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
    if let Some(suite) = config.texts("tlsCipherSuites").iter().find(|it| !CIPHERS.contains(&it.as_str())) {
        return Err(format!("Cipher suite {suite} not supported or doesn't exist"));
    }
    let version = config.text(&["tlsMinVersion"]);
    if !matches!(version, "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13") {
        return Err(format!("unknown tls version {version:?}"));
    }
    if flags.given("hostname-override").is_some_and(|name| name.trim().is_empty()) {
        return Err("empty hostname is invalid".to_owned());
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

/// Authentication and authorization by the API server need one.
fn access(config: &Configuration, flags: &Flags) -> Result<(), String> {
    let has_client = flags.given("kubeconfig").is_some() || flags.given("bootstrap-kubeconfig").is_some();
    if config.flag(&["authentication", "webhook", "enabled"]) && !has_client {
        return Err("no client provided, cannot use webhook authentication".to_owned());
    }
    match config.text(&["authorization", "mode"]) {
        "AlwaysAllow" => Ok(()),
        "Webhook" if has_client => Ok(()),
        "Webhook" => Err("no client provided, cannot use webhook authorization".to_owned()),
        other => Err(format!("unknown authorization mode {other}")),
    }
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse::<Quantity>().map_err(|why| why.to_string())
}

fn resources(config: &Configuration, gates: &Gates) -> Result<(), String> {
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
    if !gates.is_open("QOSReserved") {
        return Ok(());
    }
    for (name, text) in config.map("qosReserved") {
        if name != "memory" {
            return Err(format!("cannot reserve {name:?} resource"));
        }
        let number = text.strip_suffix('%').and_then(|it| it.parse::<i64>().ok());
        let number =
            number.ok_or_else(|| format!("failed to parse percentage {text:?} for resource {name:?}"))?;
        if !(0..=100).contains(&number) {
            return Err("percentage must be between 0 and 100".to_owned());
        }
    }
    Ok(())
}

/// The hard thresholds of eviction.
fn thresholds(config: &Configuration) -> Result<(), String> {
    config.map("evictionHard").iter().try_for_each(|(signal, text)| threshold(signal, text))
}

fn threshold(signal: &str, text: &str) -> Result<(), String> {
    if !SIGNALS.contains(&signal) {
        return Err(format!("unsupported eviction signal {signal}"));
    }
    if let Some(number) = text.strip_suffix('%') {
        let number: f32 =
            number.parse().map_err(|_| format!("strconv.ParseFloat: parsing {number:?}: invalid syntax"))?;
        if number < 0.0 {
            return Err(format!("eviction percentage threshold {signal} must be >= 0%: {text}"));
        }
        // a percentage of 0 turns the threshold off
        if number > 100.0 {
            return Err(format!("eviction percentage threshold {signal} must be <= 100%: {text}"));
        }
        return Ok(());
    }
    let parsed = quantity(text)?;
    match parsed.sign() < 0 || parsed.is_zero() {
        true => Err(format!("eviction threshold {signal} must be positive: {text}")),
        false => Ok(()),
    }
}

/// Soft thresholds, log rotation, sysctls.
fn kubelet(config: &Configuration) -> Result<(), String> {
    let grace = config.map("evictionSoftGracePeriod");
    for (signal, text) in &grace {
        if !SIGNALS.contains(&signal.as_str()) {
            return Err(format!("unsupported eviction signal {signal}"));
        }
        let nanos = parse_duration(text).map_err(|why| why.to_string())?;
        if nanos < 0 {
            return Err(format!("invalid eviction grace period specified: {text}, must be a positive value"));
        }
    }
    for (signal, text) in config.map("evictionSoft") {
        threshold(&signal, &text)?;
        if !grace.contains_key(&signal) {
            return Err(format!("grace period must be specified for the soft eviction threshold {signal}"));
        }
    }
    for (signal, text) in config.map("evictionMinimumReclaim") {
        if !SIGNALS.contains(&signal.as_str()) {
            return Err(format!("unsupported eviction signal {signal}"));
        }
        if !text.ends_with('%') && quantity(&text)?.sign() < 0 {
            return Err(format!("negative eviction minimum reclaim specified for {signal}"));
        }
    }
    let rotation = "failed to initialize container log manager";
    let files = config.int("containerLogMaxFiles");
    if files <= 1 {
        return Err(format!("{rotation}: invalid MaxFiles {files}, must be > 1"));
    }
    let size = config.text(&["containerLogMaxSize"]);
    quantity(size)
        .map_err(|why| format!("{rotation}: failed to parse container log max size {size:?}: {why}"))?;
    for sysctl in config.texts("allowedUnsafeSysctls") {
        let name = sysctl.strip_suffix('*').unwrap_or(&sysctl);
        if !NAMESPACED.iter().any(|known| name.starts_with(known)) {
            return Err(format!("the sysctl {sysctl:?} are not known to be namespaced"));
        }
    }
    Ok(())
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
}
