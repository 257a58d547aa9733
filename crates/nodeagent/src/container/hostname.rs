//! The host name and the domain of a pod.

use api::core::v1::Pod;

/// The longest host name of a pod.
const MAX_HOSTNAME: usize = 63;
/// The longest node name of the kernel.
const MAX_NODENAME: usize = 64;

/// The short host name of a pod, and its domain if it has a subdomain.
pub fn hostname_and_domain(pod: &Pod, cluster_domain: &str) -> Result<(String, String), String> {
    let mut hostname = pod.metadata.name.clone();
    if !pod.spec.hostname.is_empty() {
        check_label("Hostname", &pod.spec.hostname)?;
        hostname.clone_from(&pod.spec.hostname);
    }
    if hostname.len() > MAX_HOSTNAME {
        let short: String = hostname.chars().take(MAX_HOSTNAME).collect();
        hostname = short.trim_end_matches(['-', '.']).to_owned();
        if hostname.is_empty() {
            return Err(format!("hostname for pod {:?} was invalid: {short:?}", pod.metadata.name));
        }
    }
    let mut domain = String::new();
    if !pod.spec.subdomain.is_empty() {
        check_label("Subdomain", &pod.spec.subdomain)?;
        domain = format!("{}.{}.svc.{cluster_domain}", pod.spec.subdomain, pod.metadata.namespace);
    }
    Ok((hostname, domain))
}

/// The name that the kernel gets: with the domain if `setHostnameAsFQDN` is set.
pub fn kernel_hostname(hostname: &str, domain: &str, is_fqdn: bool) -> Result<String, String> {
    if domain.is_empty() || !is_fqdn {
        return Ok(hostname.to_owned());
    }
    let fqdn = format!("{hostname}.{domain}");
    match fqdn.len() {
        length if length > MAX_NODENAME => Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
             ({MAX_NODENAME} characters is the max, {length} characters requested)"
        )),
        _ => Ok(fqdn),
    }
}

/// The API server accepts labels only; a static pod may have anything.
fn check_label(field: &str, text: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = text.len() <= MAX_HOSTNAME
        && text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-');
    match is_label {
        true => Ok(()),
        false => Err(format!(
            "pod {field} {text:?} is not a valid DNS label: a lowercase RFC 1123 label must consist of lower case \
             alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
             '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn names_follow_from_the_spec() {
        let check = |name: &str, spec: &str, expected: &str| {
            let pod: Pod =
                object(&format!(r#"{{"metadata":{{"name":"{name}","namespace":"n"}},"spec":{spec}}}"#));
            let made = hostname_and_domain(&pod, "cluster.local").and_then(|(hostname, domain)| {
                let is_fqdn = pod.spec.set_hostname_as_fqdn == Some(true);
                Ok(format!("{} {domain}", kernel_hostname(&hostname, &domain, is_fqdn)?))
            });
            assert_eq!(made.unwrap_or_else(|error| error), expected, "{spec}");
        };
        check("p", "{}", "p ");
        check("x.y.z", "{}", "x.y.z ");
        check("p", r#"{"hostname":"h"}"#, "h ");
        check("p", r#"{"hostname":"h","subdomain":"s"}"#, "h s.n.svc.cluster.local");
        check(
            "p",
            r#"{"hostname":"h","subdomain":"s","setHostnameAsFQDN":true}"#,
            "h.s.n.svc.cluster.local s.n.svc.cluster.local",
        );
        let (long, sub) = ("h".repeat(60), "s".repeat(20));
        let fqdn = format!("{long}.{sub}.n.svc.cluster.local");
        check(
            "p",
            &format!(r#"{{"hostname":"{long}","subdomain":"{sub}","setHostnameAsFQDN":true}}"#),
            &format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long (64 \
                 characters is the max, {} characters requested)",
                fqdn.len()
            ),
        );
        let name = format!("{}-.{}", "a".repeat(61), "b".repeat(10));
        check(&name, "{}", &format!("{} ", "a".repeat(61)));
    }
}
